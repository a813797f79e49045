"""A model on a backend: its answers to samples, or to the steps of a rollout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from halfwise.backends.backend import Backend, BackendRecord, BackendRun, RunsSteps
from halfwise.core.errors import InputError
from halfwise.core.notes import Note
from halfwise.model.inputs.rollout import Rollout, lockstep
from halfwise.model.inputs.rollout_windows import windows
from halfwise.model.model import Model, load

__all__ = ["BackendAnswers", "BackendModel", "run_on"]

Feed = Mapping[str, NDArray[Any]]


def run_on(backend: Backend, model: Path, feeds: Sequence[Feed], rollout: Rollout | None) -> BackendRun:
    """The answers to all samples; of a rollout those to all steps, each with the state that the model itself gave."""
    if rollout is None:
        return backend.run(model, feeds)
    parts = windows(feeds, rollout.steps, rollout.states)
    if isinstance(backend, RunsSteps):
        return backend.run_steps(model, list(chain(*parts)), rollout)
    records: list[BackendRecord] = []

    def run(step: Sequence[Feed]) -> Sequence[dict[str, NDArray[Any]]]:
        done = backend.run(model, step)
        records.append(done.record)
        return done.outputs

    answers = lockstep(rollout, parts, run)
    return BackendRun(tuple(dict(answer) for answer in chain(*answers)), records[-1])


@dataclass(frozen=True, eq=False)
class BackendAnswers:
    """What a model answered on a backend, in the order of the samples or steps."""

    backend: Backend
    done: BackendRun

    @property
    def notes(self) -> tuple[Note, ...]:
        return (*self.backend.cautions, *self.done.record.remarks)

    def run(self, index: int, feed: Feed) -> dict[str, NDArray[Any]]:
        return self.done.outputs[index]


@dataclass(frozen=True, eq=False)
class BackendModel:
    """A model file that a backend is to run, all samples in one go."""

    path: Path
    backend: Backend
    model: Model

    @classmethod
    def of(cls, source: Any, backend: Backend) -> BackendModel:
        if not isinstance(source, (str, Path)) or not Path(source).is_file():
            raise InputError(f"{backend.name} runs a model file: there is no such file as {str(source)[:200]!r}")
        return cls(Path(source), backend, load(source))

    def answers(self, feeds: Sequence[Feed], rollout: Rollout | None) -> BackendAnswers:
        return BackendAnswers(self.backend, run_on(self.backend, self.path, feeds, rollout))
