"""The kinds of files that a user has in hand, what each is called, and the way on from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

__all__ = ["WORDS", "FileKind", "Words"]


class FileKind(Enum):
    """What a file is."""

    ONNX = "onnx"
    EXTERNAL_DATA = "external-data"
    ORT_FORMAT = "ort-format"
    CHECKPOINT = "pytorch-checkpoint"
    TORCHSCRIPT = "torchscript"
    TORCH_EXPORT = "torch-export"
    PICKLE = "pickle"
    SAFETENSORS = "safetensors"
    SHARD_INDEX = "shard-index"
    GGUF = "gguf"
    TFLITE = "tflite"
    SAVED_MODEL = "saved-model"
    FROZEN_GRAPH = "frozen-graph"
    HDF5 = "hdf5"
    KERAS = "keras"
    OPENVINO = "openvino"
    ENGINE = "engine"
    TIMING_CACHE = "timing-cache"
    CALIBRATION_CACHE = "calibration-cache"
    BUILD_LOG = "build-log"
    BUILD_SCRIPT = "build-script"
    LAYERS = "layers"
    PROFILE = "profile"
    POLYGRAPHY_INPUTS = "polygraphy-inputs"
    POLYGRAPHY_OUTPUTS = "polygraphy-outputs"
    TRTEXEC_OUTPUTS = "trtexec-outputs"
    BINDING = "trtexec-binding"
    TENSOR_SUMMARY = "trtexec-tensors"
    RAW = "raw-values"
    NPZ = "npz"
    NPY = "npy"
    IMAGE = "image"
    AUDIO = "audio"
    RESULT = "result"
    PLAN = "plan"
    JSON = "json"
    LFS_POINTER = "lfs-pointer"
    HTML = "html"
    ZIPPED_MODEL = "zipped-model"
    ARCHIVE = "archive"
    CUT_OFF = "cut-off-archive"
    CUT_OFF_ONNX = "cut-off-onnx"
    EMPTY = "empty"
    SAMPLES = "samples"
    TENSORS = "engine-tensors"
    FOLDER = "folder"
    MISSING = "missing"
    TEXT = "text"
    BINARY = "binary"


@dataclass(frozen=True)
class Words:
    """What a kind is called in a sentence, and what to do with it where another file was wanted."""

    name: str
    way: str = ""


_EXPORT = "export the model that uses it with torch.onnx.export(model, inputs, 'model.onnx')"
_TENSORFLOW = "convert it with tf2onnx (python -m tf2onnx.convert {option} {name} --output model.onnx)"
_ENGINE = (
    "give the ONNX model that it was built from; its layers are listed by "
    "trtexec --loadEngine={name} --exportLayerInfo=layers.json, and `halfwise audit layers.json` reads that"
)
_UNPACK = "unpack it and give the .onnx file in it"

WORDS: Mapping[FileKind, Words] = {
    FileKind.ONNX: Words("an ONNX model", "give it as the model"),
    FileKind.EXTERNAL_DATA: Words("the external data of an ONNX model", "give the .onnx file beside it"),
    FileKind.ORT_FORMAT: Words("a model in ONNX Runtime's own format", "give the .onnx file that it was made from"),
    FileKind.CHECKPOINT: Words(
        "a PyTorch checkpoint", f"it holds weights without a graph: {_EXPORT}; `halfwise scan {{name}}` judges weights"
    ),
    FileKind.TORCHSCRIPT: Words(
        "a TorchScript program", "export it: torch.onnx.export(torch.jit.load('{name}'), inputs, 'model.onnx')"
    ),
    FileKind.TORCH_EXPORT: Words(
        "a program saved by torch.export",
        "export it: torch.onnx.export(torch.export.load('{name}'), (), 'model.onnx', dynamo=True)",
    ),
    FileKind.PICKLE: Words("a Python pickle, which is never loaded", _EXPORT),
    FileKind.SAFETENSORS: Words(
        "a safetensors file", f"it holds weights without a graph: {_EXPORT}; `halfwise scan {{name}}` judges weights"
    ),
    FileKind.SHARD_INDEX: Words(
        "an index of a checkpoint's shards", f"{_EXPORT}; `halfwise scan {{name}}` judges weights"
    ),
    FileKind.GGUF: Words("a GGUF file of llama.cpp", "export the original model to ONNX"),
    FileKind.TFLITE: Words("a TensorFlow Lite model", _TENSORFLOW.replace("{option}", "--tflite")),
    FileKind.SAVED_MODEL: Words("a TensorFlow SavedModel", _TENSORFLOW.replace("{option}", "--saved-model")),
    FileKind.FROZEN_GRAPH: Words(
        "a frozen TensorFlow graph",
        "convert it with tf2onnx (python -m tf2onnx.convert --graphdef {name} --inputs X:0 --outputs Y:0 --output "
        "model.onnx)",
    ),
    FileKind.HDF5: Words(
        "an HDF5 file, as Keras writes", "load it in Keras and call model.export('model.onnx', 'onnx')"
    ),
    FileKind.KERAS: Words("a Keras model", "load it in Keras and call model.export('model.onnx', 'onnx')"),
    FileKind.OPENVINO: Words("an OpenVINO model", "give the ONNX model that it was converted from"),
    FileKind.ENGINE: Words("a TensorRT engine", _ENGINE),
    FileKind.TIMING_CACHE: Words("a TensorRT timing cache", "give the ONNX model; the cache holds kernel times only"),
    FileKind.CALIBRATION_CACHE: Words(
        "an INT8 calibration cache of TensorRT", "give the ONNX model; the cache holds INT8 scales only"
    ),
    FileKind.BUILD_LOG: Words("a TensorRT build log", "`halfwise log {name}` reads it"),
    FileKind.BUILD_SCRIPT: Words("a script with a TensorRT build command", "`halfwise doctor {name}` checks its flags"),
    FileKind.LAYERS: Words("an engine's layer list", "`halfwise audit {name}` reads it"),
    FileKind.PROFILE: Words(
        "a list of times that trtexec measured", "give the layer list of --exportLayerInfo instead"
    ),
    FileKind.POLYGRAPHY_INPUTS: Words("inputs that Polygraphy saved", "give it with --inputs"),
    FileKind.POLYGRAPHY_OUTPUTS: Words(
        "outputs that Polygraphy saved", "`halfwise verify MODEL.onnx {name} --inputs ...` judges them"
    ),
    FileKind.TRTEXEC_OUTPUTS: Words(
        "outputs that trtexec exported", "`halfwise verify MODEL.onnx {name} --inputs ...` judges them"
    ),
    FileKind.BINDING: Words(
        "an input or output of an engine, dumped by trtexec", "`halfwise doctor MODEL.onnx {name}` reads it"
    ),
    FileKind.TENSOR_SUMMARY: Words(
        "a summary of the tensors inside an engine", "`halfwise doctor MODEL.onnx {name}` compares them"
    ),
    FileKind.RAW: Words("a file of raw values without a header", "give it with --inputs NAME:{name}"),
    FileKind.NPZ: Words("an .npz file of arrays", "give it with --inputs"),
    FileKind.NPY: Words("an .npy file of one array", "give it with --inputs"),
    FileKind.IMAGE: Words("an image", "give its folder with --images"),
    FileKind.AUDIO: Words("an audio file", "give its folder with --audio"),
    FileKind.RESULT: Words("a result of halfwise"),
    FileKind.PLAN: Words("a plan of `halfwise fix`", "give it with --plan"),
    FileKind.JSON: Words("a JSON file of another tool"),
    FileKind.LFS_POINTER: Words(
        "a Git LFS pointer of 130 bytes and not the file itself", "fetch it with: git lfs pull --include {name}"
    ),
    FileKind.HTML: Words("an HTML page saved under this name", "download the file itself (on GitHub: the Raw button)"),
    FileKind.ZIPPED_MODEL: Words("a zip archive with an ONNX model in it", _UNPACK),
    FileKind.ARCHIVE: Words("an archive", _UNPACK),
    FileKind.CUT_OFF: Words("a zip archive whose end is missing", "copy or download it again"),
    FileKind.CUT_OFF_ONNX: Words("the beginning of an ONNX model", "its end is missing: copy or download it again"),
    FileKind.EMPTY: Words("empty"),
    FileKind.SAMPLES: Words("a folder of inputs", "give it with --inputs"),
    FileKind.TENSORS: Words(
        "a folder of tensors inside an engine", "`halfwise doctor MODEL.onnx {name}` compares them"
    ),
    FileKind.FOLDER: Words("a folder"),
    FileKind.MISSING: Words("no file or folder that is there"),
    FileKind.TEXT: Words("a text"),
    FileKind.BINARY: Words("a binary file of no known kind"),
}
