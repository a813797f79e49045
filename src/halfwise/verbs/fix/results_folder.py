"""The folder of results: whether it can be written to, the journal of an interrupted search, the model and the plan."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from halfwise.core.contents import tensors_in
from halfwise.core.errors import InputError
from halfwise.core.real_path import real_path
from halfwise.core.whole_files import WholeFiles, check_room, is_special
from halfwise.precision.assignment import Assignment
from halfwise.precision.plan import Plan
from halfwise.precision.typed_onnx import TypedModel, write_typed
from halfwise.search.journal import digest

__all__ = ["JOURNAL", "WALKS", "check_folder", "feeds_identity", "write_results"]

Feed = Mapping[str, NDArray[Any]]

JOURNAL = ".halfwise-search.jsonl"  # in the folder of results while a search runs
WALKS = ".halfwise-walks"  # beside it: what walks through a large model gave
MODEL, PLAN, REPORT = ".fp16.onnx", ".plan.json", ".report.html"  # behind the model's name


def check_folder(out: Path, model: Path | None, size: int) -> None:
    """Refuse before the search what could not be written after it. `size`: what the results take at least."""
    for ending in (MODEL, f"{MODEL}.data", PLAN, REPORT):
        path = out / f"{_stem(model)}{ending}"
        if is_special(path):  # a pipe would wait for somebody who reads
            raise InputError(f"{path} is a pipe or a device: remove it, or choose another folder with --out")
    nearest = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    if not nearest.is_dir():
        raise InputError(f"{out} cannot be made: {nearest} is a file; choose another folder with --out")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise InputError(f"{out} cannot be written to; choose another folder with --out")
    check_room(out, nearest, size)


def feeds_identity(feeds: Sequence[Feed]) -> str:
    """Samples by what they hold."""
    parts = [
        f"{name} {array.dtype} {array.shape} {_content(array)}"
        for feed in feeds
        for name in sorted(feed)
        for array in tensors_in([feed[name]])
    ]
    return digest(*parts)


def _content(array: NDArray[Any]) -> str:
    return digest(array.tolist()) if array.dtype.kind == "O" else hashlib.sha256(array.tobytes()).hexdigest()


def write_results(
    out: Path,
    model: Path | None,
    decision: Assignment,
    plan: Plan,
    notify: Callable[[str], None],
    written_of: Callable[[int, int], None],
) -> tuple[TypedModel, Path]:
    """The typed model and its plan, named after the model."""
    path, plan_path = out / f"{_stem(model)}{MODEL}", out / f"{_stem(model)}{PLAN}"
    if model is not None and real_path(path) == real_path(model):
        raise InputError(f"{path} is the model itself; choose another folder with --out")
    notify(f"writing {path}")
    with WholeFiles(out) as files:
        typed = write_typed(decision, path, files, written_of)
        files.text(plan_path, plan.text(out))
    return typed, plan_path


def _stem(model: Path | None) -> str:
    return model.stem if model else "model"
