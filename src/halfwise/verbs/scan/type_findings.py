"""Findings about types and operators: what is narrow, double, quantised or unknown already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import onnx_ir as ir
from msgspec import structs

from halfwise.core.english.finding import finding
from halfwise.core.finding import Finding, Where
from halfwise.core.notes import Note, NoteKind
from halfwise.model.contrib.schemas import is_known
from halfwise.model.families import INTEGER_ARITHMETIC, QUANTISERS
from halfwise.model.fp32_model import typed_nodes
from halfwise.model.known_operators import not_run, quantises
from halfwise.model.mistyped import mistyped
from halfwise.model.model import Model
from halfwise.model.patterns import Pattern

__all__ = ["type_findings"]

_QUANTISED = QUANTISERS | INTEGER_ARITHMETIC
_LAYER_NORM_SINCE = 17
_MISTYPED = (
    "no runtime loads the file: ONNX defines no {} with the types of node {!r}. Convert the FP32 model again, or give "
    "it to `halfwise fix`"
)
_BEFORE = "give `halfwise fix` the model before it was quantised: ONNX Runtime cannot run this one"


def type_findings(model: Model, patterns: Sequence[Pattern]) -> list[Finding]:
    """The findings HW301 to HW305, one each at most."""
    return [
        *_narrow(model.given or model),
        *_double(model),
        *_foreign(model),
        *_quantised(model),
        *_old_opset(model, patterns),
    ]


def _narrow(model: Model) -> Iterator[Finding]:
    typed = typed_nodes(model)
    if not typed.narrow:
        return
    types = Counter(out.dtype for node in model.nodes for out in node.outputs)
    half, brain, full = types[ir.DataType.FLOAT16], types[ir.DataType.BFLOAT16], types[ir.DataType.FLOAT]
    numbers = {"fp16": half, "bf16": brain, "fp32": full, "typed": typed.narrow, "of": typed.nodes}
    formats = " or ".join(fmt.value.upper() for fmt in typed.formats)
    note = Note.of(NoteKind.TYPES_NARROW, typed=typed.narrow, nodes=typed.nodes, formats=formats)
    found = finding("HW301", Where("model", "types"), note, numbers)
    wrong = mistyped(model)
    yield found if wrong is None else structs.replace(found, remedy=_MISTYPED.format(wrong.op_type, wrong.name))


def _double(model: Model) -> Iterator[Finding]:
    nodes = [node for node in model.nodes if any(out.dtype == ir.DataType.DOUBLE for out in node.outputs)]
    if nodes:
        note = Note.of(NoteKind.TYPES_DOUBLE, count=len(nodes))
        yield finding("HW302", Where("node", nodes[0].name or ""), note, {"count": len(nodes)})


def _foreign(model: Model) -> Iterator[Finding]:
    """Those that nothing here runs, or where there are none, those of other domains."""
    missing = not_run(model.nodes)
    nodes = missing or [node for node in model.nodes if node.domain and not is_known(node.op_type, node.domain)]
    if nodes:
        ops = Counter(f"{node.domain}:{node.op_type}".removeprefix(":") for node in nodes)
        count, shown = len(nodes), [op for op, _ in ops.most_common()]
        note = Note.of(NoteKind.FOREIGN_NODES, count=count, ops=shown)
        if missing:
            note = Note.of(NoteKind.NODES_NOT_RUN, count=count, ops=shown)
        found = finding("HW303", Where("node", nodes[0].name or ""), note, {"count": count, "ops": dict(ops)})
        packed = missing and all(quantises(node.op_type) or node.op_type == "Cast" for node in missing)
        yield structs.replace(found, remedy=_BEFORE) if packed else found


def _quantised(model: Model) -> Iterator[Finding]:
    nodes = [node for node in model.nodes if node.op_type in _QUANTISED and not node.domain]
    if nodes:
        note = Note.of(NoteKind.QUANTISED_MODEL, count=len(nodes))
        yield finding("HW304", Where("node", nodes[0].name or ""), note, {"count": len(nodes)})


def _old_opset(model: Model, patterns: Sequence[Pattern]) -> Iterator[Finding]:
    count = sum(1 for pattern in patterns if pattern.kind == "layernorm")
    if count and model.opset() < _LAYER_NORM_SINCE:
        note = Note.of(NoteKind.OLD_OPSET, opset=model.opset(), count=count, since=_LAYER_NORM_SINCE)
        numbers = {"opset": model.opset(), "since": _LAYER_NORM_SINCE, "count": count}
        yield finding("HW305", Where("model", "opset"), note, numbers)
