"""What one kernel tells of one node in it: the node's type, how sure that is, and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Literal

from halfwise.compiler.kernel_names import (
    cast_count,
    chooses,
    fused_attention,
    hides_steps,
    may_hold,
    multiplies,
    narrow_operands,
    place_of,
    tactic_math,
)
from halfwise.compiler.layers_fields import FLOATS, NARROW, QUANTISED, Layer, LayerTensor
from halfwise.core.notes import Note, NoteKind
from halfwise.model.families import PRODUCTS

__all__ = ["MIXED", "UNKNOWN", "Coverage", "Verdict", "floats", "in_kernel", "of_product"]

Coverage = Literal["exact", "mixed", "region-only", "folded", "unknown"]
Verdict = tuple[str, Coverage, Note | None]  # precision, coverage, and what is to be said of them

UNKNOWN = "unknown"
MIXED = "mixed"


def in_kernel(op: str, weight: int, declared: str | None, kernel: Layer) -> Verdict:
    """What a kernel tells of a node of this operator, FP32 weight (its size) and type, if the model binds to one."""
    reads = floats((*kernel.inputs, *_sized(kernel.constants)))
    writes = floats(kernel.outputs)
    if kernel.weights in FLOATS:
        reads.add(kernel.weights)
    types = reads | writes
    if not kernel.inputs and not kernel.outputs:
        return UNKNOWN, "unknown", Note.of(NoteKind.KERNEL_UNTYPED)
    if not types:
        return _not_float(kernel)
    if any(tensor.dtype == UNKNOWN for tensor in (*kernel.inputs, *kernel.outputs)):
        return UNKNOWN, "unknown", Note.of(NoteKind.KERNEL_PARTLY_TYPED, types=_named(types))
    fused = fused_attention(kernel.name)
    if fused:
        return _in_attention(fused, types, declared)
    operands = narrow_operands(kernel.tactic)
    if operands is not None and types == {"fp32"}:
        return MIXED, "mixed", Note.of(NoteKind.MULTIPLIES_NARROW, operands=operands, tactic=kernel.tactic)
    casts = cast_count(kernel.name)
    if declared == "fp32" and (narrow := _narrowed(weight, kernel)):
        return narrow, "exact", Note.of(NoteKind.WEIGHT_NARROWED, stated=declared, found=narrow)
    if len(types) == 1 and not _may_cast_unseen(kernel, casts, next(iter(types)) == declared):
        return _of_one_type(op, next(iter(types)), declared, kernel)
    if hides_steps(kernel.name) and casts and declared in FLOATS:
        told = Note.of(NoteKind.AS_MODEL_STATES_LONG, reads=_named(reads), writes=_named(writes))
        return declared, "mixed", told
    return _beside_casts(op, declared, kernel, reads, writes)


def of_product(verdicts: Sequence[Verdict], kernels: Sequence[Layer]) -> list[Verdict]:
    """What the kernels of a product tell: one that is shown to multiply in a narrow type tells more than the others.

    Those pad, move and cast its operands, or add its bias.
    """
    shown: list[Verdict] = []
    for verdict, kernel in zip(verdicts, kernels, strict=True):
        precision, coverage, note = verdict
        by_weight = note is not None and note.kind is NoteKind.WEIGHT_NARROWED
        if coverage == "exact" and precision in NARROW and (by_weight or multiplies(kernel.name)):
            shown.append(verdict)
    return shown or list(verdicts)


def _may_cast_unseen(kernel: Layer, casts: int, as_stated: bool) -> bool:
    """Whether values in a kernel of one type may have another: by two casts, or by one beside a choice."""
    if not casts:
        return False
    if casts > 1 or hides_steps(kernel.name):
        return True
    choice = chooses(kernel.name) or any(t.dtype not in FLOATS | QUANTISED for t in (*kernel.inputs, *kernel.outputs))
    return choice and not as_stated


def _of_one_type(op: str, only: str, declared: str | None, kernel: Layer) -> Verdict:
    if declared not in FLOATS or only == declared:
        math = tactic_math(kernel.tactic)
        told = math and Note.of(NoteKind.TACTIC_MATH, operand=math.operand, accumulator=math.accumulator)
        return only, "exact", told
    if hides_steps(kernel.name):
        return UNKNOWN, "unknown", Note.of(NoteKind.NAME_HIDES_STEPS, types=[only])
    if op not in PRODUCTS and not may_hold(op, kernel.name):
        return UNKNOWN, "unknown", Note.of(NoteKind.STEP_NOT_SHOWN, types=[only])
    return only, "exact", Note.of(NoteKind.STATED_OTHERWISE, stated=declared, found=only)


def _narrowed(weight: int, kernel: Layer) -> str | None:
    """The narrow type in which a kernel reads a weight that the model has in FP32; None where it may be another's."""
    found = {tensor.dtype for tensor in kernel.constants if weight > 1 and prod(tensor.shape) == weight}
    return found.pop() if len(found) == 1 and found <= NARROW else None


