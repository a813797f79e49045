"""What is said of inputs that FP16 holds, but would not hold were they some times louder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.model.inputs.samples import Samples
from halfwise.precision.assignment import Assignment
from halfwise.search.overflows import OTHER_INPUTS

__all__ = ["input_headroom"]

Array = NDArray[Any]


def input_headroom(assignment: Assignment, samples: Samples) -> Iterator[Note]:
    """Of each input that is read narrow. A largest value that two samples share is a bound, and one magnitude beside 0
    is a mask's: neither is louder elsewhere."""
    if samples.origin == "synthetic":
        return
    for value in assignment.sites.model.graph.inputs:
        name, fmt = value.name or "", _narrowest(assignment, value)
        if fmt is None:
            continue
        sizes = [_finite_sizes(feed[name]) for feed in samples.all if name in feed]
        tops = [float(size.max(initial=0.0)) for size in sizes]
        top = max(tops, default=0.0)
        if fmt.max / OTHER_INPUTS < top <= fmt.max and tops.count(top) == 1 and not _is_mask(sizes, top):
            yield Note.of(NoteKind.INPUT_NEAR_LIMIT, name, top=top, factor=fmt.max / top, format=fmt.value.upper())


def _narrowest(assignment: Assignment, value: ir.Value) -> Format | None:
    """Of the formats in which the model takes an input or nodes read it; None where these are FP32."""
    given = {assignment.stored(value), *(assignment.read(node, slot) for node, slot in value.uses())}
    return min((fmt for fmt in given if fmt is not None and fmt.narrow), key=lambda fmt: fmt.max, default=None)


def _finite_sizes(array: Array) -> Array:
    return np.abs(array[np.isfinite(array)])


def _is_mask(sizes: Sequence[Array], top: float) -> bool:
    return all(bool(np.isin(size, (0.0, top)).all()) for size in sizes)
