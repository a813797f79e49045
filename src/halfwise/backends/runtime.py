"""ONNX Runtime's execution providers as backends. On a GPU each model runs in a child process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from halfwise.backends.backend import BackendOptions, BackendRun, Feed, Traits
from halfwise.core.notes import Note, NoteKind
from halfwise.model.inputs.rollout import Rollout

__all__ = ["RuntimeBackend"]

_CAUTIONS = {
    "ort-cpu": (Note.of(NoteKind.CPU_COMPUTES_WIDE),),
    "ort-tensorrt": (Note.of(NoteKind.PROVIDER_MAY_RETYPE),),
}
_TRAITS = {
    "ort-cpu": Traits(computes_wide=True),
    "ort-cuda": Traits(rewrites_graph=True),
    "ort-tensorrt": Traits(rewrites_graph=True, picks_tactics=True),
    "ort-rtx": Traits(rewrites_graph=True, picks_tactics=True),
}


@dataclass(frozen=True)
class RuntimeBackend:
    """One of `ort-cpu`, `ort-cuda`, `ort-tensorrt` and `ort-rtx`."""

    name: str
    options: BackendOptions

    @property
    def cautions(self) -> tuple[Note, ...]:
        return _CAUTIONS.get(self.name, ())

    @property
    def traits(self) -> Traits:
        return _TRAITS[self.name]

    def check_installed(self) -> None:
        from halfwise.backends.runtime_session import check_provider

        check_provider(self.name)

    def run(self, model: Path, feeds: Sequence[Feed]) -> BackendRun:
        return self._run(model, feeds, None)

    def run_steps(self, model: Path, steps: Sequence[Feed], rollout: Rollout) -> BackendRun:
        return self._run(model, steps, rollout)

    def _run(self, model: Path, feeds: Sequence[Feed], rollout: Rollout | None) -> BackendRun:
        if self.name == "ort-cpu":
            from halfwise.backends.runtime_session import run_model

            return run_model(self.name, model, feeds, self.options, rollout)
        from halfwise.backends.child import run_in_child

        return run_in_child("halfwise.backends.runtime_session:serve", self.name, model, feeds, self.options, rollout)
