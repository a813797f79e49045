"""What a target does not read, before anything is searched: operators of ONNX Runtime's own and of `ai.onnx.ml` are
written out or refused, some of ONNX's are written out, biases and other constants are stored as it reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import onnx_ir as ir

from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.targets import Target, Typing
from halfwise.core.wording import listed
from halfwise.model.contrib.decompose import WRITTEN, is_own
from halfwise.model.contrib.kernels import narrow_kernel
from halfwise.model.contrib.schemas import BLOCKED_DOMAIN, is_known
from halfwise.model.contrib.steps_images import is_tensorflows_nearest
from halfwise.model.contrib.steps_traditional import TRADITIONAL, TRADITIONAL_DOMAIN
from halfwise.model.contrib.writer import dims_of, whole
from halfwise.model.families import INTEGER_ARITHMETIC
from halfwise.model.float_weights import first_unread, with_float_weights
from halfwise.model.model import Model
from halfwise.repair.block_weights import PACKED, with_block_weights, with_full_weights
from halfwise.repair.block_zero_points import with_centred_blocks
from halfwise.repair.integer_weights import with_integer_weights
from halfwise.repair.lower import Lowered, lowered
from halfwise.repair.needed_constants import with_needed_constants

__all__ = ["read_by"]


def read_by(target: Target, model: Model) -> tuple[Model, tuple[Note, ...]]:
    """The model as the target can read and narrow it; raises InputError where it holds what cannot be written out."""
    _refuse_blocked(model)
    reads = target.runtime.reads_own
    if reads is None:
        found = lowered(model, _without_kernel)
        note = Note.of(NoteKind.OWN_WITHOUT_KERNEL, ops=list(found.written))
        return found.model, (note,) if found.written else ()

    def unread(node: ir.Node) -> bool:
        if node.domain == TRADITIONAL_DOMAIN:  # trees, scalers and the like, of which TensorRT has no plugins
            return True
        return is_own(node) and node.op_type not in reads and (not node.domain or is_known(node.op_type, node.domain))

    packed = with_block_weights(model, _block_types(target), target.runtime.negative_scales)
    full = with_full_weights(packed.model, unread)
    found = _lowered(full.model, unread)
    if found.left:
        nodes = [model.node_by_name[name] for name in found.left if name in model.node_by_name]
        ops = list(dict.fromkeys(node.op_type for node in nodes))
        raise InputError(
            f"{target.title} does not read {listed(ops, 4, str)} (node {found.left[0]!r}), which only ONNX Runtime "
            f"has: {_instead(nodes)}, or use --target ort-cuda"
        )
    own = [op for op in dict.fromkeys((*packed.written, *full.written, *found.written)) if op not in TRADITIONAL]
    traditional = [op for op in found.written if op in TRADITIONAL]
    notes = [Note.of(NoteKind.OWN_NOT_READ, target.title, ops=own)] if own else []
    if traditional:
        notes.append(Note.of(NoteKind.STANDARD_NOT_READ, target.title, ops=traditional))
    grown = [node for node in packed.model.nodes if node.op_type in PACKED and unread(node)]
    if grown:
        notes.append(Note.of(NoteKind.QUANTISED_STORED, target.title, node=grown[0].name, count=len(grown)))
    if model.maps:
        notes.append(Note.of(NoteKind.MAPS_NOT_READ, target.title, tensors=[made.tensor for made in model.maps]))
    model = replace(found.model, maps=()) if found.model.maps else found.model
    model, told = _standard_read_by(target, model)
    model, stored = _quantised_read_by(target, model)
    return model, (*notes, *told, *stored)


def _lowered(model: Model, unread: Callable[[ir.Node], bool]) -> Lowered:
    """As often as more becomes known: behind an operator of `ai.onnx.ml` shapes are, once it is written out."""
    found = lowered(model, unread)
    while found.left and found.written:
        more = lowered(found.model, unread)
        if not more.written:
            break
        found = Lowered(more.model, tuple(dict.fromkeys((*found.written, *more.written))), more.left)
    return found


def _instead(nodes: Sequence[ir.Node]) -> str:
    """What to give instead of a model with these nodes, by who writes them."""
    ops = [node.op_type for node in nodes]
    if ops and all(op.startswith("QLinear") or op == "QGemm" for op in ops):
        return "quantise it as QuantFormat.QDQ, not QOperator"
    if any(node.domain == TRADITIONAL_DOMAIN for node in nodes):
        return "give the part of the model without it (onnx.utils.extract_model)"
    if any(op.startswith("DynamicQuantize") for op in ops):
        return "give the model before quantize_dynamic"
    if all(op in ("MatMulBnb4", "QMoE") for op in ops):
        return "give the model before it was quantised"
    return "export the model without ONNX Runtime's optimizer and onnxruntime-genai"


def _standard_read_by(target: Target, model: Model) -> tuple[Model, tuple[Note, ...]]:
    """With operators of ONNX's written out that the target does not read, as far as their steps are known."""
    unread = {*target.runtime.unread, *target.unread_operators}
    model = model if target.runtime.folds_constants else with_needed_constants(model)
    found = lowered(model, lambda node: not unread.isdisjoint(_forms(node)))
    notes = []
    if found.written:
        notes.append(Note.of(NoteKind.STANDARD_NOT_READ, target.title, ops=list(found.written)))
    if found.left:
        notes.append(Note.of(NoteKind.NOT_WRITTEN_OUT, target.title, nodes=list(found.left)))
    unstable = target.runtime.unstable
    stable = lowered(found.model, lambda node: not node.domain and node.op_type in unstable)
    if stable.written:
        notes.append(Note.of(NoteKind.STANDARD_OVERFLOWS, target.title, ops=list(stable.written)))
    written = (*found.written, *stable.written)
    return with_needed_constants(stable.model) if written else model, tuple(notes)


