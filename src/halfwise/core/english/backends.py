"""Notes on real backends, engines and files."""

from __future__ import annotations

from halfwise.core.notes import NoteKind

__all__ = ["BACKENDS"]

BACKENDS = {
    NoteKind.PROCESS_ENDED: "{starts:many attempt} ended the whole process",
    NoteKind.BUILD_FAILS: "{error}",
    NoteKind.ENGINE_UNTRIED: (
        "The backend {subject} follows TensorRT's documented API. Its authors never ran it with the real "
        "library on a GPU; please report what it does."
    ),
    NoteKind.CPU_COMPUTES_WIDE: (
        "ONNX Runtime's CPU provider computes FP16 in FP32 and drops roundings between nodes. A model that is"
        " accurate there may overflow or lose digits on a GPU. Use ort-cuda on an NVIDIA GPU, or verify "
        "without a backend."
    ),
    NoteKind.PROVIDER_MAY_RETYPE: (
        "ONNX Runtime's TensorRT provider may change the model's types: up to TensorRT 10 it may not build "
        "strongly typed. The backend tensorrt does."
    ),
    NoteKind.OUTPUTS_UNCHECKED: "{subject} does not tell which model, inputs and device its outputs come from.",
    NoteKind.RAN_ON_CPU: (
        "{count:many floating-point node} ran on the CPU: {provider} has no kernel for {nodes:names} as typed."
    ),
    NoteKind.PLACEMENT_UNKNOWN: "This ONNX Runtime does not tell which nodes the provider took.",
    NoteKind.LIBRARY_WARNS: "{library} warned: {text}",
    NoteKind.REGIONS_OPAQUE: (
        "{count:many Myelin region} listed as one layer each: only the types of their inputs and outputs are visible."
    ),
    NoteKind.NAMES_ONLY: "The engine lists names only. Build with --profilingVerbosity=detailed to see types.",
    NoteKind.OTHER_MODEL: (
        "The model given has no FP16, but the engine has. Give the model that the engine was built from."
    ),
    NoteKind.STATED_NOT_KEPT: (
        "{count} of {total:many node} that the model states in FP32 did not run so: {names:list}."
    ),
    NoteKind.NOTHING_IN_FP16: "All kernels read and write FP32 only: nothing shows that this engine runs in FP16.",
    NoteKind.LAST_ENGINE: "The log lists {engines} engines; the last one is audited.",
    NoteKind.COMPILED_FOR_INPUTS: "Compiled for the shapes of the inputs given: {ranges:plain}.",
    NoteKind.COMPILED_FOR_SYNTHETIC: (
        "Compiled for the shapes of generated inputs: {ranges:plain}. Give yours with --inputs."
    ),
    NoteKind.STATE_CHOSEN: "The tensors under {subject!r} are read.",
    NoteKind.STATE_CHOSEN_AMONG: "The tensors under {subject!r} are read; {others:list} left out.",
    NoteKind.FP16_EMULATED: (
        "FP16 is emulated: every operator computes in FP32 and rounds, and autocast casts as on a GPU. A "
        "CPU's own autocast leaves softmax, norms, exp, log, pow and sums in FP16."
    ),
    NoteKind.MODULE_IS_FORGIVING: (
        "An FP16 module is more forgiving than an FP16 engine: softmax, norms and attention are one operator "
        "each, with FP32 inside. halfwise.torch.stages judges the exported model."
    ),
    NoteKind.HALF_FAILS: (
        ".half() alone does not run, because the module makes FP32 tensors: {failure}. For the numbers, these"
        " were rounded to FP16, too."
    ),
}
