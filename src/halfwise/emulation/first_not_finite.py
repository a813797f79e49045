"""Where the FP32 model itself loses its last finite value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.answers import check_answers, only_not_finite
from halfwise.core.errors import InputError
from halfwise.core.metrics import is_float
from halfwise.core.notes import Note, NoteKind
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.store import Store
from halfwise.model.families import STEPS
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites

__all__ = ["first_not_finite", "lost_from", "told_where_not_finite"]

Array = NDArray[Any]


def told_where_not_finite(
    answers: Sequence[Mapping[str, Array]],
    notes: Sequence[Note],
    sites: Sites,
    stepper: Stepper,
    feed: Mapping[str, Array],
) -> tuple[Note, ...]:
    """What is said of answers that hold no finite value although the inputs do; refuses all that says nothing.

    Infinities and NaN can be compared by their places, and a mask or a model that fails has no others.
    """
    if not only_not_finite(answers) or any(note.kind is NoteKind.SAMPLES_NOT_FINITE for note in notes):
        check_answers(answers, notes)
        return ()
    node = first_not_finite(sites, stepper, feed)
    name, op = (node.name or "", node.op_type) if node is not None else ("", "")
    return (Note.of(NoteKind.NOTHING_FINITE_FROM, name, op=op),)


def lost_from(sites: Sites, stepper: Stepper, feed: Mapping[str, Array], notes: Sequence[Note]) -> str:
    """For a refusal: the node behind which nothing is finite, of inputs that are finite themselves."""
    if any(note.kind is NoteKind.SAMPLES_NOT_FINITE for note in notes):
        return ""
    node = first_not_finite(sites, stepper, feed)
    return f", from node {node.name!r} ({node.op_type}) on" if node is not None else ""


def first_not_finite(sites: Sites, stepper: Stepper, feed: Mapping[str, Array]) -> ir.Node | None:
    """The node from which on, up to an output, no result holds a finite value; as far as the model runs by nodes."""
    lost: set[ir.Node] = set()
    with suppress(InputError):
        for step in stepper.walk(Store(stepper.emulator, Assignment(sites, {}), feed)):
            floats = [a for a in step.outputs.values() if isinstance(a, np.ndarray) and is_float(a.dtype) and a.size]
            if floats and not any(np.isfinite(array).any() for array in floats):
                lost.add(step.node)
    ends = (value.producer() for value in sites.model.graph.outputs)
    node = next((node for node in ends if node in lost), None)
    while node is not None and (before := next((each for each in _made_from(node) if each in lost), None)):
        node = before
    return node


def _made_from(node: ir.Node) -> Iterator[ir.Node]:
    """The nodes that made its inputs; of an integer, also what it was rounded from, which tells what was lost."""
    for before in node.predecessors():
        yield before
        if before.op_type in STEPS and not before.domain:
            yield from before.predecessors()
