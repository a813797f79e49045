"""A hook for pre-commit: do plans that are committed fit their models? Nothing is run.

It is given the plans and models that change. A plan names its model's file; the two are looked for in the folder that
the hook runs in.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from glob import escape
from itertools import chain
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halfwise.precision.plan import Plan

__all__ = ["main"]

_PLAN = ".plan.json"


def main(words: Sequence[str] | None = None) -> int:
    """One line for each plan; 1 where one does not fit."""
    given = [Path(word) for word in (sys.argv[1:] if words is None else words)]
    failed = False
    for path in _plans(given):
        line, fits = _checked(path)
        failed |= not fits
        print(line)
    return int(failed)


def _plans(given: Iterable[Path]) -> Iterator[Path]:
    """The plans among the files, and those in the folder that name one of the models."""
    found = dict.fromkeys(path for path in given if path.name.endswith(_PLAN))
    models = {path.name for path in given if not path.name.endswith(_PLAN)}
    if models:
        found.update((path, None) for path in _inside(f"*{_PLAN}") if _model_named(path) in models)
    yield from found


def _checked(path: Path) -> tuple[str, bool]:
    from halfwise.core.errors import HalfwiseError
    from halfwise.precision.plan import read_plan

    try:
        plan = read_plan(path)
    except HalfwiseError as error:  # which names the file
        return str(error), False
    try:
        told, fits = _compared(path, plan)
    except HalfwiseError as error:
        told, fits = str(error), False
    return f"{path}: {told}", fits


def _compared(path: Path, plan: Plan) -> tuple[str, bool]:
    from halfwise.model.fp32_model import fp32_model
    from halfwise.model.model import load
    from halfwise.verbs.gate import fits

    if not plan.model:
        return "is a plan of no model in particular", True
    model = _model_of(path, plan)
    if model is None:
        return f"can be read; its model {plan.model!r} is not here to compare with", True
    checks = fits(plan, fp32_model(load(model)))
    failed = [check for check in checks if check.status == "fail"]
    told = "; ".join(f"{check.id}: {check.message}" for check in failed or checks)
    return f"{'fits' if not failed else 'does not fit'} {model}: {told}", not failed


def _model_of(path: Path, plan: Plan) -> Path | None:
    """The nearest file of that name: beside the plan, above it, anywhere in the folder."""
    named = PurePath(plan.model)
    if not named.name or named.is_absolute() or ".." in named.parts:  # "." stands for all files in 3.13
        return None
    above = (folder / plan.model for folder in path.parents)
    with suppress(OSError, ValueError):  # a text that is the name of no file
        return next((each for each in chain(above, _inside(escape(plan.model))) if each.is_file()), None)
    return None


def _inside(pattern: str) -> Iterator[Path]:
    here = Path()
    inside = (path for path in here.rglob(pattern) if not any(part.startswith(".") for part in path.parts))
    found = (path for path in inside if path.is_file())
    yield from sorted(found, key=lambda path: (len(path.parts), path))


def _model_named(path: Path) -> str:
    from halfwise.core.errors import HalfwiseError
    from halfwise.precision.plan import read_plan

    try:
        return read_plan(path).model
    except HalfwiseError:  # it did not change, and is told of when it does
        return ""


if __name__ == "__main__":
    sys.exit(main())
