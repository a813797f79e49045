"""`profiles`: the rounding profiles that can judge, those that are built in and those that were learned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from halfwise.core.document import Count, Document, Documented, Number, Record, about
from halfwise.core.errors import InputError
from halfwise.core.files.absent import absent
from halfwise.core.json_text import read_json
from halfwise.core.summary import Summary
from halfwise.emulation.profiles import PROFILES, SPREADS, Profile
from halfwise.emulation.profiles.machine import MachineDocument, Status, is_machine, read_machine
from halfwise.emulation.profiles.shipped import shipped_machine

__all__ = ["ProfileRecord", "Profiles", "ProfilesDocument", "profiles"]

Evidence = Literal["bound", "measured", "inferred", "learned"]
_MOST_BYTES = 1 << 26  # of a machine file


class ProfileRecord(Record, frozen=True):
    """One profile."""

    name: Annotated[str, about("What --profile takes.")]
    evidence: Annotated[
        Evidence,
        about(
            "bound: a limit that needs none; learned: from `halfwise prove`; inferred: from kernel names, never run; "
            "measured: fitted to runs on a GPU, by older versions."
        ),
    ]
    machine: Annotated[str, about("What it was learned on.")] = ""
    made: Annotated[str, about("Day of the run.")] = ""
    spread: Annotated[Number, about("Share by which real errors may exceed predicted ones.")] = 0.0
    forms: Annotated[Mapping[Status, Count] | None, about("Probes by answer.")] = None


class ProfilesDocument(Document, frozen=True, tag="halfwise.profiles/1"):
    """What `halfwise profiles --json` prints."""

    profiles: Sequence[ProfileRecord]


@dataclass(frozen=True, repr=False)
class Profiles(Documented):
    """All profiles, those that are built in first."""

    records: tuple[ProfileRecord, ...]

    def document(self) -> ProfilesDocument:
        return ProfilesDocument(self.records)

    def summary(self) -> Summary:
        """Each profile and what it rests on."""
        rows = tuple((each.name, each.evidence, each.machine) for each in self.records)
        return Summary(f"{len(rows)} rounding profiles", ("profile", "evidence", "machine"), rows)


def profiles(paths: Iterable[str | Path] = ()) -> Profiles:
    """The profiles that are built in, and those in machine files: of these files and folders, else of this folder."""
    given = [Path(path) for path in paths]
    found = [_built_in(profile) for profile in PROFILES.values()]
    for path in given or [Path()]:
        if not path.exists():
            raise absent(path, "file or folder")
        files = [file for file in sorted(path.glob("*.json")) if _holds_machine(file)] if path.is_dir() else [path]
        found += [_learned(file.as_posix(), read_machine(file), max(SPREADS.values())) for file in files]
    return Profiles(tuple(found))


def _holds_machine(path: Path) -> bool:
    try:
        return path.is_file() and path.stat().st_size < _MOST_BYTES and is_machine(read_json(path))
    except (OSError, ValueError, InputError):
        return False


def _built_in(profile: Profile) -> ProfileRecord:
    if profile.name in SPREADS:
        return _learned(profile.name, shipped_machine(), profile.spread)
    return ProfileRecord(profile.name, "inferred" if profile.inferred else "bound", spread=profile.spread)


def _learned(name: str, machine: MachineDocument, spread: float) -> ProfileRecord:
    return ProfileRecord(name, "learned", machine.ran.title, machine.made, spread, machine.counts)
