"""The operator forms whose kernels are looked at on a GPU: models of one node, with inputs drawn from their names."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

__all__ = ["FORMS", "Draw", "Form", "every_number", "integers", "normal", "uniform"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Draw:
    """How one input is made. `constant`: an initializer of the model rather than an input."""

    kind: str  # normal, uniform, every (all numbers of FP16), bits (random numbers of FP16), integers
    shape: tuple[int, ...] = ()
    low: float = 0.0
    high: float = 1.0
    values: tuple[int, ...] = ()
    constant: bool = False

    def make(self, rng: np.random.Generator) -> Array:
        if self.kind == "integers":
            return np.array(self.values, dtype=np.int64).reshape(self.shape or (len(self.values),))
        if self.kind == "every":
            return np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
        if self.kind == "bits":
            drawn = rng.integers(0, 1 << 16, size=self.shape, dtype=np.uint16).view(np.float16)
            return drawn.astype(np.float32)
        if self.kind == "uniform":
            real = self.low + (self.high - self.low) * rng.random(self.shape)
        else:
            real = self.low + self.high * rng.standard_normal(self.shape)
        return np.asarray(real).astype(np.float16).astype(np.float32)


def normal(*shape: int, mean: float = 0.0, scale: float = 1.0, constant: bool = False) -> Draw:
    return Draw("normal", shape, mean, scale, constant=constant)


def uniform(*shape: int, low: float = 0.0, high: float = 1.0, constant: bool = False) -> Draw:
    return Draw("uniform", shape, low, high, constant=constant)


def every_number() -> Draw:
    return Draw("every", (1 << 16,))


def pairs(count: int = 1 << 16) -> Draw:
    return Draw("bits", (count,))


def integers(*values: int, shape: tuple[int, ...] = ()) -> Draw:
    return Draw("integers", shape, values=values, constant=True)


@dataclass(frozen=True)
class Form:
    """One operator at one size. `length` is how many terms a result sums up, 0 where it sums nothing."""

    name: str
    op: str
    inputs: tuple[Draw | None, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    length: int = 0
    outputs: int = 1
    opset: int = 20
    nodes: tuple[tuple[str, str, str], ...] = ()  # of a form that fuses: operator, what it reads, what it makes

    @property
    def fused(self) -> bool:
        return bool(self.nodes)

    def model(self) -> onnx.ModelProto:
        """The model in FP32; the values of its weights are numbers of FP16."""
        arrays = self._arrays()
        names = ["" if draw is None else f"x{i}" for i, draw in enumerate(self.inputs)]
        outputs = [f"y{i}" for i in range(self.outputs)]
        if self.nodes:
            nodes = [
                helper.make_node(op, reads.split(), makes.split(), f"n{i}", **self.attributes.get(op, {}))
                for i, (op, reads, makes) in enumerate(self.nodes)
            ]
        else:
            nodes = [helper.make_node(self.op, names, outputs, "node", **self.attributes)]
        inputs, weights = [], []
        for name, draw, array in zip(names, self.inputs, arrays, strict=True):
            if draw is None or array is None:
                continue
            if draw.constant:
                weights.append(numpy_helper.from_array(array, name))
            else:
                kind = helper.np_dtype_to_tensor_dtype(array.dtype)
                inputs.append(helper.make_tensor_value_info(name, kind, array.shape))
        kinds = [TensorProto.INT64 if self.op in ("ArgMax", "ArgMin") or (self.op == "TopK" and i) else
                 TensorProto.FLOAT for i in range(self.outputs)]  # fmt: skip
        infos = [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(outputs, kinds, strict=True)]
        graph = helper.make_graph(nodes, "form", inputs, infos, weights)
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        return onnx.shape_inference.infer_shapes(proto)

    def feed(self) -> dict[str, Array]:
        """The inputs in FP32; their values are numbers of FP16."""
        return {
            f"x{i}": array
            for i, (draw, array) in enumerate(zip(self.inputs, self._arrays(), strict=True))
            if draw is not None and array is not None and not draw.constant
        }

    def _arrays(self) -> list[Array | None]:
        rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        return [None if draw is None else draw.make(rng) for draw in self.inputs]


def _conv(name: str, channels: int, outs: int, kernel: Sequence[int], size: Sequence[int], *, bias: bool,
          group: int = 1, op: str = "Conv", **attributes: Any) -> Form:  # fmt: skip
    length = channels // group * int(np.prod(kernel))
    scale = 1.0 / np.sqrt(length)
    rows = (outs, channels // group) if op == "Conv" else (channels, outs // group)
    weights = normal(*rows, *kernel, scale=float(scale), constant=True)
    inputs: tuple[Draw | None, ...] = (normal(1, channels, *size), weights)
    if bias:
        inputs += (normal(outs, constant=True),)
    attributes = {"kernel_shape": list(kernel), "group": group, **attributes}
    return Form(name, op, inputs, attributes, length)


def _convolutions() -> list[Form]:
    p1: dict[str, Any] = {"pads": [1, 1, 1, 1]}
    return [
        _conv("conv 1x1, 16 channels", 16, 32, (1, 1), (16, 16), bias=False),
        _conv("conv 1x1, 16 channels, bias", 16, 32, (1, 1), (16, 16), bias=True),
        _conv("conv 1x1, 256 channels, bias", 256, 64, (1, 1), (14, 14), bias=True),
        _conv("conv 1x1, 2048 channels", 2048, 32, (1, 1), (14, 14), bias=False),
        _conv("conv 1x1, 2048 channels, bias", 2048, 32, (1, 1), (14, 14), bias=True),
        _conv("conv 1x1 of one position, bias", 256, 256, (1, 1), (1, 1), bias=True),
        _conv("conv 3x3, 3 channels, stride 2, bias", 3, 32, (3, 3), (64, 64), bias=True, strides=[2, 2], **p1),
        _conv("conv 3x3, 64 channels", 64, 64, (3, 3), (28, 28), bias=False, **p1),
        _conv("conv 3x3, 64 channels, bias", 64, 64, (3, 3), (28, 28), bias=True, **p1),
        _conv("conv 3x3, 512 channels, bias", 512, 64, (3, 3), (14, 14), bias=True, **p1),
        _conv("conv 7x7, 3 channels, stride 2, bias", 3, 64, (7, 7), (64, 64), bias=True, strides=[2, 2],
              pads=[3, 3, 3, 3]),
        _conv("conv 3x3, dilation 6, bias", 64, 64, (3, 3), (28, 28), bias=True, dilations=[6, 6], pads=[6] * 4),
        _conv("conv 3x3, depthwise", 64, 64, (3, 3), (28, 28), bias=False, group=64, **p1),
        _conv("conv 3x3, depthwise, bias", 64, 64, (3, 3), (28, 28), bias=True, group=64, **p1),
        _conv("conv 3x3, depthwise, stride 2, bias", 96, 96, (3, 3), (56, 56), bias=True, group=96, strides=[2, 2],
              **p1),
        _conv("conv 5x5, depthwise, bias", 64, 64, (5, 5), (28, 28), bias=True, group=64, pads=[2] * 4),
        _conv("conv 7x7, depthwise, bias", 96, 96, (7, 7), (28, 28), bias=True, group=96, pads=[3] * 4),
        _conv("conv 3x3, depthwise, dilation 2, bias", 64, 64, (3, 3), (28, 28), bias=True, group=64,
              dilations=[2, 2], pads=[2] * 4),
        _conv("conv 3x3, 4 groups, bias", 64, 64, (3, 3), (28, 28), bias=True, group=4, **p1),
        _conv("conv 16x16 patches, bias", 3, 256, (16, 16), (112, 112), bias=True, strides=[16, 16]),
        _conv("conv of one dimension, bias", 64, 64, (5,), (400,), bias=True, pads=[2, 2]),
        _conv("conv of three dimensions, bias", 16, 32, (3, 3, 3), (8, 12, 12), bias=True, pads=[1] * 6),
        _conv("transposed conv 2x2, stride 2", 32, 32, (2, 2), (28, 28), bias=False, op="ConvTranspose",
              strides=[2, 2]),
        _conv("transposed conv 2x2, stride 2, bias", 32, 32, (2, 2), (28, 28), bias=True, op="ConvTranspose",
              strides=[2, 2]),
        _conv("transposed conv 3x3, stride 2, bias", 64, 32, (3, 3), (20, 20), bias=True, op="ConvTranspose",
              strides=[2, 2], pads=[1, 1, 1, 1]),
        _conv("transposed conv, depthwise, bias", 16, 16, (3, 3), (20, 20), bias=True, op="ConvTranspose", group=16,
              strides=[2, 2], pads=[1, 1, 1, 1]),
    ]  # fmt: skip


def _products() -> list[Form]:
    forms = [
        Form(f"matmul over {k}", "MatMul",
             (normal(64, k), normal(k, 256, scale=float(1 / np.sqrt(k)), constant=True)), length=k)
        for k in (8, 64, 256, 1024, 4096, 16384)
    ]  # fmt: skip
    forms += [
        Form("matmul of positive values over 4096", "MatMul",
             (uniform(64, 4096), uniform(4096, 256, constant=True)), length=4096),
        Form("matmul, batched, over 64", "MatMul", (normal(8, 96, 64), normal(8, 64, 96, scale=0.125)), length=64),
        Form("matmul, batched, over 1024", "MatMul", (normal(4, 64, 1024), normal(4, 1024, 64, scale=0.03)),
             length=1024),
        Form("matmul of three axes by a weight", "MatMul",
             (normal(2, 49, 384), normal(384, 384, scale=0.05, constant=True)), length=384),
        Form("matmul of a vector", "MatMul", (normal(1, 768), normal(768, 768, scale=0.036, constant=True)),
             length=768),
        Form("matmul of odd sizes", "MatMul", (normal(3, 37), normal(37, 11, scale=0.16, constant=True)), length=37),
        Form("gemm", "Gemm", (normal(32, 512), normal(512, 128, scale=0.044, constant=True)), length=512),
        Form("gemm, bias", "Gemm",
             (normal(32, 512), normal(512, 128, scale=0.044, constant=True), normal(128, constant=True)), length=512),
        Form("gemm, transposed, bias", "Gemm",
             (normal(32, 512), normal(128, 512, scale=0.044, constant=True), normal(128, constant=True)),
             {"transB": 1}, 512),
        Form("gemm, alpha and beta", "Gemm",
             (normal(32, 512), normal(512, 128, scale=0.044, constant=True), normal(128, constant=True)),
             {"alpha": 0.3, "beta": 0.7}, 512),
        Form("einsum bij,bjk", "Einsum", (normal(4, 48, 64), normal(4, 64, 48, scale=0.125)),
             {"equation": "bij,bjk->bik"}, 64),
        Form("einsum bhid,bhjd", "Einsum", (normal(2, 4, 48, 32), normal(2, 4, 48, 32, scale=0.17)),
             {"equation": "bhid,bhjd->bhij"}, 32),
    ]  # fmt: skip
    return forms


def _softmaxes() -> list[Form]:
    forms = [Form(f"softmax over {n}", "Softmax", (normal(max(2, 16384 // n), n, scale=3.0),), {"axis": -1}, n)
             for n in (2, 10, 64, 197, 1000, 1024, 1025, 4096, 16384)]  # fmt: skip
    forms += [
        Form("softmax along a middle axis", "Softmax", (normal(4, 21, 196, scale=3.0),), {"axis": 1}, 21),
        Form("log-softmax over 10", "LogSoftmax", (normal(512, 10, scale=3.0),), {"axis": -1}, 10),
        Form("log-softmax over 1000", "LogSoftmax", (normal(32, 1000, scale=3.0),), {"axis": -1}, 1000),
        Form("log-softmax over 4096", "LogSoftmax", (normal(8, 4096, scale=3.0),), {"axis": -1}, 4096),
    ]
    return forms


def _norms() -> list[Form]:
    def scale_bias(n: int) -> tuple[Draw, Draw]:
        return normal(n, mean=1.0, scale=0.3, constant=True), normal(n, scale=0.3, constant=True)

    forms = [Form(f"layer norm over {n}", "LayerNormalization", (normal(32, n, mean=0.5, scale=2.0), *scale_bias(n)),
                  {"axis": -1, "epsilon": 1e-5}, n) for n in (64, 768, 1024, 4096)]  # fmt: skip
    forms += [
        Form("layer norm of large values", "LayerNormalization",
             (normal(32, 256, mean=300.0, scale=900.0), *scale_bias(256)), {"axis": -1}, 256),
        Form("layer norm of two axes", "LayerNormalization",
             (normal(16, 12, 48), normal(12, 48, mean=1.0, scale=0.3, constant=True),
              normal(12, 48, scale=0.3, constant=True)), {"axis": -2}, 576),
        Form("layer norm, no bias", "LayerNormalization",
             (normal(32, 768), normal(768, mean=1.0, scale=0.3, constant=True)), {"axis": -1}, 768),
        Form("RMS norm over 768", "RMSNormalization",
             (normal(32, 768, scale=2.0), normal(768, mean=1.0, scale=0.3, constant=True)), {"axis": -1}, 768, 1, 23),
        Form("RMS norm of large values", "RMSNormalization",
             (normal(32, 768, scale=900.0), normal(768, mean=1.0, scale=0.3, constant=True)), {"axis": -1}, 768, 1,
             23),
        Form("batch norm", "BatchNormalization",
             (normal(1, 64, 16, 16), *scale_bias(64), normal(64, scale=0.5, constant=True),
              uniform(64, low=0.3, high=3.0, constant=True))),
        Form("batch norm of two axes", "BatchNormalization",
             (normal(32, 64), *scale_bias(64), normal(64, scale=0.5, constant=True),
              uniform(64, low=0.3, high=3.0, constant=True))),
        Form("instance norm over 28x28", "InstanceNormalization",
             (normal(1, 32, 28, 28, mean=0.5, scale=2.0), *scale_bias(32)), {}, 784),
        Form("instance norm over 112x112", "InstanceNormalization",
             (normal(1, 4, 112, 112, mean=0.5, scale=2.0), *scale_bias(4)), {}, 12544),
        Form("instance norm, one dimension", "InstanceNormalization",
             (normal(2, 16, 300, mean=0.5, scale=2.0), *scale_bias(16)), {}, 300),
        Form("instance norm of 4 samples over 14x14", "InstanceNormalization",
             (normal(4, 16, 14, 14, mean=0.5, scale=2.0), *scale_bias(16)), {}, 196),
        Form("instance norm of 2 samples over 112x112", "InstanceNormalization",
             (normal(2, 8, 112, 112), *scale_bias(8)), {}, 12544),
        Form("instance norm of 3 samples of large values", "InstanceNormalization",
             (normal(3, 64, 56, scale=300.0), *scale_bias(64)), {}, 56),
        Form("group norm", "GroupNormalization", (normal(1, 64, 16, 16, mean=0.5, scale=2.0), *scale_bias(64)),
             {"num_groups": 8}, 2048, 1, 21),
        Form("L2 norm", "LpNormalization", (normal(64, 256),), {"axis": -1, "p": 2}, 256),
        Form("local response norm", "LRN", (normal(1, 32, 16, 16, scale=3.0),), {"size": 5}, 5),
    ]  # fmt: skip
    return forms


def _reductions() -> list[Form]:
    axis = integers(-1)
    forms = []
    for n in (16, 256, 1024, 4096, 16384, 65536):
        rows = max(2, min(64, (1 << 18) // n))
        forms.append(Form(f"mean of {n} positive values", "ReduceMean", (uniform(rows, n), axis), {}, n))
    for n in (256, 4096, 16384):
        rows = max(2, min(64, (1 << 18) // n))
        forms += [
            Form(f"sum of {n} positive values", "ReduceSum", (uniform(rows, n), axis), {}, n),
            Form(f"sum of {n} values", "ReduceSum", (normal(rows, n), axis), {}, n),
            Form(f"L2 norm of {n} values", "ReduceL2", (normal(rows, n), axis), {}, n),
            Form(f"sum of squares of {n} values", "ReduceSumSquare", (normal(rows, n), axis), {}, n),
        ]
    forms += [
        Form("mean over rows of a plane", "ReduceMean", (uniform(4, 16, 28, 28), integers(2, 3)), {}, 784),
        Form("mean over the first axis", "ReduceMean", (uniform(1000, 64), integers(0)), {}, 1000),
        Form("mean over the first of few rows", "ReduceMean", (uniform(100, 35), integers(0)), {}, 100),
        Form("mean over the first axis, two blocks", "ReduceMean", (uniform(150, 64), integers(0)), {}, 150),
        Form("sum over the first axis, two blocks", "ReduceSum", (uniform(150, 64), integers(0)), {}, 150),
        Form("sum over the first axis", "ReduceSum", (uniform(1000, 64), integers(0)), {}, 1000),
        Form(
            "sum of squares over the first axis, two blocks", "ReduceSumSquare", (normal(150, 64), integers(0)), {}, 150
        ),
        Form("log of a sum over the first axis, two blocks", "ReduceLogSum", (uniform(150, 64), integers(0)), {}, 150),
        Form("log-sum-exp over the first axis", "ReduceLogSumExp", (normal(150, 64), integers(0)), {}, 150),
        Form("mean over a middle axis", "ReduceMean", (uniform(4, 1000, 64), integers(1)), {}, 1000),
        Form("mean of large values", "ReduceMean", (uniform(64, 4096, low=20000.0, high=60000.0), axis), {}, 4096),
        Form("mean over two separate axes", "ReduceMean", (uniform(30, 8, 30, 8), integers(0, 2)), {}, 900),
        Form("sum over a middle axis", "ReduceSum", (uniform(4, 1000, 64), integers(1)), {}, 1000),
        Form("L1 norm of 1024 values", "ReduceL1", (normal(64, 1024), axis), {}, 1024),
        Form("L2 norm over a middle axis", "ReduceL2", (normal(4, 1000, 64), integers(1)), {}, 1000),
        Form("L2 norm of large values", "ReduceL2", (normal(64, 256, scale=900.0), axis), {}, 256),
        Form("maximum of 1024 values", "ReduceMax", (normal(64, 1024), axis)),
        Form("minimum of 1024 values", "ReduceMin", (normal(64, 1024), axis)),
        Form("product of 16 values", "ReduceProd", (uniform(256, 16, low=0.5, high=1.6), axis), {}, 16),
        Form("log of a sum of 256 values", "ReduceLogSum", (uniform(64, 256), axis), {}, 256),
        Form("log-sum-exp of 256 values", "ReduceLogSumExp", (normal(64, 256), axis), {}, 256),
        Form("log-sum-exp of 4096 values", "ReduceLogSumExp", (normal(64, 4096), axis), {}, 4096),
        Form("running sum over 16", "CumSum", (uniform(64, 16), integers(1, shape=(1,))), {}, 16),
        Form("running sum over 256", "CumSum", (uniform(64, 256), integers(1, shape=(1,))), {}, 256),
        Form("running sum over 2048", "CumSum", (uniform(16, 2048), integers(1, shape=(1,))), {}, 2048),
        Form("running sum of signed values", "CumSum", (normal(16, 2048), integers(1, shape=(1,))), {}, 2048),
        Form("argmax of 1000 values", "ArgMax", (normal(64, 1000),), {"axis": -1}),
    ]
    return forms


def _poolings() -> list[Form]:
    forms = [
        Form(f"average pooling {k}x{k} of {k + side}x{k + side}", "AveragePool", (uniform(1, 64, k + side, k + side),),
             {"kernel_shape": [k, k]}, k * k)
        for k, side in ((2, 13), (3, 13), (7, 6), (13, 3), (17, 3), (33, 0), (33, 4), (65, 0))
    ]  # fmt: skip
    forms += [
        Form("average pooling 33x33 of signed values", "AveragePool", (normal(1, 64, 33, 33),),
             {"kernel_shape": [33, 33]}, 1089),
        Form("average pooling 3x3, stride 2, padded", "AveragePool", (uniform(1, 32, 28, 28),),
             {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}, 9),
        Form("average pooling 3x3, padding counted", "AveragePool", (uniform(1, 32, 28, 28),),
             {"kernel_shape": [3, 3], "pads": [1] * 4, "count_include_pad": 1}, 9),
        Form("average pooling, one dimension", "AveragePool", (uniform(1, 32, 400),), {"kernel_shape": [9]}, 9),
        *(Form(f"global average pooling {k}x{k}", "GlobalAveragePool", (uniform(1, 128, k, k),), {}, k * k)
          for k in (7, 14, 33, 65, 112)),
        Form("global average pooling of signed values", "GlobalAveragePool", (normal(1, 128, 33, 33),), {}, 1089),
        Form("global average pooling of 6.0", "GlobalAveragePool", (uniform(1, 128, 33, 33, low=0, high=6.0),), {},
             1089),
        Form("max pooling 3x3", "MaxPool", (normal(1, 32, 28, 28),), {"kernel_shape": [3, 3], "strides": [2, 2]}),
        Form("global max pooling", "GlobalMaxPool", (normal(1, 64, 28, 28),)),
        Form("L2 pooling 3x3", "LpPool", (normal(1, 16, 28, 28),), {"kernel_shape": [3, 3], "p": 2}, 9),
    ]  # fmt: skip
    return forms


def _resizes() -> list[Form]:
    def resize(name: str, size: tuple[int, int], out: tuple[int, int], mode: str, ctm: str, draw: Draw | None = None,
               **more: Any) -> Form:  # fmt: skip
        x = draw or normal(1, 16, *size)
        sizes = integers(1, 16, *out)
        return Form(name, "Resize", (x, None, None, sizes),
                    {"mode": mode, "coordinate_transformation_mode": ctm, **more}, 0, 1, 19)  # fmt: skip

    return [
        resize("resize, nearest, 2x", (28, 28), (56, 56), "nearest", "asymmetric", nearest_mode="floor"),
        resize("resize, linear, 2x", (28, 28), (56, 56), "linear", "half_pixel"),
        resize("resize, linear, aligned corners", (33, 33), (65, 65), "linear", "align_corners"),
        resize("resize, linear, 33 to 260", (33, 33), (260, 260), "linear", "half_pixel"),
        resize("resize, linear, pytorch", (17, 17), (65, 65), "linear", "pytorch_half_pixel"),
        resize("resize, linear, down", (65, 65), (33, 33), "linear", "half_pixel"),
        resize("resize, linear, of one pixel", (1, 1), (33, 33), "linear", "half_pixel"),
        resize("resize, linear, of offset values", (28, 28), (56, 56), "linear", "half_pixel",
               normal(1, 16, 28, 28, mean=8.0)),
        resize("resize, cubic, 2x", (28, 28), (56, 56), "cubic", "half_pixel"),
        Form("grid sample, linear", "GridSample", (normal(1, 16, 28, 28), uniform(1, 20, 20, 2, low=-1.0)),
             {"mode": "linear"}),
        Form("depth to space", "DepthToSpace", (normal(1, 32, 14, 14),), {"blocksize": 2}),
        Form("upsample", "Upsample", (normal(1, 16, 14, 14), Draw("uniform", (4,), 2.0, 2.0, constant=True)),
             {"mode": "nearest"}, 0, 1, 9),
    ]  # fmt: skip


def _recurrent() -> list[Form]:
    forms = []
    for op, gates in (("GRU", 3), ("LSTM", 4), ("RNN", 1)):
        for steps, hidden, inputs, batch, sides in (
            (1, 32, 48, 4, 1), (16, 32, 48, 4, 1), (64, 64, 48, 4, 1), (1, 128, 128, 1, 1), (1, 256, 256, 4, 1),
            (1, 50, 100, 4, 1), (8, 16, 8, 1, 1), (8, 8, 16, 16, 2),
        ):  # fmt: skip
            weights = normal(sides, gates * hidden, inputs, scale=0.14, constant=True)
            recurrent = normal(sides, gates * hidden, hidden, scale=0.18, constant=True)
            bias = normal(sides, 2 * gates * hidden, scale=0.1, constant=True)
            attributes: dict[str, Any] = {"hidden_size": hidden}
            if op == "GRU":
                attributes["linear_before_reset"] = 1
            given: tuple[Draw | None, ...] = (normal(steps, batch, inputs), weights, recurrent, bias)
            name = f"{op}, {steps} steps of {hidden}"
            if (inputs, batch) != (48, 4):  # from a state, as most models run it
                states = normal(sides, batch, hidden, scale=0.5)
                given += (None, states, states) if op == "LSTM" else (None, states)
                name += f" by {inputs}, {'both directions' if sides == 2 else 'from a state'}"
            if sides == 2:
                attributes["direction"] = "bidirectional"
            forms.append(Form(name, op, given, attributes, steps))
    forms.append(
        Form("GRU that resets before its product", "GRU",
             (normal(8, 4, 48), normal(1, 96, 48, scale=0.14, constant=True),
              normal(1, 96, 32, scale=0.18, constant=True), normal(1, 192, scale=0.1, constant=True)),
             {"hidden_size": 32}, 8)
    )  # fmt: skip
    return forms


def _pointwise() -> list[Form]:
    unary: dict[str, dict[str, Any]] = {
        "Relu": {}, "LeakyRelu": {"alpha": 0.01}, "Sigmoid": {}, "Tanh": {}, "Gelu": {}, "Erf": {},
        "HardSigmoid": {"alpha": 0.2, "beta": 0.5}, "HardSwish": {}, "Mish": {}, "Elu": {"alpha": 1.0},
        "Selu": {}, "Softplus": {}, "Softsign": {}, "ThresholdedRelu": {"alpha": 0.5}, "Exp": {}, "Log": {},
        "Sqrt": {}, "Reciprocal": {}, "Abs": {}, "Neg": {}, "Floor": {}, "Ceil": {}, "Round": {}, "Sign": {},
        "Sin": {}, "Cos": {}, "Tan": {}, "Atan": {}, "Asin": {}, "Sinh": {}, "Cosh": {}, "Asinh": {}, "Identity": {},
        "IsNaN": {},
    }  # fmt: skip
    forms = [Form(op, op, (every_number(),), attributes) for op, attributes in unary.items() if op != "IsNaN"]
    forms += [
        Form("Gelu by tanh", "Gelu", (every_number(),), {"approximate": "tanh"}),
        Form("PRelu", "PRelu", (every_number(), normal(1, constant=True))),
        Form("Clip", "Clip", (every_number(), uniform(constant=True), normal(mean=6.0, constant=True))),
        *(Form(op, op, (pairs(), pairs())) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min")),
        Form("Pow", "Pow", (uniform(1 << 16, low=0.0, high=8.0), normal(1 << 16, scale=2.0))),
        *(
            Form(f"Pow {name}", "Pow", (every_number(), Draw("uniform", (), value, value, constant=True)))
            for name, value in (("2", 2.0), ("3", 3.0), ("0.5", 0.5), ("-0.5", -0.5), ("1.7", 1.7))
        ),
        Form("Mod", "Mod", (normal(4096, scale=30.0), uniform(4096, low=0.5, high=4.0)), {"fmod": 1}),
        Form("Sum of four", "Sum", (normal(4096), normal(4096), normal(4096), normal(4096))),
        Form("Mean of four", "Mean", (normal(4096), normal(4096), normal(4096), normal(4096))),
    ]
    return forms


def _moves() -> list[Form]:
    return [
        Form("Concat", "Concat", (normal(4, 16), normal(4, 32)), {"axis": 1}),
        Form("Gather", "Gather", (normal(64, 32), integers(3, 5, 60))),
        Form("Transpose", "Transpose", (normal(4, 8, 16),), {"perm": [2, 0, 1]}),
        Form("Slice", "Slice", (normal(16, 16), integers(2), integers(14), integers(1))),
        Form("Pad", "Pad", (normal(4, 8), integers(0, 1, 2, 0))),
        Form("Expand", "Expand", (normal(1, 16), integers(4, 16))),
        Form("Tile", "Tile", (normal(2, 8), integers(2, 3))),
        Form("Reshape", "Reshape", (normal(4, 8), integers(8, 4))),
        Form("ScatterND", "ScatterND", (normal(16, 8), integers(3, 7, shape=(2, 1)), normal(2, 8))),
        Form("GatherND", "GatherND", (normal(16, 8), integers(3, 7, shape=(2, 1)))),
        Form("ScatterElements", "ScatterElements",
             (normal(4, 8), integers(0, 1, 2, 3, 4, 5, 6, 7, shape=(1, 8)), normal(1, 8)), {"axis": 1}),
        Form("TopK", "TopK", (normal(16, 200), integers(7)), {"axis": -1}, 0, 2),
        Form("Trilu", "Trilu", (normal(16, 16),)),
    ]  # fmt: skip


def _number(value: float) -> Draw:
    return Draw("uniform", (), value, value, constant=True)


def _fusing() -> list[Form]:
    """Small graphs that become one kernel when fusions are on."""
    wide, last = 768, {"axis": -1}
    scale, bias = normal(wide, mean=1.0, scale=0.3, constant=True), normal(wide, scale=0.3, constant=True)
    axes = integers(-1)
    norm = (
        ("ReduceMean", "x0 x3", "mean"), ("Sub", "x0 mean", "d"), ("Pow", "d x4", "sq"), ("ReduceMean", "sq x3", "var"),
        ("Add", "var x5", "g"), ("Sqrt", "g", "s"), ("Div", "d s", "n"), ("Mul", "n x1", "m"), ("Add", "m x2", "y0"),
    )  # fmt: skip
    rms = (
        ("Pow", "x0 x3", "sq"), ("ReduceMean", "sq x2", "var"), ("Add", "var x4", "g"), ("Sqrt", "g", "s"),
        ("Div", "x5 s", "i"), ("Mul", "x0 i", "n"), ("Mul", "n x1", "y0"),
    )  # fmt: skip
    gelu = (("Div", "x0 x1", "a"), ("Erf", "a", "e"), ("Add", "e x2", "b"), ("Mul", "x0 b", "c"), ("Mul", "c x3", "y0"))
    tanh = (
        ("Pow", "x0 x1", "p"), ("Mul", "p x2", "a"), ("Add", "x0 a", "b"), ("Mul", "b x3", "c"), ("Tanh", "c", "t"),
        ("Add", "t x4", "u"), ("Mul", "x0 x5", "h"), ("Mul", "h u", "y0"),
    )  # fmt: skip
    spread = (Draw("every", (1 << 16,)),)
    numbers = (_number(2.0), _number(1e-5))
    return [
        Form("fused layer norm", "ReduceMean", (normal(32, wide, mean=0.5, scale=2.0), scale, bias, axes, *numbers), {},
             wide, 1, 18, norm),
        Form("fused layer norm of large values", "ReduceMean",
             (normal(32, wide, mean=30.0, scale=600.0), scale, bias, axes, *numbers), {}, wide, 1, 18, norm),
        Form("fused RMS norm", "Pow", (normal(32, wide, scale=2.0), scale, axes, *numbers, _number(1.0)), {}, wide, 1,
             18, rms),
        Form("fused RMS norm of large values", "Pow",
             (normal(32, wide, scale=900.0), scale, axes, *numbers, _number(1.0)), {}, wide, 1, 18, rms),
        Form("fused Gelu by erf", "Erf", (*spread, _number(2.0**0.5), _number(1.0), _number(0.5)), {}, 0, 1, 17, gelu),
        Form("fused Gelu by tanh", "Tanh",
             (*spread, _number(3.0), _number(0.044715), _number(0.7978845608), _number(1.0), _number(0.5)), {}, 0, 1,
             17, tanh),
        Form("fused Gelu by tanh before another node", "Tanh",
             (*spread, _number(3.0), _number(0.044715), _number(0.7978845608), _number(1.0), _number(0.5)), {}, 0, 1,
             17, (*tanh[:-1], ("Mul", "h u", "g"), ("Neg", "g", "y0"))),
        Form("fused x sigmoid(x)", "Sigmoid", spread, {}, 0, 1, 17, (("Sigmoid", "x0", "s"), ("Mul", "x0 s", "y0"))),
        Form("fused x sigmoid(1.702 x)", "Sigmoid", (*spread, _number(1.702)), {}, 0, 1, 17,
             (("Mul", "x0 x1", "v"), ("Sigmoid", "v", "s"), ("Mul", "x0 s", "y0"))),
        Form("fused scaled product", "MatMul", (normal(8, 96, 64), normal(8, 64, 96), _number(7.3)), {}, 64, 1, 17,
             (("MatMul", "x0 x1", "p"), ("Div", "p x2", "y0"))),
        Form("fused masked softmax", "Softmax", (normal(2, 4, 64, 64, scale=3.0), normal(1, 1, 64, 64, scale=3.0)),
             {"Softmax": last}, 64, 1, 17, (("Add", "x0 x1", "a"), ("Softmax", "a", "y0"))),
        Form("fused sum and layer norm", "LayerNormalization",
             (normal(4, 16, wide), normal(4, 16, wide), scale, bias), {"LayerNormalization": last}, wide, 1, 17,
             (("Add", "x0 x1", "a"), ("LayerNormalization", "a x2 x3", "y0"))),
        Form("fused matmul and bias", "MatMul",
             (normal(64, 512), normal(512, 128, scale=0.044, constant=True), normal(128, constant=True)), {}, 512, 1,
             17, (("MatMul", "x0 x1", "p"), ("Add", "p x2", "y0"))),
        Form("fused conv and batch norm", "Conv",
             (normal(1, 64, 28, 28), normal(64, 64, 3, 3, scale=0.04, constant=True),
              normal(64, mean=1.0, scale=0.3, constant=True), normal(64, scale=0.3, constant=True),
              normal(64, scale=0.5, constant=True), uniform(64, low=0.3, high=3.0, constant=True)), {}, 576, 1, 17,
             (("Conv", "x0 x1", "c"), ("BatchNormalization", "c x2 x3 x4 x5", "y0"))),
        Form("fused conv with a bias and batch norm", "Conv",
             (normal(1, 64, 28, 28), normal(64, 64, 3, 3, scale=0.04, constant=True),
              normal(64, mean=1.0, scale=0.3, constant=True), normal(64, scale=0.3, constant=True),
              normal(64, scale=0.5, constant=True), uniform(64, low=0.3, high=3.0, constant=True),
              normal(64, scale=0.5, constant=True)), {}, 576, 1, 17,
             (("Conv", "x0 x1 x6", "c"), ("BatchNormalization", "c x2 x3 x4 x5", "y0"))),
    ]  # fmt: skip


FORMS: tuple[Form, ...] = (
    *_fusing(),
    *_convolutions(),
    *_products(),
    *_softmaxes(),
    *_norms(),
    *_reductions(),
    *_poolings(),
    *_resizes(),
    *_recurrent(),
    *_pointwise(),
    *_moves(),
)