def _beside_casts(op: str, declared: str | None, kernel: Layer, reads: set[str], writes: set[str]) -> Verdict:
    """The same in a kernel that casts or that reads and writes several types, by where its casts lie."""
    types, casts, place = reads | writes, cast_count(kernel.name), place_of(op, kernel.name)
    # A step of that name may be another node's, but a product's.
    certain = not chooses(kernel.name) and (declared not in FLOATS or op in PRODUCTS)
    if place == "before" and len(reads) == 1 and (certain or declared in reads):
        return next(iter(reads)), "exact", Note.of(NoteKind.BEFORE_CASTS)
    if place == "after" and len(writes) == 1 and (certain or declared in writes):
        return next(iter(writes)), "exact", Note.of(NoteKind.AFTER_CASTS)
    read, wrote = _named(reads), _named(writes)
    if declared in FLOATS and declared in types and not casts:
        return declared, "mixed", Note.of(NoteKind.AS_MODEL_STATES, reads=read, writes=wrote)
    if declared in FLOATS and casts:
        return declared, "mixed", Note.of(NoteKind.AS_MODEL_STATES_CASTS, reads=read, writes=wrote, casts=casts)
    if place == "inside" and len(types) == 1 and casts == 2 and types != {"fp32"}:
        return "fp32", "mixed", Note.of(NoteKind.BETWEEN_CASTS, reads=read, writes=wrote)
    if casts:
        return MIXED, "mixed", Note.of(NoteKind.CASTS_UNPLACED, reads=read, writes=wrote, casts=casts)
    return MIXED, "mixed", Note.of(NoteKind.COMPUTES_UNSEEN, reads=read, writes=wrote)


def _not_float(kernel: Layer) -> Verdict:
    types = {tensor.dtype for tensor in (*kernel.inputs, *kernel.outputs)} - {UNKNOWN}
    if len(types) == 1:
        return types.pop(), "exact", None
    if types:
        return MIXED, "mixed", Note.of(NoteKind.READS_AND_WRITES, types=_named(types))
    return UNKNOWN, "unknown", Note.of(NoteKind.KERNEL_UNTYPED)


def _in_attention(fused: str, types: set[str], declared: str | None) -> Verdict:
    note = Note.of(NoteKind.IN_ATTENTION, kernel=fused, types=_named(types))
    only = next(iter(types)) if len(types) == 1 else MIXED
    return (UNKNOWN if declared in FLOATS and declared not in types else only), "mixed", note


def floats(tensors: Iterable[LayerTensor]) -> set[str]:
    """The types that stand for real values, quantised ones too."""
    return {tensor.dtype for tensor in tensors} & (FLOATS | QUANTISED)


def _sized(constants: Sequence[LayerTensor]) -> tuple[LayerTensor, ...]:
    """Constants but for single values: a matrix kernel's alpha and beta are Float whatever it computes in."""
    return tuple(tensor for tensor in constants if any(size != 1 for size in tensor.shape))


def _named(types: Iterable[str]) -> list[str]:
    return sorted(types) or ["none"]
