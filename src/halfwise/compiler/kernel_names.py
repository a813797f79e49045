"""What a kernel's name gives away: its steps, the casts hidden among them, fused attention, and the math of a tactic.

A Myelin kernel spells its steps (`__myl_MulCastMaxrSubExpSumDivMulCast_myl0_1`): evidence of what the compiler meant,
not a measurement.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NamedTuple

from halfwise.emulation.profiles.kernel_set import CAST_STEPS, MORE_STEPS, PRODUCT_STEPS

__all__ = [
    "Place",
    "cast_count",
    "chooses",
    "fused_attention",
    "hides_steps",
    "is_bookkeeping",
    "is_copy",
    "may_hold",
    "multiplies",
    "narrow_operands",
    "place_of",
    "shows",
    "steps",
    "sums_narrow",
    "tactic_math",
]

Place = Literal["before", "inside", "after"]

_KERNEL = re.compile(r"^_{0,2}my[le][ln]?_")
_SUFFIX = re.compile(r"(?:_myl\d+(?:_\d+)*|_0x[0-9a-f]+)+$")
_STEP = re.compile(r"[A-Z][a-z0-9]*")
_ATTENTION = re.compile(
    r"(?:^|_)((?:gemm|gemv)_mha(?:_v\d+)?)|(?:^|_)((?:fused_)?(?:mha|fmha|flash_attention)(?:_v\d+)?)(?:_|$)"
)
_TYPE = r"(?:tf|bf|f|i|s|u|e)\d+(?:m\d+)?"
_TACTIC_MATH = re.compile(rf"(?:^|_)({_TYPE}){_TYPE}_({_TYPE})({_TYPE})_{_TYPE}(?=_|$)")
# Operands of FP16: fields as in `f16f16_f16f32_f32`, tensor core steps as in `h16816gemm`, or the type spelled out.
_NARROW_OPERANDS = re.compile(
    rf"(?:^|_)(?:(?P<fields>b?f16)(?:b?f16)_{_TYPE}{_TYPE}_{_TYPE}|h\d{{3,5}}(?:gemm|cudnn|fprop)|(?P<word>fp16|bf16))(?=_|$)"
)
_NARROW_SUMS = re.compile(r"(?:^|_)h\d{3,5}(?:gemm|cudnn|fprop)(?=_|$)")  # `h16816gemm`; `s16816gemm` sums in FP32
_BOOKKEEPING = frozenset(
    {"shape_call", "signal", "wait", "memset", "jmp", "cjmp", "NoOp", "TrainStation", "Constant"}
    | {"ShapeHostToDevice", "ShapeDeviceToHost"}
)
_BOOKKEEPING_NAME = re.compile(r"^(?:init_hvar\^|adv_off\^|clp_|jmp_)")
# Steps that give truth values or indices, or pick by them: what they take and what they give may differ in type.
_CHOICES = frozenset({"And", "Eql", "Gtr", "Isin", "Isna", "Lt", "Not", "Or", "Sele", "Topk"})
_COPIES = frozenset({"Move", "Mov", "Tran", "Tra", "Resh", "Res", "Repl", "Rep"})

# The steps an operator can turn into. Only what was seen in kernels of TensorRT 10 or TensorRT-RTX.
_STEPS_OF = {
    "MatMul": "Fc Gemm", "Gemm": "Fc Gemm", "Conv": "Corr Conv", "ConvTranspose": "Deco Corr Conv",
    "Softmax": "Maxr Exp Div", "LogSoftmax": "Maxr Exp Log", "ReduceMean": "Mean Mea", "GlobalAveragePool": "Mean Mea",
    "ReduceSum": "Sum", "ReduceMax": "Maxr", "ReduceMin": "Minr", "ReduceL2": "Sqrt Sqr", "Sqrt": "Sqrt Sqr",
    "Pow": "Pow Mul", "Mul": "Mul Silu", "Add": "Add Fc", "Sub": "Sub", "Div": "Div Mul", "Reciprocal": "Div Reci",
    "Exp": "Exp", "Log": "Log Log1", "Erf": "Erf", "Tanh": "Tanh Tan", "Sigmoid": "Sigm Silu", "Neg": "Neg",
    "Abs": "Abs", "Max": "Max", "Min": "Min", "Clip": "Max Min", "Relu": "Relu Max", "Where": "Sele", "Sin": "Sin",
    "Cos": "Cos", "CumSum": "Cums", "Resize": "Resi", "Gather": "Gath", "Concat": "Conc Con", "Slice": "Slic Sli",
    "Elu": "Elu", "InstanceNormalization": "Inor", "GroupNormalization": "Gnor",
}  # fmt: skip


@lru_cache(maxsize=65536)
def steps(name: str) -> tuple[str, ...]:
    """The steps that a Myelin kernel's name spells; none for a kernel named after its layers."""
    match = _KERNEL.match(name)
    if not match:
        return ()
    return tuple(_STEP.findall(_SUFFIX.sub("", name[match.end() :])))


def cast_count(name: str) -> int:
    return sum(step in CAST_STEPS for step in steps(name))


def hides_steps(name: str) -> bool:
    """Whether a name does not spell all steps of its kernel: casts may be among the others."""
    return steps(name)[-1:] == (MORE_STEPS,)


def chooses(name: str) -> bool:
    """Whether a name shows a step by which values change their type without a cast."""
    return not _CHOICES.isdisjoint(steps(name))


def is_copy(name: str) -> bool:
    """A kernel that only moves values."""
    spelled = steps(name)
    return bool(spelled) and all(step in _COPIES for step in spelled)


def is_bookkeeping(layer_type: str, name: str) -> bool:
    """A layer that computes nothing of the model: synchronisation, jumps, loop counters, shapes, aliases."""
    return layer_type in _BOOKKEEPING or bool(_BOOKKEEPING_NAME.match(name))


def fused_attention(name: str) -> str | None:
    """The fused attention kernel this is, as in "_gemm_mha_v2": its scores and softmax are not visible."""
    match = _ATTENTION.search(_SUFFIX.sub("", name))
    return f"_{match[1] or match[2]}" if match else None


def place_of(op: str, name: str) -> Place | None:
    """Where an operator's steps stand: before the first cast in the kernel, after the last, or inside.

    None where the name does not tell. Before the first cast values have the type of the kernel's inputs, after the
    last one that of its outputs.
    """
    spelled = steps(name)
    casts = [index for index, step in enumerate(spelled) if step in CAST_STEPS]
    candidates = _STEPS_OF.get(op, "").split()
    places = [index for index, step in enumerate(spelled) if step in candidates]
    if not casts or not places or hides_steps(name):
        return None
    if max(places) < casts[0]:
        return "before"
    if min(places) > casts[-1]:
        return "after"
    if min(places) > casts[0] and max(places) < casts[-1]:
        return "inside"
    return None


def may_hold(op: str, name: str) -> bool:
    """Whether an operator's steps stand in a kernel's name; where either does not tell its steps, it may."""
    spelled = steps(name)
    candidates = _STEPS_OF.get(op, "").split()
    return not spelled or not candidates or hides_steps(name) or shows(op, name)


def multiplies(name: str) -> bool:
    """Whether a kernel's name shows a matrix product or a convolution; one that spells no steps is named after it."""
    spelled = steps(name)
    return not spelled or not PRODUCT_STEPS.isdisjoint(spelled)


def shows(op: str, name: str) -> bool:
    """Whether a kernel's name spells a step of an operator."""
    return not set(_STEPS_OF.get(op, "").split()).isdisjoint(steps(name))


def narrow_operands(tactic: str) -> str | None:
    """The format below FP32 that a matrix tactic multiplies in, whatever its tensors hold; None where it names none."""
    match = _NARROW_OPERANDS.search(tactic)
    if not match:
        return None
    return "bf16" if "bf16" in (match["fields"], match["word"]) else "fp16"


class TacticMath(NamedTuple):
    """What a matrix tactic multiplies and what it sums in: "f16", "tf32", "f32", "i8", ..."""

    operand: str
    accumulator: str


def tactic_math(tactic: str) -> TacticMath | None:
    """What a matrix tactic's name says it multiplies and accumulates in.

    The meaning of the fields is inferred from many names; no text of NVIDIA's states it.
    """
    match = _TACTIC_MATH.search(tactic)
    if not match:
        return None
    operand, third, accumulator = match.groups()
    return TacticMath("tf32" if third == "tf32" else operand, accumulator)


def sums_narrow(tactic: str) -> bool | None:
    """Whether a matrix tactic's name says that it accumulates in FP16; None where it does not say what in."""
    if _NARROW_SUMS.search(tactic):
        return True
    math = tactic_math(tactic)
    return None if math is None else math.accumulator == "f16"
