"""Notes on a model as it was given, and on its inputs."""

from __future__ import annotations

from halfwise.core.notes import NoteKind

__all__ = ["INPUTS"]

INPUTS = {
    NoteKind.TYPED_ALREADY: (
        "The file types {typed} of {nodes:many node} {formats:plain}. Its stored numbers, widened to FP32, are the "
        "reference. Errors from rounding the weights cannot be seen without the FP32 original."
    ),
    NoteKind.AS_TYPED_MISSES: "The file as it is typed misses the tolerance: {told}.",
    NoteKind.AS_TYPED_INVALID: (
        "No runtime loads the file as it is typed: ONNX defines no {op} with the types of node {subject!r}."
    ),
    NoteKind.REWRITING_MISSES: (
        "Written as {subject} reads it, the quantised model differs from its file even in FP32: {told}. Quantise "
        "again, symmetric, or give the model before quantisation."
    ),
    NoteKind.STORED_WEIGHT: "Weight {subject!r}: {message}.",
    NoteKind.IO_WIDENED: (
        "{subject} has no {formats:plain}: {names:list}, typed so in the file, are handed over in FP32."
    ),
    NoteKind.OUTPUT_WIDENED: (
        "Output {subject!r} reaches {largest:number}, which {format} does not hold: it is handed over in FP32."
    ),
    NoteKind.WEIGHTS_RESTORED: (
        "The outputs of {subject} are the reference, and it gives {taken} of {weights:many float weight}."
    ),
    NoteKind.WEIGHTS_DIFFER: (
        "{count:many weight differs/weights differ} from {subject} by more than rounding, and the stored values are "
        "used: {names:list}."
    ),
    NoteKind.WEIGHTS_UNKNOWN: (
        "{subject} does not have {count:many weight}, and the stored values are used: {names:list}."
    ),
    NoteKind.ORIGINAL_NEAR: (
        "The model in FP32 comes to {ratio:.2g} times the allowed error against {subject}. More FP32 nodes do not "
        "bring other inputs within it: state a wider tolerance (--tol)."
    ),
    NoteKind.NOTHING_FINITE: (
        "The float inputs are empty by their shapes and no output holds a finite value: "
        "only that this stays so was compared."
    ),
    NoteKind.ONLY_ZERO: (
        "Output {subject!r} is 0 everywhere in FP32, for every input: nothing of it was judged. "
        "Give inputs for which it is not."
    ),
    NoteKind.NOTHING_FINITE_FROM: (
        "The FP32 model itself gives no finite value, from node {subject!r} ({op}) on. "
        "Behind it, only the places of infinities and NaN are compared."
    ),
    NoteKind.NO_INPUTS: "The model takes no inputs, so every run is the same.",
    NoteKind.SAMPLES_THINNED: "{used} of {given} samples are used, picked evenly.",
    NoteKind.SAMPLES_REPEATED: "{count:many repeated sample} left out.",
    NoteKind.SAMPLES_NOT_FINITE: "Input {subject!r} has values that are not finite in {bad} of {samples:many sample}.",
    NoteKind.SYNTHETIC: (
        "No inputs were given, so random ones of the declared types and shapes were generated. "
        "Give real ones with --inputs (in Python and in a fleet: inputs)."
    ),
    NoteKind.SIZES_CHOSEN: "The model leaves sizes open; chosen were: {sizes:plain}. Set others with --shapes.",
    NoteKind.INPUT_TAKEN_AS: "The array {given!r} was taken as input {subject!r}.",
    NoteKind.BATCH_ADDED: "Input {subject!r} has no batch dimension in the samples; one of 1 was added.",
    NoteKind.BATCH_SPLIT: "Batches were split into {count:many sample} each.",
    NoteKind.IMAGES_READ: (
        "{count:many image} as input {subject!r}: {width}x{height} ({fit}), {layout}, range {range}, "
        "mean {mean:plain}, std {std:plain}. Compare this with the training code: preprocessing is the commonest "
        "mistake."
    ),
    NoteKind.AUDIO_READ: "{count:many audio file} as input {subject!r}: one channel at {rate:,} Hz{resampled}.",
    NoteKind.RESAMPLED: ", resampled from {rates:plain} Hz",
    NoteKind.ONE_SAMPLE: (
        "Only one distinct sample was given. Copies of it, changed by up to 2^-7, validate the result. "
        "Give more samples."
    ),
    NoteKind.ONE_CONSTANT_SAMPLE: (
        "Only one distinct sample was given, and it has no float value to change. It serves for the search and "
        "validates the result. Give more samples."
    ),
}
