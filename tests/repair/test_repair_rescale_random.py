"""Rescaling changes no bit of FP32, whatever the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from halfwise.compiler import rtx
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import write_typed
from halfwise.repair import repaired
from halfwise.repair.rescale import RESCALE
from tests.models.build import f32, model, node, value, weight
from tests.models.zoo import cnn_tiny_weights
from tests.support.repairing import effect, ranges_of
from tests.support.rescaled import normal, rows

# -- whatever the graph -----------------------------------------------------------------------------------------------

_STEPS = [
    "relu", "leaky", "prelu", "maxpool", "avgpool", "conv", "depthwise", "grouped", "turned", "batchnorm", "mul", "div",
    "addconst", "residual", "concat", "split", "slice", "transpose", "flatten", "clip", "pad", "instancenorm", "gate",
    "reducemean", "where", "tanh", "resize", "stream", "sum", "broadcast", "twice",
    "token", "beside", "quotient",
]  # fmt: skip


class _Net:
    """A random network on maps of 6 channels; each constant has a scale of its own."""

    def __init__(self, scales: list[int], decayed: int = 0) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.scales, self.decayed = scales, decayed
        self.count = 0

    def new(self, prefix: str = "t") -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def constant(self, *shape: int, scaled: bool = True) -> str:
        name = self.new("w")
        power = self.scales[self.count % len(self.scales)] if scaled else 0
        array = normal(self.count, *shape, scale=2.0**power)
        if self.decayed and len(shape) in (2, 4):  # a kernel, some of whose values decay has left next to nothing of
            array.reshape(-1)[self.count % 5 :: 5] *= np.float32(2.0**self.decayed)
            array[self.count % len(array)] *= np.float32(2.0**self.decayed)
        self.weights.append(weight(name, array))
        return name

    def exact(self, array: Any) -> str:
        name = self.new("k")
        self.weights.append(weight(name, np.asarray(array)))
        return name

    def op(self, op: str, inputs: str, outputs: int = 1, **attributes: Any) -> str:
        names = " ".join(self.new() for _ in range(outputs))
        self.nodes.append(node(op, inputs, names, **attributes))
        return names

    def step(self, kind: str, x: str) -> str:
        simple = {"relu": "Relu", "leaky": "LeakyRelu", "tanh": "Tanh"}
        if kind in simple:
            return self.op(simple[kind], x)
        if kind in ("maxpool", "avgpool"):
            op = "MaxPool" if kind == "maxpool" else "AveragePool"
            return self.op(op, x, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        if kind in ("conv", "depthwise", "grouped"):
            groups = {"conv": 1, "depthwise": 6, "grouped": 2}[kind]
            w, b = self.constant(6, 6 // groups, 3, 3), self.constant(6)
            return self.op("Conv", f"{x} {w} {b}", pads=[1, 1, 1, 1], group=groups)
        if kind == "turned":
            return self.op("ConvTranspose", f"{x} {self.constant(6, 6, 3, 3)}", pads=[1, 1, 1, 1])
        if kind == "batchnorm":
            variance = self.exact(normal(self.count, 6) ** 2 + np.float32(0.1))
            return self.op(
                "BatchNormalization", f"{x} {self.constant(6)} {self.constant(6)} {self.constant(6)} {variance}"
            )
        if kind == "instancenorm":
            return self.op("InstanceNormalization", f"{x} {self.constant(6)} {self.constant(6)}")
        if kind in ("mul", "div", "prelu"):
            op = {"mul": "Mul", "div": "Div", "prelu": "PRelu"}[kind]
            return self.op(op, f"{x} {self.constant(6, 1, 1, scaled=kind != 'prelu')}")
        if kind == "addconst":
            return self.op("Add", f"{x} {self.constant(6, 1, 1)}")
        if kind == "residual":
            return self.op("Add", f"{x} {self.step('conv', x)}")
        if kind == "concat":
            both = self.op("Concat", f"{x} {self.step('conv', x)}", axis=1)
            return self.op("Conv", f"{both} {self.constant(6, 12, 1, 1)}")
        if kind == "split":
            left, right = self.op("Split", f"{x} {self.exact(np.array([2, 4]))}", 2, axis=1).split()
            return self.op("Concat", f"{right} {left}", axis=1)
        if kind == "slice":
            back = [np.array([v]) for v in (5, -100, 1, -1)]
            return self.op("Slice", f"{x} {' '.join(self.exact(v) for v in back)}")
        if kind == "transpose":
            turned = self.op("Transpose", x, perm=[0, 2, 3, 1])
            mixed = self.op("MatMul", f"{turned} {self.constant(6, 6)}")
            return self.op("Transpose", mixed, perm=[0, 3, 1, 2])
        if kind == "flatten":
            flat = self.op("Flatten", x)
            gains = {"alpha": (1.0, -0.3, 1e-3)[self.count % 3], "beta": (1.0, 0.0, 0.7)[self.count % 3]}
            mixed = self.op("Gemm", f"{flat} {self.constant(96, 96)} {self.constant(96)}", **gains)
            return self.op("Reshape", f"{mixed} {self.exact(np.array([-1, 6, 4, 4]))}")
        if kind == "clip":
            return self.op("Clip", f"{x} {self.exact(np.float32(-3.0))} {self.exact(np.float32(60.0))}")
        if kind == "pad":
            padded = self.op("Pad", f"{x} {self.exact(np.array([0, 0, 1, 0, 0, 0, 0, 1]))}")
            return self.op("Conv", f"{padded} {self.constant(6, 6, 2, 2)}")
        if kind == "gate":
            pooled = self.op("GlobalAveragePool", x)
            gate = self.op("Sigmoid", self.op("Conv", f"{pooled} {self.constant(6, 6, 1, 1, scaled=False)}"))
            return self.op("Mul", f"{x} {gate}")
        if kind == "reducemean":
            return self.op("Sub", f"{x} {self.op('ReduceMean', x, axes=[2, 3])}")
        if kind == "where":
            flag = self.exact(np.arange(16).reshape(1, 1, 4, 4) % 3 == 0)
            return self.op("Where", f"{flag} {x} {self.constant(6, 1, 1)}")
        if kind == "stream":  # each channel has a power of its own
            quiet = np.exp2(np.resize(self.scales, 6)).astype(np.float32)
            w, b = normal(self.count, 6, 6, 1, 1) * quiet[:, None, None, None], normal(self.count, 6) * quiet
            return self.op("Add", f"{x} {self.op('Conv', f'{x} {self.exact(w)} {self.exact(b)}')}")
        if kind == "sum":
            return self.op("Sum", f"{self.constant(1)} {x} {self.step('stream', x)}")
        if kind == "broadcast":
            return self.op("Max", f"{self.op('ReduceMean', x, axes=[1])} {x}")
        if kind in ("token", "beside"):  # a constant that is repeated, or as it is, beside what moves
            shape = (1, 6, 1, 4) if kind == "token" else (1, 6, 4, 4)
            given = self.constant(*(2, *shape[1:])) if self.count % 2 else self.constant(*shape)
            if self.weights[-1].dims[0] != 2:
                given = self.op("Expand", f"{given} {self.exact(np.array([2, *shape[1:]]))}")
            joined = self.op("Concat", f"{given} {x}", axis=2 if kind == "token" else 1)
            return self.op("Conv", f"{joined} {self.constant(6, *((6, 2, 1) if kind == 'token' else (12, 1, 1)))}")
        if kind == "quotient":  # a norm that multiplies by one over the root
            mean = self.op("ReduceMean", self.op("Mul", f"{x} {x}"), axes=[1], keepdims=1)
            root = self.op("Sqrt", self.op("Add", f"{mean} {self.exact(np.float32(1e-6))}"))
            return self.op("Mul", f"{x} {self.op('Div', f'{self.constant(1, scaled=False)} {root}')}")
        if kind == "twice":
            return self.op("Add", f"{x} {x}")
        assert kind == "resize"
        twice = self.op("Resize", f"{x} - {self.exact(f32(1, 1, 2, 2))}", mode="linear")
        return self.op("Conv", f"{twice} {self.constant(6, 6, 2, 2)}", strides=[2, 2])


@settings(max_examples=100, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(_STEPS), min_size=1, max_size=6),
    scales=st.lists(st.sampled_from([-24, -22, -18, -4, 0, 0, 5, 9, 14, 17]), min_size=1, max_size=7),
    loudness=st.sampled_from([1e-3, 1.0, 300.0]),
    decayed=st.sampled_from([0, 0, -100, -120]),
)
@example(["split", "batchnorm"], [-24, -18, -24, -24, -24, -24], 1.0, 0)
@example(["resize", "relu", "relu", "clip", "mul", "split"], [-24, -4, 14], 1.0, 0)  # a part of the Split is scaled
@example(["conv", "conv", "conv", "instancenorm"], [14], 1e-3, 0)  # FP32 loses the squares inside the norm
def test_no_bit_of_fp32_changes(kinds: list[str], scales: list[int], loudness: float, decayed: int) -> None:
    net = _Net(scales, decayed)
    x = net.step("conv", "x")
    for kind in kinds:
        x = net.step(kind, x)
    net.nodes.append(node("Conv", f"{x} {net.constant(3, 6, 1, 1)}", "y"))
    proto = model(net.nodes, [value("x", shape=("n", 6, 4, 4))], [value("y", shape=None)], net.weights)
    found = effect(RESCALE, proto, rows(3, 2, 6, 4, 4, scale=loudness), searched=2)
    for each in found.references:  # else FP32 itself lost them
        assume(np.isfinite(each["y"]).all() and np.abs(each["y"]).max() > 1e-30)
    assert found.deviation < 1e-20 if decayed else found.bit_identical  # channels next to nothing become 0


@pytest.mark.skipif(not rtx.available(), reason=f"TensorRT-RTX is not installed: {rtx.INSTALL}")
def test_the_repaired_model_builds(tmp_path: Any) -> None:
    zoo = cnn_tiny_weights("channels")
    loaded = load(zoo.model)
    found = RESCALE.find(loaded, ranges_of(loaded, zoo.inputs[:2]))
    after, _ = repaired(loaded, [(RESCALE, one) for one in found])
    write_typed(Assignment.all_narrow(Sites(after)), tmp_path / "m.onnx")
    built = rtx.build(tmp_path / "m.onnx")
    assert built.kernels
