"""What a conversion says of its options, in English."""

from __future__ import annotations

from halfwise.core.notes import NoteKind

__all__ = ["CONVERTING"]

CONVERTING = {
    NoteKind.OPTION_BY_ERROR: (
        "{subject} has no meaning here: nodes are chosen by the measured error, not by magnitude or depth"
    ),
    NoteKind.OPTION_OF_WEIGHTS: (
        "{subject} has no meaning here: a weight of any size is stored in the format of the nodes that read it"
    ),
    NoteKind.OPTION_OF_DEVICE: (
        "{subject} has no meaning here: the model is emulated on the CPU, without providers and plugins"
    ),
    NoteKind.OPTION_OF_OPSET: (
        "{subject} has no meaning here: the model keeps its opset, or takes the one that a repair needs"
    ),
    NoteKind.OPTION_OF_TYPES: "{subject} has no meaning here: types that ONNX does not infer are found another way",
    NoteKind.OPTION_FITS_NONE: "{subject}: {given!r} fits no node",
    NoteKind.CONVERTED_TO_BOTH: (
        "low_precision_type 'bf16': nodes become FP16 where that keeps the tolerance, BF16 where they need its range"
    ),
    NoteKind.CONVERTED_MISSES: "the converted model misses the tolerance: {told}",
    NoteKind.CONVERTED_IN_SHORT: (
        "A conversion saves FP32 nodes with {runs:many model run} at most. `halfwise fix` searches longer and may keep "
        "fewer."
    ),
}
