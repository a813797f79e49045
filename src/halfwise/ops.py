"""What is known of operators: which slots may hold FP16, which only move values, which speak of shapes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import onnx
import onnx.defs

from halfwise.formats import Format

__all__ = ["CLOSED", "CONTROL_FLOW", "DTYPE_ATTRIBUTES", "MOVES", "SHAPE_READERS", "SlotRule", "shape_slots", "slot_rule"]

# Operators that hand values on without computing new ones: data movement and selection by position.
MOVES = frozenset(
    """Identity Reshape Transpose Squeeze Unsqueeze Flatten Slice Split Concat Gather GatherElements GatherND Expand
    Tile Pad DepthToSpace SpaceToDepth ReverseSequence ScatterElements ScatterND Scatter Cast CastLike ConstantOfShape
    Trilu Compress CenterCropPad Where OneHot EyeLike Dropout""".split()
)

# Operators whose result is a value of a format whenever their inputs are: nothing is left to round.
CLOSED = frozenset(
    """Identity Reshape Transpose Squeeze Unsqueeze Flatten Slice Split Concat Gather GatherElements GatherND Expand
    Tile DepthToSpace SpaceToDepth ReverseSequence Trilu Compress CenterCropPad Where OneHot
    Relu Neg Abs Max Min MaxPool GlobalMaxPool ReduceMax ReduceMin TopK Sign Floor Ceil Round""".split()
)

# Operators that look at a tensor's shape only and take it in whatever format it is kept.
SHAPE_READERS = frozenset({"Shape", "Size"})

CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})

# Random results cannot be compared; quantisation scales are parameters, not activations.
ISLANDS = {
    **dict.fromkeys(
        "RandomNormal RandomNormalLike RandomUniform RandomUniformLike Multinomial Bernoulli".split(),
        "its result is random",
    ),
    **dict.fromkeys(
        """QuantizeLinear DequantizeLinear DynamicQuantizeLinear QLinearConv QLinearMatMul ConvInteger
        MatMulInteger""".split(),
        "quantisation scales stay in FP32",
    ),
}

# Slots that are parameters of an operator rather than data: left in FP32 where the schema lets them.
PARAMETER_SLOTS = {"Resize": {1, 2}, "Upsample": {1}, "Dropout": {1}}

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

_SHAPE_SLOTS: dict[str, tuple[int, ...]] = {
    "Reshape": (1,),
    "Expand": (1,),
    "Slice": (1, 2, 3, 4),
    "Tile": (1,),
    "Pad": (1, 3),
    "Resize": (1, 2, 3),
    "Upsample": (1,),
    "ConstantOfShape": (0,),
    "Range": (0, 1, 2),
    "TopK": (1,),
    "OneHot": (1,),
    "Squeeze": (1,),
    "Unsqueeze": (1,),
    "Split": (1,),
    "CumSum": (1,),
    "Loop": (0,),
    "CenterCropPad": (1,),
    "Trilu": (1,),
    "NonMaxSuppression": (2,),
    "Col2Im": (1, 2),
    "MaxUnpool": (2,),
    "AffineGrid": (1,),
    "DFT": (1, 2),
}


def shape_slots(op: str) -> tuple[int, ...]:
    """The input slots that state a shape, an axis or a count."""
    if op.startswith("Reduce"):
        return (1,)
    return _SHAPE_SLOTS.get(op, ())


@dataclass(frozen=True)
class SlotRule:
    """Which formal slots of an operator may hold a narrow format; `why` is set where the whole node may not."""

    inputs: tuple[bool, ...]
    outputs: tuple[bool, ...]
    variadic_inputs: bool
    variadic_outputs: bool
    why: str | None = None

    def input(self, slot: int) -> bool:
        return _at(self.inputs, slot, self.variadic_inputs)

    def output(self, slot: int) -> bool:
        return _at(self.outputs, slot, self.variadic_outputs)


def _at(flags: tuple[bool, ...], slot: int, variadic: bool) -> bool:
    if slot < len(flags):
        return flags[slot]
    return bool(flags) and variadic and flags[-1]


def _forbidden(why: str) -> SlotRule:
    return SlotRule((), (), False, False, why)


@lru_cache(maxsize=4096)
def slot_rule(op: str, domain: str, version: int, fmt: Format) -> SlotRule:
    """What the operator's schema allows for `fmt`."""
    if op in CONTROL_FLOW and not domain:
        return _forbidden("control flow keeps FP32 at its borders; the nodes inside are decided one by one")
    if op in ISLANDS and not domain:
        return _forbidden(ISLANDS[op])
    if domain:
        return _forbidden(f"an operator of the domain {domain!r}: what it accepts is not known")
    try:
        schema = onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return _forbidden(f"operator {op} is not in opset {version}")
    wanted = f"tensor({'float16' if fmt is Format.FP16 else 'bfloat16'})"
    allowed = {c.type_param_str: wanted in c.allowed_type_strs for c in schema.type_constraints}
    pinned = PARAMETER_SLOTS.get(op, set())
    inputs = tuple(allowed.get(p.type_str, False) and i not in pinned for i, p in enumerate(schema.inputs))
    # An output's type must follow from a convertible input or from an attribute that can be changed.
    bound = {p.type_str for p, ok in zip(schema.inputs, inputs, strict=True) if ok}
    free = op in DTYPE_ATTRIBUTES or op == "ConstantOfShape"
    outputs = tuple(allowed.get(p.type_str, False) and (p.type_str in bound or free) for p in schema.outputs)
    if not any(inputs) and not any(outputs):
        return _forbidden(f"the schema of {op} (opset {version}) has no {fmt.value.upper()} form")
    return SlotRule(inputs, outputs, _variadic(schema.inputs), _variadic(schema.outputs))


def _variadic(parameters: object) -> bool:
    last = list(parameters)[-1:]  # type: ignore[call-overload]
    return bool(last) and last[0].option == onnx.defs.OpSchema.FormalParameterOption.Variadic
