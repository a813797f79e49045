"""Runs probes on a backend in as few models as it allows: a model that fails is halved until one form is alone."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from numpy.typing import NDArray

from halfwise.backends import Backend, BackendFailure, BackendRecord, BackendRun
from halfwise.backends.command import CommandBackend, Job
from halfwise.core.errors import MissingBackend
from halfwise.emulation.probes import Form
from halfwise.emulation.probes.joined import forms_at, joined_feed, joined_model, joined_outputs

__all__ = ["Answered", "answers", "groups_of"]

MOST = 80  # forms of one model: what an interrupted run loses
_RUNS = 2  # of every probe, on the same inputs


@dataclass(frozen=True, eq=False)
class Answered:
    """What became of one form: its outputs in both runs; or why there are none; or that another device ran it."""

    form: Form
    outputs: tuple[Sequence[NDArray[Any]], ...] = ()
    refused: str = ""
    elsewhere: bool = False
    record: BackendRecord | None = None


def groups_of(forms: Sequence[Form]) -> list[list[Form]]:
    """Forms that can stand in one model: of one opset."""
    by_opset: dict[int, list[Form]] = {}
    for form in forms:
        by_opset.setdefault(form.opset, []).append(form)
    return [found[start : start + MOST] for found in by_opset.values() for start in range(0, len(found), MOST)]


def answers(backend: Backend, groups: Sequence[Sequence[Form]]) -> Iterator[list[Answered]]:
    """What became of the forms, as it is known."""
    left = list(groups)
    while left:
        halves: list[Sequence[Form]] = []
        for group, done in _runs(backend, left):
            if isinstance(done, BackendRun):
                yield _told(group, done)
            elif len(group) == 1:
                yield [Answered(group[0], refused=str(done))]
            else:
                halves += [group[: len(group) // 2], group[len(group) // 2 :]]
        left = halves


def _runs(
    backend: Backend, groups: Sequence[Sequence[Form]]
) -> Iterator[tuple[Sequence[Form], BackendRun | BackendFailure | MissingBackend]]:
    with tempfile.TemporaryDirectory(prefix="halfwise-prove-") as name:
        jobs: list[Job] = []
        for place, group in enumerate(groups):
            path = Path(name, f"probes{place}.onnx")
            if not isinstance(backend, CommandBackend):
                path = Path(name, "probes.onnx")
            onnx.save(joined_model(group), path)
            feeds = [joined_feed(group)] * _RUNS
            if not isinstance(backend, CommandBackend):
                yield group, _run(backend, path, feeds)
            jobs.append((path, feeds))
        if isinstance(backend, CommandBackend):
            yield from zip(groups, backend.run_all(jobs), strict=True)


def _run(backend: Backend, path: Path, feeds: Sequence[Any]) -> BackendRun | BackendFailure | MissingBackend:
    """The backend was seen to run a model: what it misses now, it misses for these forms."""
    try:
        return backend.run(path, feeds)
    except (BackendFailure, MissingBackend) as error:
        return error


def _told(group: Sequence[Form], done: BackendRun) -> list[Answered]:
    elsewhere = forms_at(group, done.record.on_cpu)
    runs = [joined_outputs(group, each) for each in done.outputs]
    found = []
    for form, *outputs in zip(group, *runs, strict=True):
        given = tuple(each for each in outputs if each is not None)
        if form.name in elsewhere:
            found.append(Answered(form, elsewhere=True, record=done.record))
        elif len(given) < _RUNS:
            found.append(Answered(form, refused="the backend gave no outputs of this form", record=done.record))
        else:
            found.append(Answered(form, given, record=done.record))
    return found
