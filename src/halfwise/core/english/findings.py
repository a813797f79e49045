"""What findings say; a likely cause is a part of its finding's sentence."""

from __future__ import annotations

from halfwise.core.notes import NoteKind

__all__ = ["FINDINGS"]

FINDINGS = {
    NoteKind.TENSORRT_WILL_WARN: (
        "TensorRT will warn about weights: {subnormal:many tensor} with values that are subnormal in FP16, "
        "{underflow:,} below the smallest, {overflow:,} over 65504. It counts after fusion. FP16 harms "
        "{harmful:many weight}"
    ),
    NoteKind.WEIGHT_NOT_FINITE: "NaN or infinite: {nonfinite:,} of {count:many value}",
    NoteKind.STORED_AS_INFINITY: (
        "stored as infinity: {nonfinite:,} of {count:many value}; convert the FP32 model again, without values beyond "
        "{typed}'s range"
    ),
    NoteKind.DIVISOR_VANISHES: "{subject} divides by {least:number}, which is 0 in FP16 (6e-08 under weak typing)",
    NoteKind.WEIGHT_BEYOND: (
        "over 65504: {overflow:,} of {count:many value}, up to {largest:number}; clamping to 65504 makes the largest "
        "{change:percent} smaller"
    ),
    NoteKind.WEIGHT_TINY: (
        "the largest value is {largest:number}: rounding to FP16 changes the weight by {change:percent} "
        "({weak:percent} under weak typing, which raises tiny values to 6e-08)"
    ),
    NoteKind.CHANNELS_TINY: (
        "{coarse} of {channels} output channels ({indices:names}) hold values of about {loudest:number}. "
        "Rounding to FP16 changes these channels by up to {change:percent}, {lost:many channel} by more than half"
    ),
    NoteKind.TYPES_DOUBLE: "{count:many node} in double precision, left unchanged",
    NoteKind.FOREIGN_NODES: "{count:many node} of other domains, kept in FP32 ({ops:names})",
    NoteKind.NODES_NOT_RUN: "{count:many node} that ONNX Runtime does not run ({ops:names})",
    NoteKind.QUANTISED_MODEL: (
        "the model is quantised: {count:many node quantises, dequantises or computes/nodes quantise, dequantise or "
        "compute} in integers"
    ),
    NoteKind.OLD_OPSET: (
        "opset {opset} has no LayerNormalization, which would replace {count} of its norms; opset {since} has it"
    ),
    NoteKind.INPUT_IDS: (
        "ids up to {top:number}, where FP16 steps by {step:number}; whole numbers are exact only up to {exact}"
    ),
    NoteKind.INPUT_BEYOND: "values up to {top:number}: beyond 65504, FP16 values become infinite{alone}",
    NoteKind.INPUT_COARSE: (
        "{what} up to {top:number}, which FP16 holds in steps of {step:number}: rounding moves them by up to "
        "{change:number}, {relative:share} their spread{alone}"
    ),
    NoteKind.INPUT_PIXELS: (
        "raw pixels, 0 to {top:number}, held to {held:number}; subtracting the mean in FP16 keeps that error{alone}"
    ),
    NoteKind.INPUT_ALONE: "; alone, this input causes {ratio:share} the allowed error",
    NoteKind.CANNOT_RUN: "{subject} cannot run the fixed model: {why}",
    NoteKind.NOT_FINITE_THERE: (
        "output {subject!r} has {count:many value} that {count:are} not finite on {title}, and none was predicted. "
        "Likely cause: {cause}"
    ),
    NoteKind.NOT_AS_PREDICTED: (
        "output {subject!r} has an error of {measured:.3g} on {title}, {ratio:.3g} times the {predicted:.3g} that "
        "profile {profile!r} predicts. The profile allows a factor of {allowed:.3g}. Likely cause: {cause}"
    ),
    NoteKind.CAUSE_TF32: "TF32 (without it the error is {now:.3g}, as predicted)",
    NoteKind.CAUSE_FUSION: ("fusion (without ONNX Runtime's graph optimizations the error is {now:.3g}, as predicted)"),
    NoteKind.CAUSE_CPU_WIDE: "ONNX Runtime's CPU provider computes FP16 in FP32 and drops roundings between nodes",
    NoteKind.CAUSE_RAN_ON_CPU: "{count:many node} ran on the CPU, which computes FP16 in FP32",
    NoteKind.CAUSE_KEPT_WIDE: "fusion or wide accumulation (kernels keep in FP32 what the profile rounds)",
    NoteKind.CAUSE_TACTIC: (
        "a tactic that accumulates in FP16, or a fusion that moves a rounding; the engine's layer list tells which"
    ),
    NoteKind.CAUSE_ACCUMULATOR: (
        "the accumulate type (some kernel sums in FP16, or rounds inside, where the profile computes in FP32)"
    ),
}
