"""What findings say of constants, patterns, types and dead weights."""

from __future__ import annotations

from halfwise.core.notes import NoteKind

__all__ = ["SCANNING"]

SCANNING = {
    NoteKind.TYPES_NARROW: "{typed:,} of {nodes:many node is typed/nodes are typed} {formats}",
    NoteKind.WEIGHTS_DEAD: (
        "{count:many dead weight} ({names:names}): values of at most {largest:number} add nothing in FP32 either"
    ),
    NoteKind.WEIGHT_CLAMPED: ("{times:many value} of {count:,} at 65504: a converter may have clamped larger ones"),
    # Constants
    NoteKind.MASK_JOINED: (
        "the mask {value:number} becomes {fp16:number} in FP16. Added to another mask or multiplied, "
        "it becomes minus infinity, and a fully masked row becomes NaN"
    ),
    NoteKind.MASK_ADDED: (
        "the mask {value:number} becomes {fp16:number} in FP16. A score below -16 added to it makes it minus infinity, "
        "and a fully masked row becomes NaN"
    ),
    NoteKind.STANDS_FOR_INFINITY: (
        "{value:number} stands for infinity and becomes {fp16:number} in FP16, with the same effect"
    ),
    NoteKind.EPSILON_VANISHES: (
        "the epsilon {epsilon:number} guards {count:many {guards}} and is 0 in FP16 (6e-08 under weak typing): "
        "the guard is gone"
    ),
    NoteKind.EPSILON_CHANGES: (
        "the epsilon {epsilon:number} guards {count:many {guards}} and is {fp16:number} in FP16 "
        "(6e-08 under weak typing): the guard changes"
    ),
    NoteKind.CONSTANTS_INFINITE: "{count:many constant is/constants are} infinite, in FP16 as in FP32",
    # Patterns
    NoteKind.TIMES: "{times} times: {what}",
    NoteKind.NORM_SQUARES: (
        "{pattern} whose square overflows FP16 once |{squared}| exceeds {limit:number}; "
        "the result then silently becomes 0"
    ),
    NoteKind.MOMENTS_CANCEL: (
        "{pattern}: in FP16 the difference is noise where the mean is over 30 times the spread; "
        "it is infinite once |x| exceeds {limit:number}"
    ),
    NoteKind.LENGTH_SQUARES: (
        "{pattern} whose squares are 0 in FP16 for |x| below 0.0002 and overflow above {limit:number}"
    ),
    NoteKind.EXP_UNSHIFTED: ("{pattern} without its maximum subtracted: exp(x) overflows FP16 once x exceeds {limit}"),
    NoteKind.LOGIT_UNGUARDED: (
        "inverse sigmoid: nothing keeps x below 1, so x over 0.9998 gives 1 / 0; x near 1 gives coarse steps"
    ),
    NoteKind.LOGIT_BOUND_IS_ONE: (
        "inverse sigmoid: its upper bound {high:.7g} is 1 in FP16, so x over 0.9998 gives 1 / 0; "
        "x near 1 gives coarse steps"
    ),
    NoteKind.SUM_LONG: ("sum over {elements:,} elements: overflows FP16 once their average exceeds {limit:number}"),
    NoteKind.GRAM_LONG: (
        "{pattern}, {elements:,} elements in each sum: overflows FP16 once their average exceeds {limit:number}"
    ),
    NoteKind.RUNNING_SUM: "running sum: FP16 no longer resolves steps of 1 beyond 2048",
    NoteKind.RUNNING_SUM_OVER: (
        "running sum over {elements:,} elements: FP16 no longer resolves steps of 1 beyond 2048"
    ),
    NoteKind.REMAINDER: (
        "x - floor(x / step) * step: a small difference of large numbers, noise in FP16 where x is over 2048"
    ),
    NoteKind.COORDINATES: ("coordinates up to {largest:number}, where FP16 only holds multiples of {step:number}"),
    NoteKind.WAVES: "sine and cosine of positions times frequencies: FP16 resolves a phase of 256 rad to 0.25 rad",
    NoteKind.WAVES_UP_TO: (
        "sine and cosine of positions times frequencies: FP16 resolves a phase of 256 rad to 0.25 rad, "
        "and a position of {largest:number} to {step:number}"
    ),
    NoteKind.SELECTION: "{ops:commas}: rounding makes close scores equal, so other items may be selected",
    NoteKind.IDS_OF_TABLE: (
        "ids of a table of {table:,} come in as floats: FP16 holds whole numbers exactly only up to {exact}"
    ),
    NoteKind.IDS_AS_FLOATS: "ids come in as floats: FP16 holds whole numbers exactly only up to {exact}",
    NoteKind.INTEGERS_AS_FLOATS: (
        "integer inputs are computed with as floats: FP16 holds whole numbers exactly only up to {exact}"
    ),
}
