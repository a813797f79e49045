"""A program of the user's as a backend: a folder of models and inputs goes in, outputs come back.

The program is called with the folder as its last argument. For a model `models/M.onnx` it finds the samples
`inputs/M/0.npz`, `inputs/M/1.npz` ..., and for tools that read raw values `inputs/M/0.load`, a line for trtexec's
--loadInputs with paths from the folder. It leaves the outputs in `outputs/M/` in a form that `saved:` reads, one file a
sample: .npz, or trtexec's --exportOutput. A model that does not run gets `outputs/M/error.txt` instead. `about.json`,
which may be left out, says on what it ran: the keys of a backend's record.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile
from typing import Any

import numpy as np
from msgspec import structs

from halfwise.backends.backend import BackendFailure, BackendOptions, BackendRecord, BackendRun, Feed, Traits
from halfwise.backends.saved_files import saved_samples
from halfwise.core.child.process import Ended, log_tail, run
from halfwise.core.document import read
from halfwise.core.errors import HalfwiseError, InputError
from halfwise.core.json_text import read_json
from halfwise.core.notes import Note
from halfwise.core.wording import counted

__all__ = ["CommandBackend", "Job"]

_ERROR, _ABOUT = "error.txt", "about.json"
_TOLD = 300

# A model file, and its samples.
Job = tuple[Path, Sequence[Feed]]


@dataclass(frozen=True)
class CommandBackend:
    """`cmd:PROGRAM`, with arguments if it has any."""

    program: str
    options: BackendOptions

    @property
    def name(self) -> str:
        return f"cmd:{self.program}"

    @property
    def cautions(self) -> tuple[Note, ...]:
        return ()

    @property
    def traits(self) -> Traits:
        return Traits(picks_tactics=True)

    def run(self, model: Path, feeds: Sequence[Feed]) -> BackendRun:
        (done,) = self.run_all([(model, feeds)])
        if isinstance(done, BackendFailure):
            raise done
        return done

    def run_all(self, jobs: Sequence[Job]) -> list[BackendRun | BackendFailure]:
        """Every model in one call of the program; what failed is in the place of its outputs."""
        try:
            command = shlex.split(self.program)
        except ValueError as error:
            raise InputError(f"--backend {self.name}: {error}") from None
        if not command:
            raise InputError("--backend cmd: names no program, as in cmd:./on_the_jetson.sh")
        with tempfile.TemporaryDirectory(prefix="halfwise-command-") as name:
            folder, log = Path(name, "probes"), Path(name, "log")
            names = [f"{place}-{model.stem}" for place, (model, _) in enumerate(jobs)]
            for stem, (model, feeds) in zip(names, jobs, strict=True):
                _hand_over(folder, stem, model, feeds)
            ended = run([*command, str(folder)], log_path=log, time_limit_s=self.options.time_limit_s)
            tail = log_tail(log, 1)
            if not any(any((folder / "outputs" / stem).iterdir()) for stem in names):
                raise HalfwiseError(f"{self.name} {_ended(ended, tail)}, and left no outputs")
            record = self._record(folder / _ABOUT)
            return [self._answer(folder / "outputs" / stem, len(feeds), record, ended, tail)
                    for stem, (_, feeds) in zip(names, jobs, strict=True)]  # fmt: skip

    def _answer(
        self, outputs: Path, samples: int, record: BackendRecord, ended: Ended, tail: Sequence[str]
    ) -> BackendRun | BackendFailure:
        error = outputs / _ERROR
        if error.is_file():
            text = " ".join(error.read_text(encoding="utf-8", errors="replace").split())
            return BackendFailure(text[:_TOLD] or "it says no more")
        if not any(outputs.iterdir()):
            return BackendFailure(f"{self.name} {_ended(ended, tail)}, and left no outputs of this model")
        found = saved_samples(outputs)
        if len(found) != samples:
            raise InputError(
                f"{self.name} left the outputs of {counted(len(found), 'sample')} of {outputs.name}, not of {samples}"
            )
        return BackendRun(tuple(each.read() for each in found), record)

    def _record(self, about: Path) -> BackendRecord:
        plain = BackendRecord(self.name, self.program)
        if not about.is_file():
            return plain
        try:
            stated = read_json(about)
        except ValueError:
            raise InputError(f"{self.name}: {_ABOUT} is not valid JSON") from None
        if not isinstance(stated, dict):
            raise InputError(f"{self.name}: {_ABOUT} is no JSON object")
        return structs.replace(read({"backend": self.name, **stated}, BackendRecord, _ABOUT), backend=self.name)


def _ended(ended: Ended, tail: Sequence[str]) -> str:
    return f"{ended.describe()}{f' ({tail[-1][:_TOLD]})' if tail else ''}"


def _hand_over(folder: Path, stem: str, model: Path, feeds: Sequence[Feed]) -> None:
    for each in ("models", f"inputs/{stem}", f"outputs/{stem}"):
        (folder / each).mkdir(parents=True, exist_ok=True)
    copyfile(model, folder / "models" / f"{stem}.onnx")
    for place, feed in enumerate(feeds):
        np.savez(folder / "inputs" / stem / f"{place}.npz", **feed)  # type: ignore[arg-type]
        raw = folder / "inputs" / stem / str(place)
        raw.mkdir()
        (folder / "inputs" / stem / f"{place}.load").write_text(_raw(feed, raw, folder), encoding="utf-8")


def _raw(feed: Mapping[str, Any], place: Path, folder: Path) -> str:
    """The values without a header, one file an input; the line that names them."""
    named = []
    for index, (name, array) in enumerate(feed.items()):
        path = place / f"{index}.bin"
        path.write_bytes(np.ascontiguousarray(array).tobytes())
        named.append(f"{name}:{path.relative_to(folder).as_posix()}")
    return ",".join(named)
