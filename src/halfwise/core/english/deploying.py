"""Notes on building an engine from a decision."""

from __future__ import annotations

from halfwise.core.notes import NoteKind

__all__ = ["DEPLOYING"]

DEPLOYING = {
    NoteKind.RTX_SM75: "TensorRT-RTX builds for compute capability 7.5 only when asked to (SM75).",
    NoteKind.RTX_WITHOUT_GPU: (
        "TensorRT-RTX does not run on {gpu}; it needs compute capability 7.5, 8.0, 8.6, 8.9 or at least 12.0."
    ),
    NoteKind.IMPORTERS_RETYPE: (
        "Before TensorRT 9.2, some ONNX importers changed the types of the model under strong typing."
    ),
    NoteKind.OWN_NOT_READ: (
        "{subject} does not read operators of ONNX Runtime's own, so they are written in ONNX's: {ops:plain}."
    ),
    NoteKind.STANDARD_NOT_READ: (
        "{subject} does not read {ops:plain} in the model's form, so nodes that compute the same are written instead."
    ),
    NoteKind.MAPS_NOT_READ: (
        "{subject} has no maps, so the tensors behind ZipMap are outputs instead: {tensors:plain}. Their columns "
        "follow its labels."
    ),
    NoteKind.STANDARD_OVERFLOWS: (
        "{subject} overflows in {ops:plain}, which its parser writes without taking the maximum out first. Steps that "
        "stay finite are written instead."
    ),
    NoteKind.NOT_WRITTEN_OUT: (
        "{subject} does not read {nodes:list}. Products instead need fixed sizes, constant options and at most "
        "4 million elements a matrix: export it so, or compute it outside the model."
    ),
    NoteKind.QUANTISED_NOT_READ: (
        "{subject} reads only tensors quantised to {types:plain} with zero points of 0, unlike those of node {node!r}. "
        "Its build ends there: quantise again, symmetric, to INT8."
    ),
    NoteKind.INTEGERS_NOT_READ: (
        "{subject} does not read {op} (node {node!r}), which computes with quantised integers. Its build ends there: "
        "quantise as QuantFormat.QDQ, symmetric, to INT8, or give the model before quantisation."
    ),
    NoteKind.QUANTISED_STORED: (
        "{subject} does not read weights quantised like that of node {node!r}. Stored as floats, which takes more "
        "memory: {count:many weight}. Symmetric INT8 or INT4 stays small."
    ),
    NoteKind.OWN_WITHOUT_KERNEL: (
        "ONNX Runtime has no FP16 kernel of {ops:plain}, so they are written in ONNX's operators."
    ),
    NoteKind.OWN_WIDE_ON_CPU: (
        "ONNX Runtime's CUDA provider has no FP32 kernel of {op}, so {subject!r} runs on the CPU."
    ),
    NoteKind.COMPILED: (
        "Compiled with {compiler}: {kept} of the {wanted:many node} kept out of {format} stay out. "
        "{kernels:many kernel}, {megabytes:.2f} MB between them, {casts:many cast}, {reformats:many "
        "reformat}."
    ),
    NoteKind.COMPILED_ALL_NARROW: (
        "Compiled with {compiler}: no node had to stay out of {format}. "
        "{kernels:many kernel}, {megabytes:.2f} MB between them, {casts:many cast}, {reformats:many "
        "reformat}."
    ),
    NoteKind.PRECISION_UNKNOWN: "The engine does not show the precision of {count:many node} kept out of FP16.",
    NoteKind.NOT_KEPT: "Not kept: {subject!r} was planned in {wanted}, got {got}: {why:said}",
    NoteKind.MORE_NOT_KEPT: "Not kept: {count:many more node/more nodes} (`violations` in --json).",
    NoteKind.NEAREST_COMPILER: (
        "{compiler} is the nearest compiler that runs without a GPU. {target} has its own, so audit its engine, too."
    ),
    NoteKind.KNOWN_DEFECTS: (
        "Known precision defects of {target} that this model can meet: {ids:plain} (halfwise advise)."
    ),
    NoteKind.DEFECTS_NOT_PREVENTED: (
        "Nothing in the plan prevents the known defects of {target}: audit the engine, and compare its outputs."
    ),
    NoteKind.WEAK_NOT_COMPILED: (
        "Nothing was compiled for this target: TensorRT-RTX takes typed models only, and under weak typing "
        "the builder decides. Audit the layers that your build exports."
    ),
    NoteKind.SHAPES_OPEN: "The shapes of the inputs are left to you: {error}",
    NoteKind.FP32_MODEL_WRITTEN: "{subject} is the model in FP32 with the node names of the plan. Build from it.",
    NoteKind.PARSER_MISSING: (
        "Layer names are predicted from the nodes: TensorRT-RTX, whose parser tells them, is not installed. {install}"
    ),
    NoteKind.PARSER_FAILED: ("Layer names are predicted from the nodes, because the parser did not tell them: {error}"),
    NoteKind.PARSER_TOLD: (
        "Layer names are those of the ONNX parser in TensorRT-RTX {version}. {target} has another release of "
        "that parser, which may number further layers of a node differently."
    ),
    NoteKind.FOLDED: "The parser makes no layer of {nodes:list} (folded), so no precision is set there.",
    NoteKind.LOOPS: (
        "{operators:plain} become loops of many layers, some of them integer. The command sets their "
        "precision without output types; the build script sets both, layer by layer."
    ),
    NoteKind.NO_COMMAND: "No trtexec command was written: {error}",
    NoteKind.NO_SCRIPT: "No build script was written: {error}",
    NoteKind.TF32: ("FP32 layers may use TF32 (10 bits of mantissa) from compute capability 8.0 on: see --noTF32."),
    NoteKind.SHAPE_LIMITS: (
        "The engine takes inputs of open shape only as the samples have them: {limits}. For others edit "
        "--minShapes, --optShapes and --maxShapes (in the build script: shapes), or plan with inputs that "
        "span them."
    ),
    NoteKind.SCRIPT_SHAPE_LIMITS: (
        "The engine takes inputs of open shape only as the samples have them: {limits}. The build script sets"
        " these shapes; this command does not."
    ),
    NoteKind.TOOL_UNVERIFIED: (
        "The options of the {subject} executable are not verified here. Prefer the Python build script."
    ),
    NoteKind.IO_TYPES_FIXED: (
        "Under strong typing, the types in --inputIOFormats and --outputIOFormats must be those of the model."
        " From 10.15 on, trtexec stops where they differ."
    ),
    NoteKind.NAMES_PREDICTED: (
        "These layer names are predicted from the ONNX nodes, and trtexec ignores a name that no layer has. {check}"
    ),
    NoteKind.NAME_SHADOWED: (
        "The layer {subject!r} may be a second layer of node {other!r} instead of node {subject!r}."
    ),
    NoteKind.NAME_IS_PATTERN: (
        "trtexec also reads the name {subject!r} as a pattern, which matches {layers:names}, too."
    ),
    NoteKind.NO_LAYER_METADATA: (
        "Before TensorRT 8.6, layers carry no metadata: the layer info names layers, not ONNX nodes."
    ),
    NoteKind.WEAK_TYPING_LIMITS: (
        "A compiled region may still run one of these layers in FP16, which the audit shows. Mark the tensors "
        "around the layer as network outputs, which splits the region. Or export norms as LayerNormalization "
        "(opset 17), which TensorRT 8.6 and later compute in FP32."
    ),
    NoteKind.STRONG_TYPING_HELPS: "The typed ONNX model with --stronglyTyped avoids this.",
    NoteKind.CHANNELS_PADDED: (
        "{subject!r} as {layout}: {channels:many channel is/channels are} padded to {padded}, so the buffer is "
        "{times:.3g} times as large. The caller allocates and fills it."
    ),
}
