"""What a look at a user's files says, and what it names as the next step."""

from __future__ import annotations

from halfwise.core.notes import NoteKind

__all__ = ["DOCTORING"]

DOCTORING = {
    NoteKind.FILE_NOT_READ: "A file was left out: {why}",
    NoteKind.STRONG_ONLY: (
        "{subject} accepts only strongly typed networks: each node runs in the types that the ONNX model states."
    ),
    NoteKind.ONE_MODEL_EXAMINED: "{count:many ONNX model} were given; {subject} is examined. Name another one alone.",
    NoteKind.NOT_RUN_HERE: "The model was not run: {why}.",
    NoteKind.NAMES_MATCH_NOTHING: (
        "{subject} names {total:many layer}, and {count:many of these names matches/of these names match} no layer: "
        "{names:list}{near}"
    ),
    NoteKind.NEAREST_NAMES: "; the nearest: {names:list}",
    NoteKind.WILDCARD_NOT_READ: (
        "{subject}: {version} reads * only as a whole name, so that {names:list} match nothing, without a message"
    ),
    NoteKind.OPTION_REFUSED: "{subject}: {why}",
    NoteKind.OPTION_SINCE: "TensorRT has it from {first} on",
    NoteKind.OPTION_WITHIN: "TensorRT has it from {first} to {last}",
    NoteKind.OPTION_TWICE: "it is given twice, and trtexec reads the first only",
    NoteKind.CONSTRAINTS_MISSING: (
        "--layerPrecisions and --layerOutputTypes have no effect without --precisionConstraints=obey"
    ),
    NoteKind.NORM_SWALLOWED: (
        "LayerNorm was asked for in FP32 and ran in FP16. The region {subject}, which reads and writes FP16, holds "
        "{count} of {total:many node}: {names:list}"
    ),
    NoteKind.ASKED_NOT_KEPT: "{count} of {total:many node} asked for in FP32 did not run so: {names:list}; {why:said}",
    NoteKind.DEFECT_OF_VERSION: "{subject}: {symptom}{fixed} It applies, as {why:said}",
    NoteKind.FIXED_IN: " Fixed in {version}.",
    NoteKind.WEIGHTS_WARNED_HARM: "TensorRT warned of {count:many weight}, and FP16 harms only {names:list}",
    NoteKind.WEIGHTS_WARNED_HARMLESS: (
        "TensorRT warned of {count:many weight}, and none is the cause: beside larger values in the same sum, their "
        "lost digits do not count"
    ),
    NoteKind.FP16_BREAKS: (
        "output {subject!r} has {count:many value} that {count:are} not finite in plain FP16; the overflow is at "
        "{nodes:list}"
    ),
    NoteKind.FP16_MISSES: (
        "output {subject!r}: plain FP16 has an error of {error:.2g} ({ratio:.3g} times the allowed one); "
        "{share:percent} of it comes from {nodes:list}{inside}"
    ),
    NoteKind.SHARE_OF_MODULE: ". The module {subject} makes {share:percent} of it",
    NoteKind.FP16_COARSE: (
        "output {subject!r} reaches {top:number}, where FP16 steps by {step:number}: plain FP16 moves it by up to "
        "{change:.2g}, which a relative error of {error:.1g} hides. Most comes from {nodes:list}"
    ),
    NoteKind.FP16_KEEPS: (
        "plain FP16 keeps the tolerance on {count:many input} ({ratio:.2g} of the allowed error): the model itself is "
        "not the cause"
    ),
    NoteKind.FIXED_KEEPS: (
        "the fixed model keeps the tolerance of its plan on {count:many input} ({ratio:.2g} of the allowed error)"
    ),
    NoteKind.FIXED_MISSES: "the fixed model has {ratio:.3g} times the allowed error on {count:many input}: {told}",
    NoteKind.SAVED_KEEP: (
        "{subject} keeps the tolerance on {count:many input} ({ratio:.2g} of the allowed error): the engine is right"
    ),
    NoteKind.SAVED_MISS: ("{subject} has {ratio:.3g} times the allowed error on {count:many input}: {told}. {beside}"),
    NoteKind.SAVED_AS_FP16: "Plain FP16 explains it: emulated, it has {ratio:.3g} times",
    NoteKind.SAVED_BELOW_FP16: (
        "Emulated plain FP16 has {ratio:.3g} times: the engine may run part of the model in FP32"
    ),
    NoteKind.SAVED_ABOVE_FP16: (
        "Plain FP16 does not explain it: emulated, it has {ratio:.3g} times. Compare the inputs of both, then the build"
    ),
    NoteKind.SAVED_NOT_COMPARED: "{subject} was not compared with the FP32 answer: {why}",
    NoteKind.TENSORS_NOT_FINITE: (
        "inside the engine {count} of {total:many tensor} {count:are} not finite; the first is {subject!r}{by}"
    ),
    NoteKind.TENSORS_DEPART: (
        "{subject!r}{by}: the engine's first tensor that plain FP16 does not explain. Its error is {error:.2g}; "
        "emulated FP16 has {fp16:.2g}. The tensor before it has {before:.2g}"
    ),
    NoteKind.TENSORS_AS_FP16: (
        "plain FP16 explains {count:many tensor} inside the engine; the largest error is {error:.2g}, of "
        "{subject!r}{by}"
    ),
    NoteKind.TENSORS_OF_OTHERS: (
        "The tensors of the engine were not compared: {subject}, the first that depends on the inputs, has an error of "
        "{error:.2g}. Give the inputs that it ran on (trtexec --loadInputs)."
    ),
    NoteKind.WRITTEN_BY: ", of node {subject!r}",
    NoteKind.NEXT_FIX: "finds the fewest FP32 nodes and exact repairs, and writes the model and the build files",
    NoteKind.NEXT_INPUTS: "with real inputs in place of samples/, finds the fewest FP32 nodes and writes the model",
    NoteKind.NEXT_PROOF: "no cause was found: validates FP16 on held-out inputs and writes the typed model",
    NoteKind.NEXT_VERIFY: "it is fixed already: compares it with {subject}, which it was made from; then build it",
    NoteKind.NEXT_ONNX: "{subject} cannot be examined as it is",
    NoteKind.NEXT_LAYERS: "run it where the engine was built: it lists the layers; add that file",
    NoteKind.NEXT_CUT: "writes the part of the model in front of {subject!r} ({op}), which ONNX Runtime does not run",
    NoteKind.NEXT_SCAN: "reads all of it: ONNX Runtime does not run {subject!r} ({op}), so nothing else can",
    NoteKind.NEXT_MODEL: "add the ONNX model that was built: then causes can be found",
}
