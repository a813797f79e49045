"""The jobs of a fleet: each file of a model with each thing to do, each target and each tolerance."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from glob import has_magic
from pathlib import Path
from typing import Any

from halfwise.core.errors import InputError
from halfwise.core.own_code import code_identity
from halfwise.fleet.settings import Settings, Subject

__all__ = ["Job", "Need", "check_unicode", "jobs_of", "key_of", "model_files", "taken"]

_NOT_A_NAME = re.compile(r"[^A-Za-z0-9._@+-]+")
_DIGITS = re.compile(r"(\d+)")


@dataclass(frozen=True)
class Need:
    """What a job may take. `memory` in bytes; 0: what the fleet has."""

    seconds: float
    memory: int
    gpus: int = 0


@dataclass(frozen=True)
class Job:
    """One call of one verb. Its words are those that a user would type, but for the inputs and the folder."""

    model: str  # the name under which results are compared over time
    version: str  # which of the files of that model; empty where it has one
    path: Path
    action: str
    target: str
    tolerance: tuple[str, ...]
    options: tuple[str, ...]
    inputs: tuple[Path, ...]
    function: str
    plan: Path | None
    engine: Path | None
    need: Need
    metric: str = ""  # a function of the user's, among the options, too

    @property
    def title(self) -> str:
        """Of a line: what is done to what."""
        more = (self.target, " ".join(self.tolerance), self.version)
        return " ".join(filter(None, (self.model, self.action, *more)))

    @property
    def subject(self) -> str:
        """Results of one subject are compared over time, whatever the version of the model's file."""
        return json.dumps([self.model, self.action, self.target, self.tolerance])

    @property
    def folder(self) -> str:
        """A name of its own for each job of one model, which does not change from run to run."""
        parts = [self.action, self.target, *self.tolerance, self.version]
        return _NOT_A_NAME.sub("_", "-".join(filter(None, parts)))[:80] + f"-{_digest(self.subject + self.version)[:6]}"

    def words(self, inputs: Sequence[str], out: str) -> list[str]:
        """The command line."""
        given = [word for path in inputs for word in ("--inputs", path)]
        bounds = [word for bound in self.tolerance for word in ("--tol", bound)]
        path = str(self.path)
        if self.action == "scan":
            return ["scan", path, "--json"]
        if self.action == "fix":
            return ["fix", path, "--out", out, *given, *bounds, "--target", self.target, *self.options, "--json"]
        if self.action == "gate":
            engine = ["--engine", str(self.engine)] if self.engine is not None else []
            return ["gate", path, "--plan", str(self.plan), *given, *engine, *self.options, "--json"]
        if self.action == "stages":
            return ["stages", path, *given, *bounds, "--json"]
        plan = ["--plan", str(self.plan)] if self.plan is not None else []
        return ["audit", str(self.engine), "--model", path, *plan, "--json"]


def jobs_of(settings: Settings) -> list[Job]:
    """In the order of the file. Raises InputError where a path matches nothing, or two jobs would be one."""
    jobs = [job for subject in settings.models for job in _jobs(settings, subject)]
    twice = [job for job, count in Counter((j.model, j.folder) for j in jobs).items() if count > 1]
    if twice:
        raise InputError(taken(twice[0][0]))
    return jobs


def taken(name: str) -> str:
    return f"two files bear the name {name!r}: give each its table with a name, or say versions = true"


def model_files(folder: Path, path: str) -> list[Path]:
    """The files that a path matches, in the order of their names, with numbers in them as numbers."""
    start = Path(path).anchor
    if any("**" in part and part != "**" for part in Path(path).parts):  # Python versions differ
        raise InputError(f"{path}: '**' can only be an entire path component")
    if Path(path).name == "**":
        raise InputError(f"{path}: '**' stands for folders; name the files in them, as in {Path(path, '*.onnx')}")
    try:
        found = Path(start or folder).glob(path.removeprefix(start)) if has_magic(path) else [folder / path]
        files = [file for file in found if file.is_file()]
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None
    return sorted(files, key=lambda file: [(int(p), "") if p.isdigit() else (-1, p) for p in _DIGITS.split(str(file))])


def check_unicode(path: Path) -> None:
    """Neither a fleet's file nor its store can hold another name."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise InputError(f"{path}: its name is no Unicode, which a fleet needs: rename it") from None


def key_of(job: Job, contents: Mapping[Path, str], function: str) -> str:
    """Equal for a job that gives the same answer again: the same bytes, settings and code of this program.

    `contents` has a digest of every file and folder that the job reads, `function` one of its functions' sources.
    """
    paths = {"model": job.path, "plan": job.plan, "engine": job.engine}
    read = {name: contents[path] for name, path in paths.items() if path is not None}
    asked = [job.subject, job.version, job.options, [contents[path] for path in job.inputs]]
    return _digest(json.dumps([code_identity(), read, asked, job.function, function], sort_keys=True))


def _jobs(settings: Settings, subject: Subject) -> Iterator[Job]:
    files = model_files(settings.folder, subject.path)
    if not files:
        raise InputError(f"{subject.path}: no file is there; paths start at the folder of the fleet's file")
    several = len(files) > 1
    if several and subject.name and not subject.versions:
        raise InputError(
            f"{subject.path} matches {len(files)} files, and name = {subject.name!r} is one name: leave the name out, "
            "or say versions = true"
        )
    for file in files:
        check_unicode(file)
        name = subject.name or file.stem
        version = file.stem if subject.versions else ""
        for action in subject.do:
            for target in subject.targets if action == "fix" else subject.targets[:1]:
                for tolerance in subject.tolerances if action in ("fix", "stages") else ((),):
                    yield _job(settings.folder, subject, file, (name, version, action, target), tolerance)


def _job(folder: Path, subject: Subject, file: Path, which: tuple[str, str, str, str], bounds: tuple[str, ...]) -> Job:
    name, version, action, target = which
    metric = ("--metric", subject.metric) if subject.metric and action in ("fix", "gate") else ()
    runs = ("--max-runs", f"{subject.runs:g}") if action == "fix" and subject.runs is not None else ()
    device = ("--device", subject.device) if action == "fix" and subject.device != "cpu" else ()
    reads = action not in ("scan", "audit")

    def placed(text: str) -> Path:
        return folder / text.replace("{name}", name).replace("{version}", version or file.stem)

    return Job(
        name,
        version,
        file,
        action,
        target if action == "fix" else "",  # a gate has its plan's
        bounds,
        (*metric, *runs, *device),
        tuple(placed(text) for text in subject.inputs) if reads else (),
        subject.function if reads else "",
        placed(subject.plan) if subject.plan and action in ("gate", "audit") else None,
        placed(subject.engine) if subject.engine and action in ("gate", "audit") else None,
        Need(subject.seconds, subject.memory, 1 if device else 0),
        subject.metric if metric and ":" in subject.metric else "",
    )


def _digest(text: Any) -> str:
    return hashlib.sha256(str(text).encode("utf-8", "backslashreplace")).hexdigest()