def _forms(node: ir.Node) -> Iterator[str]:
    """What a target may not read of a node: its operator, or that in this form."""
    if node.domain or node.op_type not in WRITTEN:
        return
    yield node.op_type
    if node.op_type == "Resize" and whole(node, "antialias"):
        yield "Resize with antialias"
    if node.op_type == "Resize" and is_tensorflows_nearest(node):
        yield "Resize to TensorFlow's nearest place"
    if node.op_type == "STFT" and (dims_of(node, 0) or (1,))[-1] == 2:
        yield "STFT of complex numbers"


def _quantised_read_by(target: Target, model: Model) -> tuple[Model, tuple[Note, ...]]:
    """With weights as floats that the target does not dequantise; what it does not read beside them is told."""
    types = target.runtime.quantised_types(target.span)
    if types is None:
        return model, ()
    if (node := next((node for node in model.nodes if node.op_type in INTEGER_ARITHMETIC), None)) is not None:
        return model, (Note.of(NoteKind.INTEGERS_NOT_READ, target.title, node=node.name, op=node.op_type),)
    model = with_integer_weights(model, types)
    model = with_centred_blocks(model, _block_types(target), target.runtime.negative_scales)
    found = with_float_weights(model, types, target.runtime.negative_scales)
    if found.stored:
        first, count = found.stored[0], len(found.stored)
        return found.model, (Note.of(NoteKind.QUANTISED_STORED, target.title, node=first, count=count),)
    unread = first_unread(found.model, types)
    if unread is None:
        return found.model, ()
    return found.model, (Note.of(NoteKind.QUANTISED_NOT_READ, target.title, node=unread.name, types=list(types)),)


def _block_types(target: Target) -> tuple[str, ...]:
    """None under weak typing, where types are not the model's alone."""
    return target.runtime.block_types(target.span) if target.typing is Typing.STRONG else ()


def _without_kernel(node: ir.Node) -> bool:
    return is_own(node) and is_known(node.op_type, node.domain) and not _narrows(node)


def _narrows(node: ir.Node) -> bool:
    return narrow_kernel(node.op_type, node.domain, Format.FP16)


def _refuse_blocked(model: Model) -> None:
    node = next((node for node in model.nodes if node.domain == BLOCKED_DOMAIN), None)
    if node is not None:
        raise InputError(
            f"node {node.name!r} works in the blocked layout of one CPU ({BLOCKED_DOMAIN}), which ONNX Runtime's "
            "optimizer writes at ORT_ENABLE_ALL: give the model before it, or one written at ORT_ENABLE_EXTENDED"
        )
