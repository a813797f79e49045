"""A model on a backend as one of the two that `verify` compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from halfwise.backends.backend import Backend, BackendRecord
from halfwise.core.errors import InputError
from halfwise.core.notes import Note
from halfwise.model.model import Model, load

__all__ = ["BackendRunner"]

Feed = Mapping[str, NDArray[Any]]


class BackendRunner:
    """Runs all samples in one go, when they are known, and hands out the answers one by one."""

    def __init__(self, source: Any, backend: Backend) -> None:
        if not isinstance(source, (str, Path)) or not Path(source).is_file():
            raise InputError(f"{backend.name} runs a model file: there is no such file as {str(source)[:200]!r}")
        self.path, self.backend = Path(source), backend
        self.model: Model = load(self.path)
        self.record: BackendRecord | None = None
        self._outputs: Sequence[dict[str, NDArray[Any]]] = ()

    def prepare(self, feeds: Sequence[Feed]) -> None:
        done = self.backend.run(self.path, feeds)
        self.record, self._outputs = done.record, done.outputs

    def run_all(self, feeds: Sequence[Feed]) -> Sequence[dict[str, NDArray[Any]]]:
        self.prepare(feeds)
        return self._outputs

    def run(self, index: int, feed: Feed) -> dict[str, NDArray[Any]]:
        return self._outputs[index]

    @property
    def notes(self) -> tuple[Note, ...]:
        return (*self.backend.cautions, *(self.record.remarks if self.record is not None else ()))
