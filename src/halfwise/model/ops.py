"""What is known of operators: which slots may hold FP16, and whose results need no rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import onnx
import onnx.defs
import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.model.contrib.kernels import FP32_SLOTS, narrow_kernel
from halfwise.model.contrib.schemas import RuntimeSchema, is_known, runtime_schema
from halfwise.model.families import INTEGER_ARITHMETIC, QUANTISERS
from halfwise.model.moving import FROM_FIRST, Move, movers
from halfwise.model.operator_slots import SHAPE_READERS

__all__ = [
    "BODIES",
    "CLOSED",
    "CONTROL_FLOW",
    "DTYPE_ATTRIBUTES",
    "NARROW_SCALES",
    "RANDOM",
    "TYPE_ATTRIBUTES",
    "WIDENED_ATTRIBUTES",
    "SlotRule",
    "holds_scale",
    "slot_rule",
    "takes_any_format",
]


def _words(text: str) -> list[str]:
    return text.split()


# Operators whose result is a value of a format whenever their inputs are: nothing is left to round. Operators that
# may bring in a value of their own (Pad, Clip and Dropout with attributes, ConstantOfShape) are not among them.
CLOSED = (
    FROM_FIRST
    | movers(Move.ZEROS | Move.JOIN)
    | frozenset(
        "Relu Neg Abs Max Min MaxPool GlobalMaxPool ReduceMax ReduceMin TopK Sign Floor Ceil Round Hardmax".split()
    )
)

# Slots that take a tensor in whatever format it is kept: nothing is computed with it, and widening is exact.
_ANY_FORMAT = {**dict.fromkeys(SHAPE_READERS, 0), "Cast": 0, "CastLike": 0}

CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})
BODIES = CONTROL_FLOW - {"SequenceMap"}  # what they read and give may be narrow: in and out of their graphs, too

# Operators that stay as they are, and why.
RANDOM = _words("RandomNormal RandomNormalLike RandomUniform RandomUniformLike Multinomial Bernoulli")
_CONTAINERS = _words(
    """SequenceConstruct SequenceEmpty SequenceInsert SequenceErase SequenceAt SequenceLength SplitToSequence
    ConcatFromSequence Optional OptionalGetElement OptionalHasElement"""
)
_TABLES = _words("EyeLike HannWindow HammingWindow BlackmanWindow MelWeightMatrix")
NEVER_CONVERTED = {
    "BitCast": Note.of(NoteKind.READS_BITS),
    "MeanVarianceNormalization": Note.of(NoteKind.FP32_DEFINITION),
    **dict.fromkeys(_TABLES, Note.of(NoteKind.TABLE)),
    **dict.fromkeys(RANDOM, Note.of(NoteKind.RANDOM)),
    **dict.fromkeys(INTEGER_ARITHMETIC, Note.of(NoteKind.QUANTISATION)),
    **dict.fromkeys(_CONTAINERS, Note.of(NoteKind.CONTAINER)),
}

# The same of ONNX Runtime's own operators: the first hold graphs.
_OWN_PINNED = {
    **dict.fromkeys(
        _words("BeamSearch GreedySearch Sampling WhisperBeamSearch"),
        Note.of(NoteKind.CONTROL_FLOW),
    ),
    **dict.fromkeys(_words("QuantizeLinear DequantizeLinear"), Note.of(NoteKind.QUANTISATION)),
}

NARROW_SCALES = 19  # the opset from which their scales may be narrow

# Slots that are parameters of an operator rather than data: left in FP32 where the schema lets them.
PARAMETER_SLOTS = {"Resize": {1, 2}, "Upsample": {1}, "Dropout": {1}, "OneHot": {0, 1}}

# Attributes that name the type of an output.
DTYPE_ATTRIBUTES = {
    "Cast": "to",
    "EyeLike": "dtype",
    "HannWindow": "output_datatype",
    "HammingWindow": "output_datatype",
    "BlackmanWindow": "output_datatype",
    "MelWeightMatrix": "output_datatype",
    "SequenceEmpty": "dtype",
    "RandomNormal": "dtype",
    "RandomUniform": "dtype",
    "RandomNormalLike": "dtype",
    "RandomUniformLike": "dtype",
    "Bernoulli": "dtype",
}

# The same, and those that may be left out.
WIDENED_ATTRIBUTES = {**DTYPE_ATTRIBUTES, "DequantizeLinear": "output_dtype"}

# All attributes of standard operators that name a float type, of an output or of what is computed within.
TYPE_ATTRIBUTES = frozenset(
    {*DTYPE_ATTRIBUTES.values(), "output_dtype", "precision", "softmax_precision", "stash_type"}
)


def holds_scale(op: str, slot: int, value: ir.Value | None) -> bool:
    """Whether an input is the scale of integers: no arithmetic on floats is done with it that could be narrower."""
    return op.startswith("QLinear") and slot > 0 and value is not None and value.is_initializer()


def takes_any_format(op: str, domain: str, slot: int) -> bool:
    """Whether an input is taken in whatever format it is kept."""
    return not domain and _ANY_FORMAT.get(op) == slot


@dataclass(frozen=True)
class SlotRule:
    """What an operator's schema allows for a narrow format; `why` is set where the whole node may not narrow.

    A formal slot is (whether it may narrow, its type variable); `free` says that an attribute names the type of the
    outputs, so that they need no input to follow.
    """

    inputs: tuple[tuple[bool, str], ...] = ()
    outputs: tuple[tuple[bool, str], ...] = ()
    variadic_inputs: bool = False
    variadic_outputs: bool = False
    free: bool = False
    why: Note | None = None

    def input(self, slot: int) -> tuple[bool, str]:
        return _at(self.inputs, slot, self.variadic_inputs)

    def output(self, slot: int) -> tuple[bool, str]:
        return _at(self.outputs, slot, self.variadic_outputs)


def _at(formal: tuple[tuple[bool, str], ...], slot: int, variadic: bool) -> tuple[bool, str]:
    if slot < len(formal):
        return formal[slot]
    return formal[-1] if formal and variadic else (False, "")


@lru_cache(maxsize=4096)
def slot_rule(op: str, domain: str, version: int, fmt: Format) -> SlotRule:
    """What the operator's schema allows for `fmt`."""
    if domain:
        own = runtime_schema(op, domain, version) if is_known(op, domain) else None
        return SlotRule(why=Note.of(NoteKind.FOREIGN_DOMAIN, domain)) if own is None else _own_rule(own, fmt)
    if op in CONTROL_FLOW - BODIES:
        return SlotRule(why=Note.of(NoteKind.CONTROL_FLOW))
    if op in NEVER_CONVERTED:
        return SlotRule(why=NEVER_CONVERTED[op])
    if op in QUANTISERS and version < NARROW_SCALES:
        return SlotRule(why=Note.of(NoteKind.QUANTISATION))
    try:
        schema = onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        own = runtime_schema(op, domain, version)
        return SlotRule(why=Note.of(NoteKind.NOT_IN_OPSET, op, version=version)) if own is None else _own_rule(own, fmt)
    allowed = {c.type_param_str: fmt.schema_type in c.allowed_type_strs for c in schema.type_constraints}
    pinned = PARAMETER_SLOTS.get(op, set())
    inputs = tuple(
        (allowed.get(p.type_str, False) and i not in pinned and not takes_any_format(op, domain, i), p.type_str)
        for i, p in enumerate(schema.inputs)
    )
    outputs = tuple((allowed.get(p.type_str, False), p.type_str) for p in schema.outputs)
    if op == "DequantizeLinear":  # since opset 23 a letter of its own, which the attribute or the scale decides
        outputs = ((outputs[0][0], inputs[1][1]),)
    if not any(ok for ok, _ in (*inputs, *outputs)):
        return SlotRule(why=Note.of(NoteKind.NO_NARROW_FORM, op, version=version, format=fmt.value.upper()))
    free = op in DTYPE_ATTRIBUTES or op in BODIES or op == "ConstantOfShape"
    return SlotRule(inputs, outputs, _variadic(schema.inputs), _variadic(schema.outputs), free)


