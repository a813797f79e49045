"""Keeps a Cast from standing between a Transpose and a product where ONNX Runtime ends in a half-made node.

Its fusion of a Transpose into a product swaps the two for a Cast between them, before it knows whether it can fuse.
Where a Transpose moves the first axis behind the others and the other factor has two dimensions, it cannot, and leaves
the new Cast without a version: the CPU provider crashes, the CUDA provider finds no kernel ("node_version: -1"). Seen
with 1.31. With the Transpose in the product's format the Cast stands in front of it, and nothing is swapped. The same
holds for an operator past which the Transpose may be moved before (`moved_transposes`).

The CPU provider has no product in FP16 and puts a Cast of its own there, where what the Transpose reads was moved or
narrowed, or computed by a kernel that it has in FP16. `turned_products` spares it that.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.deploy.onnxruntime.adjustable import Adjustable, Formats
from halfwise.deploy.onnxruntime.moved_transposes import moves_the_first_axis, turned_values
from halfwise.model.contrib.kernels import cpu_takes
from halfwise.model.contrib.schemas import DOMAIN
from halfwise.model.moving import only_moves
from halfwise.precision.assignment import Assignment
from halfwise.precision.decision import Adjustment
from halfwise.precision.plan import PlannedNode

__all__ = ["adjust_transposes", "cannot_fuse", "cpu_crash_note", "cpu_crash_pairs", "crash_note", "crashing_optimizers"]

_FUSION = "MatmulTransposeFusion"
_PRODUCTS = (("MatMul", ""), ("FusedMatMul", DOMAIN))


def adjust_transposes(may: Adjustable, start: Adjustment) -> Adjustment:
    """What hands values to such a product in the product's format, where the user lets it.

    What products in both formats read is in FP32, which loses nothing. What may not be narrowed takes its products
    along: a model that is not loaded is worth less than one with a node more in FP32.
    """
    formats: Formats = start.decision.formats
    added: list[PlannedNode] = []
    products: dict[ir.Node, list[ir.Node]] = {}
    for maker, product in _apart(may.assignment(formats)):
        products.setdefault(maker, []).append(product)
    for maker, readers in products.items():
        wide = [product for product in readers if may.is_wide(product, formats)]
        narrowed = None if wide else may.narrowed((maker,), formats)
        if narrowed is not None and may.holds(may.assignment(narrowed)):
            formats = narrowed
            continue
        beside = [product for product, slot in maker.outputs[0].uses() if cannot_fuse(product, slot)]
        changed = may.widened((maker, *beside), formats) or may.widened((maker, *wide), formats)
        if changed is None:
            continue
        because = Note.of(NoteKind.KEEPS_TRANSPOSE_LOADABLE, (wide or readers)[0].name)
        fresh = [node for node in changed if node not in formats]
        added += [PlannedNode(n.name or "", n.op_type, Format.FP32, Reason.COMPILER, (because,)) for n in fresh]
        formats = changed
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


def crashing_optimizers(assignment: Assignment, *, on_cpu: bool) -> tuple[str, ...]:
    """What the CPU provider is to load a model without, to survive it. `on_cpu`: the target may be that provider, whose
    crashes are to be seen where nothing tells of them beforehand."""
    return (_FUSION,) if not on_cpu or crash_note(assignment) or cpu_crash_note(assignment) else ()


def cpu_crash_pairs(assignment: Assignment) -> Iterator[tuple[ir.Node, ir.Node]]:
    """Each Transpose and the product, between which the CPU provider puts a Cast of its own."""
    for transpose, product, slot in _pairs(assignment):
        if assignment.read(product, slot) is Format.FP16 and _is_left_in_fp16(assignment, transpose):
            yield transpose, product


def _is_left_in_fp16(assignment: Assignment, transpose: ir.Node) -> bool:
    """Whether the CPU provider keeps what it reads in FP16: it has been moved there, narrowed, or computed by one of
    its few kernels in FP16, as of norms."""
    value = transpose.inputs[0]
    source = value.producer() if value is not None else None
    if value is None or assignment.read(transpose, 0) is not Format.FP16:
        return False
    if source is None or only_moves(source) or assignment.stored(value) is not Format.FP16:
        return True
    return cpu_takes(source.op_type, source.domain, Format.FP16)


def _apart(assignment: Assignment) -> Iterator[tuple[ir.Node, ir.Node]]:
    """What hands values to products in another format, where a Transpose stands or may come to stand."""
    turned = turned_values(assignment.sites.model)
    for product in assignment.sites.model.nodes:
        for slot, value in enumerate(product.inputs):
            if value in turned and cannot_fuse(product, slot):
                maker = value.producer()
                if maker is not None and assignment.read(product, slot) is not assignment.stored(value):
                    yield maker, product


def _pairs(assignment: Assignment) -> Iterator[tuple[ir.Node, ir.Node, int]]:
    """The Transposes of the kind, the products that read them, and where."""
    for product in assignment.sites.model.graph:
        for slot, value in enumerate(product.inputs):
            transpose = value.producer() if value is not None else None
            if transpose is not None and moves_the_first_axis(transpose) and cannot_fuse(product, slot):
                yield transpose, product, slot


def cannot_fuse(product: ir.Node, slot: int) -> bool:
    """Whether a Transpose of the kind in this slot is not fused into the product, or may not be."""
    if (product.op_type, product.domain) not in _PRODUCTS or len(product.inputs) != 2:
        return False
    this, other = product.inputs[slot], product.inputs[1 - slot]
    return _dimensions(other) <= 2 or _dimensions(this) != _dimensions(other)


def _dimensions(value: ir.Value | None) -> int:
    """How many the value has; 2 where it is not known, which may be."""
    return len(value.shape) if value is not None and value.shape is not None else 2
