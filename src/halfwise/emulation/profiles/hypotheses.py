"""What a machine may do, as data: by rule, its hypotheses from the one that rounds least to the one that rounds most.

A rule is an operator, a fusion ("fusion:" and its kind), or how FP32 becomes FP16. The hypotheses of an operator are
kernels as profiles have them, None for one that rounds at its end only.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from halfwise.emulation.profiles.alternatives import (
    as_power_of_two,
    by_reciprocal,
    exponentials_stored,
    factors_stored,
    flushed,
    norm_folded,
    pooled_sum_stored,
    root_of_stored,
    saturated,
    sigmoid_in_steps,
    sum_one_by_one,
    tanh_by_sigmoid,
)
from halfwise.emulation.profiles.cuda import CUDA_KERNELS
from halfwise.emulation.profiles.fused_kernels import FUSED_KERNELS, conv_norm_folded_once, tanh_gelu_exact
from halfwise.emulation.profiles.fusion import FusedKernel
from halfwise.emulation.profiles.narrow_sums import MOST_PARTS, narrow_sums
from halfwise.emulation.profiles.profile import Kernel
from halfwise.emulation.profiles.tensorrt import TENSORRT_KERNELS, bias_after_product, norm_in_narrow_steps
from halfwise.model.contrib.schemas import DOMAIN

__all__ = [
    "APART",
    "BY_SIZE",
    "CONVERSION",
    "FUSIONS",
    "NARROW",
    "PLAIN_CONVERSION",
    "WIDE",
    "fused_kernel",
    "fused_own_operators",
    "hypotheses_of",
    "kernels_of",
]

WIDE = "wide"  # rounds at its end only; of a fusion: one kernel that does so
EXACT = "exact-constants"  # of a fusion: one kernel that does so, whatever the model's constants were rounded to
BY_SIZE = "bias-by-size"  # of a product: whether its bias is added before it is stored depends on its sizes
APART = "apart"  # of a fusion: every node stores its result
CONVERSION = "conversion"  # the rule of how FP32 becomes FP16
PLAIN_CONVERSION = "to-infinity"  # of a conversion: as IEEE 754 has it
NARROW = "fp16-sums-"  # of a product: how its hypotheses with FP16 sums begin; then the terms added wide
_TERMS = (32, 16, 8, 4)  # added wide before an FP16 sum is stored

_PRODUCTS: Mapping[str, Mapping[str, Kernel | None]] = {
    "MatMul": {WIDE: None},
    "Gemm": {WIDE: None, "factors-stored": factors_stored, BY_SIZE: CUDA_KERNELS["Gemm"],
             "bias-after": bias_after_product},
    "Conv": {WIDE: None, "bias-after": CUDA_KERNELS["Conv"]},
    "ConvTranspose": {WIDE: None, "bias-after": CUDA_KERNELS["ConvTranspose"]},
}  # fmt: skip

_OTHERS: Mapping[str, Mapping[str, Kernel | None]] = {
    "AveragePool": {WIDE: None, "sum-stored": pooled_sum_stored},
    "BatchNormalization": {WIDE: None, "folded": norm_folded},
    "CumSum": {WIDE: None, "one-by-one": CUDA_KERNELS["CumSum"]},
    "GRU": {WIDE: None, "steps": CUDA_KERNELS["GRU"]},
    "GlobalAveragePool": {WIDE: None, "sum-stored": pooled_sum_stored},
    "GroupNormalization": {WIDE: None, "affine-after": CUDA_KERNELS["GroupNormalization"]},
    "InstanceNormalization": {WIDE: None, "steps": CUDA_KERNELS["InstanceNormalization"]},
    "LSTM": {WIDE: None, "steps": CUDA_KERNELS["LSTM"]},
    "LayerNormalization": {WIDE: None, "affine-after": TENSORRT_KERNELS["LayerNormalization"],
                           "steps": norm_in_narrow_steps},
    "LogSoftmax": {WIDE: None, "of-stored-share": TENSORRT_KERNELS["LogSoftmax"]},
    "RMSNormalization": {WIDE: None, "affine-after": TENSORRT_KERNELS["RMSNormalization"],
                         "steps": norm_in_narrow_steps},
    "RNN": {WIDE: None, "steps": CUDA_KERNELS["RNN"]},
    "ReduceL2": {WIDE: None, "sum-stored": root_of_stored},
    "ReduceLogSum": {WIDE: None, "sum-stored": CUDA_KERNELS["ReduceLogSum"]},
    "ReduceLogSumExp": {WIDE: None, "steps": CUDA_KERNELS["ReduceLogSumExp"]},
    "ReduceMean": {WIDE: None, "sum-stored": CUDA_KERNELS["ReduceMean"], "one-by-one": sum_one_by_one},
    "ReduceSum": {WIDE: None, "blocks-of-rows": CUDA_KERNELS["ReduceSum"], "one-by-one": sum_one_by_one},
    "ReduceSumSquare": {WIDE: None, "squares-stored": CUDA_KERNELS["ReduceSumSquare"]},
    "Resize": {WIDE: None, "steps": CUDA_KERNELS["Resize"]},
    "Softmax": {WIDE: None, "powers-stored": exponentials_stored, "steps": TENSORRT_KERNELS["Softmax"]},
    "Sum": {WIDE: None, "one-by-one": CUDA_KERNELS["Sum"]},
}  # fmt: skip

# Operators whose results may be flushed, or kept within the range.
_POINTWISE: Mapping[str, Mapping[str, Kernel | None]] = {
    **{op: {WIDE: None} for op in ("Add", "Cos", "Erf", "Log", "Mul", "Pow", "Reciprocal", "Sin", "Sqrt", "Sub")},
    **{op: {WIDE: None, "steps": CUDA_KERNELS[op]} for op in ("Elu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish",
                                                             "Selu", "Softplus", "Softsign")},
    "Div": {WIDE: None, "by-reciprocal": by_reciprocal},
    "Exp": {WIDE: None, "power-of-two": as_power_of_two},
    "Gelu": {WIDE: None, "tanh-in-steps": CUDA_KERNELS["Gelu"], "erf-in-steps": TENSORRT_KERNELS["Gelu"]},
    "Sigmoid": {WIDE: None, "mirrored": CUDA_KERNELS["Sigmoid"], "steps": sigmoid_in_steps},
    "Tanh": {WIDE: None, "by-sigmoid": tanh_by_sigmoid},
}  # fmt: skip

CONVERSIONS = (PLAIN_CONVERSION, "flushed", "saturated", "saturated, flushed")

# By kind: the kernels that may stand for the nodes.
FUSIONS: Mapping[str, tuple[str, ...]] = {
    "attention": (WIDE, "scores-wide", APART),
    "biased-product": (WIDE, BY_SIZE, APART),
    "conv-batch-norm": (WIDE, "folded-once", "weights-folded", APART),
    "fast-gelu": (EXACT, WIDE, "steps", APART),
    "gelu": (EXACT, WIDE, APART),
    "layer-norm": (WIDE, APART),
    "masked-softmax": (WIDE, APART),
    "quick-gelu": (WIDE, "steps", APART),
    "quotient": (WIDE, APART),
    "residual": (WIDE, APART),
    "rms-norm": (WIDE, APART),
    "scaled-product": (WIDE, "factor-stored", APART),
}
_SPELLED: Mapping[tuple[str, str], FusedKernel] = {
    ("conv-batch-norm", "weights-folded"): FUSED_KERNELS["conv-batch-norm"],
    ("conv-batch-norm", "folded-once"): conv_norm_folded_once,
    ("fast-gelu", EXACT): tanh_gelu_exact,
    ("fast-gelu", "steps"): FUSED_KERNELS["fast-gelu"],
    ("gelu", EXACT): FUSED_KERNELS["gelu"],
    ("quick-gelu", "steps"): FUSED_KERNELS["quick-gelu"],
    ("scaled-product", "factor-stored"): FUSED_KERNELS["scaled-product"],
    ("split-product", "factor-stored"): FUSED_KERNELS["split-product"],
}


def hypotheses_of(rule: str) -> tuple[str, ...]:
    """The names of a rule's hypotheses; an operator that nothing is known of rounds at its end."""
    if rule == CONVERSION:
        return CONVERSIONS
    if rule.startswith("fusion:"):
        return FUSIONS.get(rule.removeprefix("fusion:"), (APART,))
    return tuple(kernels_of(rule))