def _own_rule(schema: RuntimeSchema, fmt: Format) -> SlotRule:
    """The same of an operator that only ONNX Runtime has: one of its providers must have a kernel, too."""
    if schema.op in _OWN_PINNED:
        return SlotRule(why=_OWN_PINNED[schema.op])
    pinned = FP32_SLOTS.get(schema.op, frozenset())
    inputs = tuple(
        (fmt.schema_type in schema.takes(p) and i not in pinned, p.type_str) for i, p in enumerate(schema.inputs)
    )
    outputs = tuple((fmt.schema_type in schema.takes(p), p.type_str) for p in schema.outputs)
    if not any(ok for ok, _ in (*inputs, *outputs)):
        why = Note.of(NoteKind.NO_NARROW_FORM, schema.op, version=schema.since, format=fmt.value.upper())
        return SlotRule(why=why)
    if not narrow_kernel(schema.op, schema.domain, fmt):
        return SlotRule(why=Note.of(NoteKind.NO_NARROW_KERNEL, schema.op, format=fmt.value.upper()))
    variadic, spread = (bool(formals) and formals[-1].variadic for formals in (schema.inputs, schema.outputs))
    return SlotRule(inputs, outputs, variadic, spread)


def _variadic(parameters: Sequence[onnx.defs.OpSchema.FormalParameter]) -> bool:
    return bool(parameters) and parameters[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic
