"""Keeps a Cast from standing between a Transpose and a product where ONNX Runtime ends in a half-made node.

Its fusion of a Transpose into a product swaps the two for a Cast between them, before it knows whether it can fuse.
Where a Transpose moves the first axis behind the others and the other factor has two dimensions, it cannot, and leaves
the new Cast without a version: the CPU provider crashes, the CUDA provider finds no kernel ("node_version: -1"). Seen
with 1.31. With the Transpose in the product's format the Cast stands in front of it, and nothing is swapped.

The CPU provider has no product in FP16 and puts a Cast of its own there, where what the Transpose reads was moved or
narrowed and not computed in FP16. `turned_products` spares it that.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.deploy.onnxruntime.adjustable import Adjustable, Formats
from halfwise.model.moving import only_moves
from halfwise.precision.assignment import Assignment
from halfwise.precision.decision import Adjustment
from halfwise.precision.plan import PlannedNode

__all__ = ["adjust_transposes", "cpu_crash_note", "cpu_crash_pairs", "crash_note"]


def adjust_transposes(may: Adjustable, start: Adjustment) -> Adjustment:
    """Every Transpose of the kind in the format of its product, where the user lets it and the tolerance holds.

    Of one that products in both formats read, FP32 decides: that loses nothing, and what is left apart is said.
    """
    formats: Formats = start.decision.formats
    added: list[PlannedNode] = []
    products: dict[ir.Node, list[ir.Node]] = {}
    for transpose, product in _apart(may.assignment(formats)):
        products.setdefault(transpose, []).append(product)
    for transpose, readers in products.items():
        wide = [product for product in readers if may.is_wide(product, formats)]
        changed = may.widened((transpose,), formats) if wide else may.narrowed((transpose,), formats)
        if changed is None or not (wide or may.holds(may.assignment(changed))):
            continue
        formats = changed
        if wide:
            because = Note.of(NoteKind.KEEPS_TRANSPOSE_LOADABLE, wide[0].name)
            added.append(PlannedNode(transpose.name or "", "Transpose", Format.FP32, Reason.COMPILER, (because,)))
    return start.to(start.decision.with_formats(formats), added)


def crash_note(assignment: Assignment) -> Note | None:
    """What to say of a model that ONNX Runtime may not survive; None where it does."""
    found = next(_apart(assignment), None)
    if found is None:
        return None
    transpose, product = found
    return Note.of(NoteKind.ORT_MAY_CRASH, transpose.name, product=product.name)


def cpu_crash_note(assignment: Assignment) -> Note | None:
    """What to say of a model that the CPU provider may not survive, whatever the formats; None where it does."""
    for transpose, product in cpu_crash_pairs(assignment):
        return Note.of(NoteKind.ORT_CPU_MAY_CRASH, transpose.name, product=product.name)
    return None


def cpu_crash_pairs(assignment: Assignment) -> Iterator[tuple[ir.Node, ir.Node]]:
    """Each Transpose and the product, between which the CPU provider puts a Cast of its own."""
    for transpose, product, slot in _pairs(assignment):
        if assignment.read(product, slot) is Format.FP16 and _is_left_in_fp16(assignment, transpose):
            yield transpose, product


def _is_left_in_fp16(assignment: Assignment, transpose: ir.Node) -> bool:
    """Whether the CPU provider keeps what it reads in FP16: it has been moved there or narrowed, not computed."""
    value = transpose.inputs[0]
    source = value.producer() if value is not None else None
    if value is None or assignment.read(transpose, 0) is not Format.FP16:
        return False
    return source is None or only_moves(source) or assignment.stored(value) is not Format.FP16


def _apart(assignment: Assignment) -> Iterator[tuple[ir.Node, ir.Node]]:
    for transpose, product, slot in _pairs(assignment):
        if assignment.read(product, slot) is not assignment.stored(transpose.outputs[0]):
            yield transpose, product


def _pairs(assignment: Assignment) -> Iterator[tuple[ir.Node, ir.Node, int]]:
    """The Transposes of the kind, the products that read them, and where."""
    for product in assignment.sites.model.graph:
        if product.op_type != "MatMul" or product.domain or len(product.inputs) != 2:
            continue
        left, right = product.inputs
        for slot, (value, other) in enumerate(((left, right), (right, left))):
            transpose = value.producer() if value is not None else None
            if transpose is not None and _moves_the_first_axis(transpose) and _dimensions(other) <= 2:
                yield transpose, product, slot


def _moves_the_first_axis(node: ir.Node) -> bool:
    """Behind all others, or behind all but the last."""
    if node.op_type != "Transpose" or node.domain or "perm" not in node.attributes:
        return False
    order = tuple(node.attributes["perm"].as_ints())
    rest = tuple(range(1, len(order)))
    return len(order) > 2 and order in ((*rest, 0), (*rest[:-1], 0, rest[-1]))


def _dimensions(value: ir.Value | None) -> int:
    """How many the value has; 2 where it is not known, which may be."""
    return len(value.shape) if value is not None and value.shape is not None else 2