@cache
def kernels_of(op: str, most_parts: int = MOST_PARTS) -> Mapping[str, Kernel | None]:
    """The kernels that an operator may have, by hypothesis."""
    if op in _PRODUCTS:
        sums = {f"{NARROW}{terms}": narrow_sums(terms, most_parts)[op] for terms in _TERMS}
        return {**_PRODUCTS[op], **sums}
    if op in _POINTWISE:
        found: dict[str, Kernel | None] = {}
        for name, kernel in _POINTWISE[op].items():
            found[name] = kernel
            found[f"{name}, flushed"] = flushed(kernel)
            found[f"{name}, saturated"] = saturated(kernel)
            found[f"{name}, saturated, flushed"] = flushed(saturated(kernel))
        return found
    return _OTHERS.get(op, {WIDE: None})


def fused_kernel(kind: str, hypothesis: str) -> FusedKernel:
    """How one kernel computes the nodes of a fusion."""
    return _SPELLED.get((kind, hypothesis), _at_its_end)


def fused_own_operators(kinds: Mapping[str, str]) -> Mapping[str, Kernel]:
    """The kernels of ONNX Runtime's own operators that nodes are fused to, from how fusions of their kinds compute."""
    own = {"fast-gelu": f"{DOMAIN}:FastGelu", "quick-gelu": f"{DOMAIN}:QuickGelu"}
    return {op: CUDA_KERNELS[op] for kind, op in own.items() if kinds.get(kind) == "steps"}


def _at_its_end(*_: object) -> str | None:
    """Nothing is stored before the last result."""
    return None
