"""What every engine builder takes and gives back, whichever compiler stands behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from halfwise.core.errors import InputError

__all__ = [
    "BuildError",
    "BuildRequest",
    "BuildResult",
    "Builder",
    "Failure",
    "InputProfile",
    "Profiles",
    "Refusal",
    "Typing",
    "installed",
    "lines_of",
    "normalised",
    "profiles_from_samples",
]

Typing = Literal["strong", "weak"]
Shape = tuple[int, ...]
Failure = Literal["refused", "crashed", "timeout", "failed"]

# An integer input of at most this many values may be a shape tensor, whose values the compiler must know a range of.
_MOST_SHAPE_VALUES = 64


@dataclass(frozen=True)
class InputProfile:
    """The range of one input: least, most common and greatest shape.

    `values` holds the same three for the contents, where the input is small and integer: a compiler that takes the
    input for a shape tensor needs them instead of the shapes.
    """

    min: Shape
    opt: Shape
    max: Shape
    values: tuple[Shape, Shape, Shape] | None = None


Profiles = Mapping[str, "InputProfile | tuple[Sequence[int], Sequence[int], Sequence[int]]"]


@dataclass(frozen=True)
class BuildRequest:
    """What to build. A backend that cannot honour a field says so in an error or in the result's notes."""

    model_path: Path
    profiles: Mapping[str, InputProfile] = field(default_factory=dict)
    time_limit_s: float = 600.0
    engine_path: Path | None = None
    log_path: Path | None = None
    layer_info_path: Path | None = None
    compute_capabilities: tuple[str, ...] = ()  # "8.6"; none means the compiler's own default
    typing: Typing = "strong"
    fp32_nodes: tuple[str, ...] = ()  # weak typing: ONNX nodes whose layers are constrained to FP32
    tf32: bool = True
    arguments: tuple[str, ...] = ()  # of a command-line builder, handed on as they are


@dataclass(frozen=True)
class Refusal:
    """The compiler's own reason for refusing a model; node and operator are empty where it names none.

    `unknown`: it knows the operator in no form.
    """

    node: str
    operator: str
    message: str
    unknown: bool = False

    def __str__(self) -> str:
        if not self.node and not self.operator:
            return self.message
        return f"node {self.node!r} ({self.operator}): {self.message}"


@dataclass(frozen=True)
class BuildResult:
    """What a build gave. The log stays on disk; `log_lines` streams it."""

    backend: str  # "tensorrt-rtx", "tensorrt" or "trtexec"
    version: str
    seconds: float
    log_path: Path
    engine_path: Path | None
    engine_bytes: int
    kernels: tuple[str, ...]  # the compiled layer list, one line of the log each
    node_layers: Mapping[str, tuple[str, ...]]  # ONNX node -> layers of the network it was parsed into
    layer_info_path: Path | None = None
    constrained: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # weak typing: node -> layers set to FP32
    unmatched: tuple[str, ...] = ()  # weak typing: nodes asked for that have no layer of floating point
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def log_lines(self) -> Iterator[str]:
        return lines_of(self.log_path)


class BuildError(InputError):
    """No engine came out: the compiler refused the model, crashed, hung or failed. The text is one line for people."""

    def __init__(
        self,
        message: str,
        *,
        failure: Failure,
        log_path: Path,
        log_tail: tuple[str, ...] = (),
        refusals: tuple[Refusal, ...] = (),
    ) -> None:
        super().__init__(message)
        self.failure = failure
        self.log_path = log_path
        self.log_tail = log_tail
        self.refusals = refusals


class Builder(Protocol):
    """What every builder is: `rtx.build_request`, `tensorrt.build_request`, `trtexec_process.build_request`."""

    def __call__(self, request: BuildRequest) -> BuildResult: ...


def installed(modules: Iterable[str]) -> bool:
    """Whether any of these Python modules is installed; asks without importing one."""
    return any(find_spec(name) is not None for name in modules)


def lines_of(log_path: Path) -> Iterator[str]:
    """The lines of a log, streamed. Only a newline ends one: the separators in TensorRT's metadata do not."""
    with log_path.open(encoding="utf-8", errors="replace", newline="\n") as log:
        for line in log:
            yield line.rstrip("\r\n")


def normalised(profiles: Profiles | None) -> dict[str, InputProfile]:
    """Profiles as the builders take them. A plain triple serves as shapes and, for a shape tensor, as values."""
    result: dict[str, InputProfile] = {}
    for name, given in (profiles or {}).items():
        if isinstance(given, InputProfile):
            profile = given
        else:
            if len(given) != 3:
                raise InputError(f"profile of input {name!r}: give three shapes (min, opt, max), not {len(given)}")
            least, usual, most = (tuple(int(size) for size in shape) for shape in given)
            profile = InputProfile(least, usual, most, (least, usual, most))
        _check(name, profile)
        result[name] = profile
    return result


def profiles_from_samples(samples: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, InputProfile]:
    """The least, usual and greatest shape of every input over the samples, and of small integer values too.

    The usual ones are those of one sample, as far as can be the most common: a mask is as long as cache and tokens are.
    """
    if not samples:
        raise InputError("no samples to take input shapes from: give at least one")
    profiles: dict[str, InputProfile] = {}
    usual = _usual(samples)
    for name in samples[0]:
        arrays = [np.asarray(sample[name]) for sample in samples if name in sample]
        if len(arrays) < len(samples):
            raise InputError(f"input {name!r} is missing from {len(samples) - len(arrays)} of {len(samples)} samples")
        if len({array.ndim for array in arrays}) > 1:
            raise InputError(f"input {name!r} has samples of different rank: {sorted({a.ndim for a in arrays})}")
        shapes = _range_of([array.shape for array in arrays], usual)
        profiles[name] = InputProfile(*shapes, values=_values(arrays, usual))
    return profiles


def _usual(samples: Sequence[Mapping[str, NDArray[Any]]]) -> int:
    """The sample whose shapes are the most common together, and one by one where each is alone."""
    shapes = [tuple((name, np.shape(array)) for name, array in sample.items()) for sample in samples]
    together, alone = Counter(shapes), Counter(each for sample in shapes for each in sample)
    return max(range(len(shapes)), key=lambda at: (together[shapes[at]], sum(alone[each] for each in shapes[at]), -at))


def _values(arrays: Sequence[NDArray[Any]], usual: int) -> tuple[Shape, Shape, Shape] | None:
    first = arrays[0]
    same_shape = len({array.shape for array in arrays}) == 1
    if not same_shape or first.size > _MOST_SHAPE_VALUES or first.dtype.kind not in "iu":
        return None
    return _range_of([tuple(int(value) for value in array.reshape(-1)) for array in arrays], usual)


def _range_of(rows: Sequence[Shape], usual: int) -> tuple[Shape, Shape, Shape]:
    return tuple(map(min, zip(*rows, strict=True))), rows[usual], tuple(map(max, zip(*rows, strict=True)))


def _check(name: str, profile: InputProfile) -> None:
    for what, rows in (("shapes", (profile.min, profile.opt, profile.max)), ("values", profile.values)):
        if rows is None:
            continue
        least, usual, most = rows
        if not len(least) == len(usual) == len(most):
            raise InputError(f"profile of input {name!r}: min, opt and max {what} differ in length")
        if any(not low <= middle <= high for low, middle, high in zip(least, usual, most, strict=True)):
            raise InputError(
                f"profile of input {name!r}: {what} must satisfy min <= opt <= max, got {least}, {usual}, {most}"
            )
