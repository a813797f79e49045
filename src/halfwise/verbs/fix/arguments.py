"""What a caller of `fix` may write for an argument, read and checked; what is unfit is one clear InputError."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from numbers import Real
from pathlib import Path
from typing import Any

from halfwise.backends import Backend, backend_named
from halfwise.backends.confirm import probe
from halfwise.backends.saved import SavedBackend
from halfwise.core.errors import InputError
from halfwise.core.formats import FORMATS, Format, format_named
from halfwise.core.targets import DEFAULT_TARGET, Target
from halfwise.emulation.ort import Device
from halfwise.emulation.profiles import TENSORRT, profile_named
from halfwise.precision.plan import Plan, read_plan

__all__ = [
    "check_by_engine",
    "check_confirmed",
    "check_given",
    "check_search",
    "checked_margin",
    "checked_max_runs",
    "checked_time_limit",
    "device_named",
    "io_types_of",
    "path_of",
    "plan_of",
    "target_of",
    "texts_of",
]


def check_confirmed(
    confirm: str | Backend, folder: Path | None, plan: Plan | None, notify: Callable[[str], None]
) -> None:
    """What is to be run on a backend has to be written, and the backend has to be there."""
    if folder is None:
        raise InputError("the model has to be written to be run on a backend: give a folder (out)")
    backend = backend_named(confirm) if isinstance(confirm, str) else confirm
    if plan is None or not isinstance(backend, SavedBackend):  # of a plan, an engine may have run already
        notify(f"trying {backend.name}")
        probe(backend)


def check_search(*, judge_on_all: bool, layers: bool) -> None:
    """What is for a plan alone."""
    if judge_on_all:
        raise InputError("judge_on_all is for a plan: a search is judged on inputs that it did not use")
    if layers:
        raise InputError("--engine: its layers need the plan that the engine was built from; give --plan, too")


def check_given(plan: Plan, *, stated: bool, changed: bool) -> None:
    """A plan that a machine file judged is judged by the same one again, unless another profile is `stated`."""
    if changed:
        raise InputError("--keep and --force are for a search; with --plan, edit the plan's fp32_nodes")
    if not stated and plan.profile_sha256 and profile_named(plan.profile).source != plan.profile_sha256:
        raise InputError(
            f"the plan was judged by another {plan.profile} (sha256 {plan.profile_sha256[:12]}...): state one with "
            "--profile"
        )


def check_by_engine(profile: str) -> None:
    """Layers of an engine say something under a profile that heeds them."""
    if not profile_named(profile).by_engine:
        raise InputError(
            f"layers are those of TensorRT, and profile {profile!r} is not: give a target such as trt-10.9, or "
            f"profile {TENSORRT.name!r}"
        )


def target_of(given: Any, plan: Plan | None) -> Target:
    """The target that is stated, or its name; else the plan's."""
    if isinstance(given, Target):
        return given
    if given is not None and not isinstance(given, str):
        raise InputError(f"target {given!r} is not a text such as 'trt-10.9@t4'")
    named = given if given is not None else plan.target if plan is not None else None
    return DEFAULT_TARGET if named is None else Target.parse(named)


def texts_of(name: str, given: Any) -> tuple[str, ...]:
    """One text, or many."""
    texts = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else (given,)
    for text in texts:
        if not isinstance(text, str):
            raise InputError(f"{name} {text!r} is not a text: give one text, or a list of texts")
    return texts


def path_of(name: str, given: Any) -> Path | None:
    if given is None:
        return None
    if not isinstance(given, (str, os.PathLike)):
        raise InputError(f"{name} {given!r} is not a path")
    if not os.fspath(given):
        raise InputError(f"{name}: the name is empty")
    return Path(given)


def io_types_of(given: Any) -> Format | None:
    """A format, or the name of one."""
    if given is None or isinstance(given, Format):
        return given
    fmt = format_named(given)
    if fmt is None:
        raise InputError(f"io_types {given!r}: there is no such format; there are {', '.join(FORMATS)}")
    return fmt


def plan_of(given: Any) -> Plan | None:
    """A plan, or the file of one."""
    if given is None or isinstance(given, Plan):
        return given
    if not isinstance(given, (str, os.PathLike)):
        raise InputError(f"plan {given!r} is neither a plan nor the path of one")
    return read_plan(Path(given))


def device_named(given: Any) -> Device:
    if given == "cuda":
        return "cuda"
    if given == "cpu":
        return "cpu"
    raise InputError(f"--device {given}: write cpu or cuda")


def checked_margin(given: Any) -> float | None:
    if given is not None and not 0 <= _number(given) < math.inf:
        raise InputError(f"--margin {given}: give 0 or more; 0.1 is a margin of 10%")
    return None if given is None else _number(given)


def checked_max_runs(given: Any) -> float | None:
    if given is not None and not _number(given) > 0:
        raise InputError(f"--max-runs {given}: give a number of model runs above 0, such as 40")
    return None if given is None else _number(given)


def checked_time_limit(given: Any) -> float:
    if not 0 < _number(given) < math.inf:
        raise InputError(f"time_limit_s {given!r}: give a number of seconds above 0")
    return _number(given)


def _number(given: Any) -> float:
    return float(given) if isinstance(given, Real) else math.nan
