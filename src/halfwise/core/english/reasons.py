"""Why a node stays out of FP16, or cannot narrow at all. Parts of a sentence: a report joins them."""

from __future__ import annotations

from halfwise.core.notes import NoteKind

__all__ = ["REASONS"]

_ALONE = "reverted to FP16 by itself, "

REASONS = {
    NoteKind.WRITES_BEYOND: "result reaches {high:,.4g}, beyond {format}'s {limit:,.0f}, and becomes infinite",
    NoteKind.READS_BEYOND: "reads values up to {high:,.4g}, beyond {format}'s {limit:,.0f}",
    NoteKind.BREAKS_INSIDE: "an intermediate value becomes infinite in {format}, or zero where that is fatal",
    NoteKind.KEEPS_FROM_ENDING: "decides when a loop ends, which may never end with {format}'s rounding",
    NoteKind.ROUNDS_COARSELY: (
        "values reach {reach:number}, where neighbouring {format} numbers are {step:number} apart"
    ),
    NoteKind.ROUNDS_EXPONENT: (
        "reads values up to {reach:.4g}, where {format} steps by {step:g}: "
        "half a step changes an exponential by {change:.0%}"
    ),
    NoteKind.ROUNDS_PHASE: (
        "a phase up to {reach:number}, where neighbouring {format} numbers are {step:number} apart; "
        "its period is {period:.4g}"
    ),
    NoteKind.ROUNDS: "rounding to {format} changes the outputs",
    NoteKind.FASTER_WIDE: "FP32 is predicted to be faster here than FP16 and its casts",
    NoteKind.NOT_TESTED_ALONE: "not tested individually",
    NoteKind.KEPT_IN_VAIN: "the tolerance is missed even with all such nodes in FP32",
    NoteKind.NOT_FINITE_ALONE: _ALONE + "the outputs are not finite, or of another shape",
    NoteKind.MISSES_ALONE: _ALONE + "the error is {load:.3g} times the tolerance",
    NoteKind.NEAR_ALONE: _ALONE + "the error is {load:.0%} of the tolerance, too near for unseen inputs",
    NoteKind.NEEDED_TOGETHER: _ALONE
    + "the error is {load:.0%} of the tolerance; with others reverted, too, it is too large",
    NoteKind.USER_KEEPS: "your own decision: {option}",
    NoteKind.IN_PLAN: "asked for in the plan",
    NoteKind.AS_STATED: "{text}",
    NoteKind.AFTER_STAGE: "comes after stage {subject}",
    NoteKind.BACKEND_WRONG: "the result is wrong with the node in FP16, measured {on}",
    NoteKind.NOT_CLEARED: "not tested: no builds were left",
    NoteKind.KEEPS_PRODUCT: (
        "keeps {subject!r} in FP32: the compiler reverts a matrix product to FP16 that stands alone between casts"
    ),
    NoteKind.KEEPS_BUILDABLE: "the compiler does not build the model with this {subject} in FP16",
    NoteKind.KEEPS_KERNEL_OUT: (
        "keeps out the fused attention kernel {subject}, which is known to be wrong in this version"
    ),
    NoteKind.KEEPS_NORM_WHOLE: (
        "keeps the norm at {subject!r} in one ONNX Runtime kernel, which computes its statistics in FP32"
    ),
    NoteKind.KEEPS_NORM_LOADABLE: (
        "keeps the norm at {subject!r} loadable: ONNX Runtime fuses it without regard to types, and then refuses it"
    ),
    NoteKind.KEEPS_TRANSPOSE_LOADABLE: (
        "moves values for {subject!r} in its format: with a Cast between the two, ONNX Runtime may fail to load the "
        "model"
    ),
    NoteKind.KEEPS_BIAS_STEPS: (
        "ONNX Runtime quantises the bias of {subject!r} in the format of its scales, and FP16 does not hold the steps"
    ),
    NoteKind.KEEPS_RUNNABLE: "ONNX Runtime's CPU provider does not run {subject} in this form in FP16",
    NoteKind.KEEPS_EXPANDABLE: (
        "ONNX Runtime has no FP16 kernel for {subject} in this form, and the steps that replace it fail"
    ),
    NoteKind.KEEPS_CPU_RIGHT: (
        "run by ONNX Runtime's CPU provider, the model as written misses the tolerance with {subject} in FP16 here"
    ),
    NoteKind.KEEPS_CUDA_RIGHT: "ONNX Runtime's CUDA provider computes {subject} wrong in this form in FP16",
    NoteKind.OWN_KERNELS_MISS: "in FP16 its kernels would miss the tolerance, judged by their names: {kernels}",
    NoteKind.FOREIGN_DOMAIN: "operator of the domain {subject!r}, whose types are not known",
    NoteKind.CONTROL_FLOW: "control flow keeps FP32 inputs and outputs; its inner nodes are decided one by one",
    NoteKind.READS_BITS: "reads bits, not values",
    NoteKind.FP32_DEFINITION: "its ONNX definition contains FP32 constants, so no other type is valid",
    NoteKind.TABLE: "only makes a table of constants",
    NoteKind.RANDOM: "its result is random",
    NoteKind.QUANTISATION: "quantisation scales are FP32 in this opset",
    NoteKind.QUANTISES_WEIGHT: "quantises a weight, once, before anything runs",
    NoteKind.FINE_BIAS: "makes a bias, which is constant, from integers; {format} rounds their scale too coarsely",
    NoteKind.QUANTISED_GROUP: "a Cast here would take a group of quantised nodes apart that runs as one kernel",
    NoteKind.CONTAINER: "reads or writes a sequence or an optional",
    NoteKind.NOT_IN_OPSET: "operator {subject} is not in opset {version}",
    NoteKind.NO_NARROW_FORM: "the schema of {subject} (opset {version}) has no {format} form",
    NoteKind.NO_NARROW_KERNEL: "ONNX Runtime has no {format} kernel of {subject}",
    NoteKind.SHAPE_ARITHMETIC: "shape arithmetic, which runs on the host",
    NoteKind.POSITION: "computes a position, such as an index or a size: rounded, it would name another place",
    NoteKind.UNKNOWN_TYPE: "the type of {subject!r} is not known",
    NoteKind.NO_FP32_TENSOR: "has no FP32 tensor that could narrow",
    NoteKind.NOT_ALSO_BF16: "not every input that may be FP16 may be BF16",
}
