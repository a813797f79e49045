"""The runtimes that a target can name."""

from __future__ import annotations

from collections.abc import Iterator

from halfwise.core.notes import Note, NoteKind
from halfwise.core.targets.flags import TRTEXEC_FLAGS
from halfwise.core.targets.gpus import Gpu
from halfwise.core.targets.runtime import Builder, Runtime, Typing
from halfwise.core.targets.version import Span, Version

__all__ = ["ONNX", "ORT_CUDA", "RTX", "RUNTIMES", "STRICT_PROFILE", "TENSORRT"]

STRICT_PROFILE = "strict"  # the profile that rounds every stored tensor and fuses nothing


# By the parser's release notes; RTX 1.7 refuses all others and all zero points but 0.
_QUANTISED = {"INT8": "", "UINT8": "", "FLOAT8E4M3FN": "9.0", "INT4": "10.0"}
# As the parser of RTX 1.7 answered, which is TensorRT's; its release notes name none of them either.
_UNREAD = frozenset(
    {"Col2Im", "Resize with antialias", "Resize to TensorFlow's nearest place", "STFT of complex numbers"}
)


def _tensorrt_cautions(typing: Typing, span: Span | None, gpu: Gpu | None) -> Iterator[Note]:
    if typing is Typing.STRONG and span is not None and span.within(Version.parse("9.1").span):
        yield Note.of(NoteKind.IMPORTERS_RETYPE)


def _rtx_cautions(typing: Typing, span: Span | None, gpu: Gpu | None) -> Iterator[Note]:
    if gpu is None:
        return
    if gpu.sm == 75:
        yield Note.of(NoteKind.RTX_SM75)
    elif gpu.sm not in (80, 86, 89) and gpu.sm < 120:
        yield Note.of(NoteKind.RTX_WITHOUT_GPU, gpu=gpu.describe())


# Any strongly typed runtime: promises nothing but the ONNX types.
ONNX = Runtime("onnx", "ONNX", STRICT_PROFILE, ("onnx",))
TENSORRT = Runtime(
    "trt",
    "TensorRT",
    "tensorrt",
    ("trt-10.9", "trt-10.9@t4", "trt-10.9+weak@t4"),
    other_names=("tensorrt",),
    releases={8: (4, 6), 9: (1, 3), 10: (0, None), 11: (0, None)},
    strong_from="9.1",
    weak_until="10",
    formats={"fp32": "", "fp16": "", "bf16": "9.1"},
    # By the parser's release notes (pull requests 904, 998, 1022 and 1048 of onnx/onnx-tensorrt, and TensorRT's release
    # 11.2). GroupNormalization has been read since 8.6, but that of opset 21, with a scale for each channel, since 10.9
    # only. DFT is a plugin.
    reads_since={
        "LayerNormalization": "8.6",
        "GroupNormalization": "10.9",
        "RMSNormalization": "10.15",
        "STFT": "10.5",
        "DFT": "11.2",
    },
    unread=_UNREAD,
    # Its parser writes log(sum(exp(x))), that of RTX takes the maximum out first: NVIDIA/TensorRT#4772,
    # onnx/onnx-tensorrt#1055.
    unstable=frozenset({"ReduceLogSumExp"}),
    reads_own=frozenset(),
    quantised=_QUANTISED,
    blocks={"INT4": "10.0"},
    folds_constants=False,
    builder=Builder("trtexec", ("tensorrt",), TRTEXEC_FLAGS),
    cautions=_tensorrt_cautions,
)
RTX = Runtime(
    "rtx",
    "TensorRT-RTX",
    "tensorrt",
    ("rtx-1.7",),
    other_names=("tensorrt-rtx", "trt-rtx"),
    releases={1: (0, None)},
    # As the parser of 1.7 answered. It knows MultiHeadAttention, GroupQueryAttention, RotaryEmbedding and MatMulNBits
    # in a few forms only.
    unread=_UNREAD | {"DFT"},
    reads_own=frozenset({"Gelu", "SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization"}),
    quantised=dict.fromkeys(_QUANTISED, ""),
    blocks={"INT4": "", "INT8": ""},
    negative_scales=frozenset({"INT4"}),
    folds_constants=False,
    builder=Builder("tensorrt_rtx", ("tensorrt_rtx", "tensorrt_rtx_bindings"), offline=True),
    cautions=_rtx_cautions,
)
ORT_CUDA = Runtime(
    "ort-cuda",
    "ort-cuda",
    "ort-cuda",
    ("ort-cuda",),
    other_names=("cuda", "onnxruntime"),
    without={"bf16": "ONNX Runtime's CUDA provider has BF16 kernels for some operators only"},
    fuses_norms=True,
)

RUNTIMES: dict[str, Runtime] = {runtime.name: runtime for runtime in (ONNX, TENSORRT, RTX, ORT_CUDA)}
