"""Every rule of the backward pass against finite differences of the operator itself, and the tape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx_ir as ir
import pytest

from halfwise import fix
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.store import Store
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.vjp import Local, pull_back
from tests.models.build import model, node, value, weight

Array = np.ndarray[Any, Any]
_PROBES = 2


def _normal(*shape: int) -> Array:
    return np.random.default_rng(sum(shape) + len(shape)).standard_normal(shape).astype(np.float32)


def _positive(*shape: int) -> Array:
    return np.abs(_normal(*shape)) + np.float32(0.5)


def _spread(*shape: int) -> Array:
    """Values so far apart that a small step does not reorder them."""
    size = int(np.prod(shape))
    return (np.random.default_rng(size).permutation(size).reshape(shape) - size / 2 + 0.25).astype(np.float32)


def _ints(*values: int) -> Array:
    return np.array(values, dtype=np.int64)


def _graph(op: str, inputs: Sequence[Array | None], outputs: int, opset: int, attributes: dict[str, Any]) -> Local:
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    kinds = {np.dtype(np.float32): onnx.TensorProto.FLOAT, np.dtype(np.int64): onnx.TensorProto.INT64,
             np.dtype(bool): onnx.TensorProto.BOOL}  # fmt: skip
    given = [
        onnx.helper.make_tensor_value_info(n, kinds[x.dtype], x.shape)
        for n, x in zip(names, inputs, strict=True)
        if x is not None
    ]
    out_kinds = [onnx.TensorProto.FLOAT, onnx.TensorProto.INT64 if op == "TopK" else onnx.TensorProto.FLOAT]
    out = [onnx.helper.make_tensor_value_info(f"y{i}", out_kinds[min(i, 1)], None) for i in range(outputs)]
    node = onnx.helper.make_node(op, names, [f"y{i}" for i in range(outputs)], name="n", **attributes)
    proto = onnx.helper.make_model(
        onnx.helper.make_graph([node], "g", given, out), opset_imports=[onnx.helper.make_opsetid("", opset)]
    )
    model = load(onnx.shape_inference.infer_shapes(proto))
    sites, stepper = Sites(model), Stepper(Emulator())
    fp32 = Assignment(sites, {})
    feeds = {n: x for n, x in zip(names, inputs, strict=True) if x is not None}
    store = Store(stepper.emulator, fp32, feeds)
    (only,) = model.graph

    def run(changed: Any) -> tuple[Array, ...]:
        by_value: dict[ir.Value, Array] = {}
        for slot, array in changed.items():
            value = only.inputs[slot]
            assert value is not None
            by_value[value] = array
        found = stepper.run(only, fp32, store, by_value)
        return tuple(found[v] for v in only.outputs)

    results = run({})
    rng = np.random.default_rng(7)
    gradients = tuple(
        rng.standard_normal((_PROBES, *y.shape)).astype(np.float32) if y.dtype == np.float32 else None for y in results
    )
    return Local(only, opset, tuple(inputs), results, gradients, run)


def _check(local: Local, slot: int, step: float = 1e-2) -> None:
    """The gradient along a random direction, from the rule and from a central difference."""
    x = local.input(slot)
    along = np.random.default_rng(slot).standard_normal(x.shape).astype(np.float32)
    found = pull_back(local, slot)
    assert found is not None and found.shape == (_PROBES, *x.shape)
    above, below = local.run({slot: x + step * along}), local.run({slot: x - step * along})
    rises = [(a.astype(np.float64) - b) / (2 * step) for a, b in zip(above, below, strict=True)]
    for probe in range(_PROBES):
        wanted = sum(float(np.sum(g[probe] * r)) for g, r in zip(local.gradients, rises, strict=True) if g is not None)
        scale = np.sqrt(sum(np.sum((g[probe] * r) ** 2) for g, r in zip(local.gradients, rises, strict=True)
                            if g is not None))  # fmt: skip
        assert float(np.sum(found[probe] * along)) == pytest.approx(wanted, abs=3e-3 * max(float(scale), 1e-3))


_X = _normal(2, 3, 4)
_IMAGE = _normal(2, 4, 7, 6)

CASES: list[Any] = []


def _case(op: str, inputs: list[Array | None], slots: Sequence[int], outputs: int = 1, opset: int = 17,
          step: float = 1e-2, **attributes: Any) -> None:  # fmt: skip
    words = ",".join(f"{k}={v}" for k, v in attributes.items())
    CASES.append(pytest.param(op, inputs, slots, outputs, opset, step, attributes, id=f"{op}@{opset}({words})"))


_SMOOTH = "Sigmoid Tanh Exp Neg Sin Cos Erf Softplus Identity Atan Asinh Sinh Cosh HardSwish Mish Gelu Elu Softsign"
for _op in _SMOOTH.split():
    _case(_op, [_X], [0], opset=20)
for _op in "Log Sqrt Reciprocal Abs Relu LeakyRelu Selu".split():
    _case(_op, [_positive(3, 4)], [0])
for _op in "Relu LeakyRelu Abs".split():
    _case(_op, [_spread(3, 4)], [0])
_case("Clip", [_spread(3, 4), np.float32(-3), np.float32(3)], [0])
for _op in "Add Sub Mul".split():
    _case(_op, [_X, _normal(3, 1)], [0, 1])
    _case(_op, [_normal(4), _X], [0, 1])
_case("Div", [_X, _positive(3, 1)], [0, 1])
_case("Pow", [_positive(2, 3), np.full((3,), 1.5, np.float32)], [0, 1], step=1e-3)
_case("Pow", [_X, np.float32(2)], [0])
_case("Sum", [_X, _normal(4), _normal(1, 1)], [0, 1, 2])
_case("Mean", [_X, _normal(4)], [0, 1])
_case("Max", [_spread(3, 4), np.full((4,), 0.0, np.float32)], [0, 1])
_case("Min", [_spread(3, 4), np.full((4,), 0.0, np.float32)], [0, 1])
_case("PRelu", [_spread(2, 3), _normal(3)], [0, 1])
_case("Where", [_X > 0, _normal(4), _normal(3, 1)], [1, 2])
_case("MatMul", [_normal(2, 3, 4), _normal(4, 5)], [0, 1])
_case("MatMul", [_normal(2, 3, 4), _normal(2, 4, 5)], [0, 1])
_case("MatMul", [_normal(3, 4), _normal(2, 4, 5)], [0, 1])
_case("MatMul", [_normal(4), _normal(2, 4, 5)], [0, 1])
_case("MatMul", [_normal(2, 3, 4), _normal(4)], [0, 1])
_case("MatMul", [_normal(4), _normal(4)], [0, 1])
for _extra in ({}, {"is_causal": 1}, {"softcap": 0.7, "scale": 0.4}):
    _case("Attention", [_normal(1, 2, 3, 4), _normal(1, 2, 5, 4), _normal(1, 2, 5, 3)], [0, 1, 2], opset=23, **_extra)
_case("Attention", [_normal(1, 3, 8), _normal(1, 3, 4), _normal(1, 3, 4), _normal(3, 3)], [0, 1, 2, 3], opset=23,
      q_num_heads=4, kv_num_heads=2)  # fmt: skip
_case("RotaryEmbedding", [_normal(1, 2, 3, 4), _normal(1, 3, 2), _normal(1, 3, 2) * 2], [0], opset=23)
_case("RotaryEmbedding", [_normal(1, 3, 8), _normal(1, 3, 2), _normal(1, 3, 2) * 2], [0], opset=23,
      interleaved=1, num_heads=2)  # fmt: skip
_case("RMSNormalization", [_X, _normal(4)], [0, 1], opset=23)
_case("RMSNormalization", [_X, _normal(3, 4)], [0, 1], opset=23, axis=-2)
_case("Gemm", [_normal(3, 4), _normal(4, 5), _normal(5)], [0, 1, 2], alpha=0.5, beta=2.0)
_case("Gemm", [_normal(4, 3), _normal(5, 4), _normal(3, 1)], [0, 1, 2], transA=1, transB=1)
_case("Einsum", [_normal(2, 3, 4), _normal(4, 5)], [0, 1], equation="bik,kj->bij")
_case("Einsum", [_normal(2, 3), _normal(3, 4)], [0, 1], equation="ij,jk->k")
_case("Conv", [_IMAGE, _normal(5, 4, 3, 3), _normal(5)], [0, 1, 2], pads=[1, 0, 2, 1], strides=[2, 1])
_case("Conv", [_IMAGE, _normal(6, 2, 3, 2)], [0, 1], group=2, dilations=[2, 1])
_case("Conv", [_IMAGE, _normal(6, 2, 3, 2)], [0, 1], group=2, auto_pad="SAME_UPPER", strides=[1, 2])
_case("Conv", [_IMAGE, _normal(4, 1, 3, 3)], [0, 1], group=4, strides=[3, 2])
_case("Conv", [_normal(2, 3, 9), _normal(4, 3, 4)], [0, 1], strides=[2], auto_pad="SAME_LOWER")
_case("ConvTranspose", [_IMAGE, _normal(4, 3, 3, 2), _normal(6)], [0, 1, 2], group=2, strides=[2, 1], pads=[1, 0, 0, 1])
_case("ConvTranspose", [_normal(1, 2, 5), _normal(2, 3, 3)], [0, 1], strides=[2], output_padding=[1])
_case("MaxPool", [_spread(1, 2, 7, 6)], [0], kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0])
_case("MaxPool", [_spread(1, 2, 7, 6)], [0], kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1)
_case("AveragePool", [_IMAGE], [0], kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0])
_case("AveragePool", [_IMAGE], [0], kernel_shape=[3, 2], pads=[1, 0, 1, 0], count_include_pad=1)
_case("AveragePool", [_IMAGE], [0], opset=19, kernel_shape=[3, 4], strides=[2, 3], pads=[1, 0, 1, 0], ceil_mode=1)
_case("GlobalAveragePool", [_IMAGE], [0])
_case("GlobalMaxPool", [_spread(1, 2, 3, 4)], [0])
for _op in "ReduceMean ReduceL2 ReduceSumSquare ReduceLogSumExp".split():
    _case(_op, [_X], [0], axes=[-1], keepdims=0)
    _case(_op, [_X, _ints(0, 2)], [0], opset=18)
    _case(_op, [_X], [0])
for _op in "ReduceProd ReduceLogSum ReduceL1".split():
    _case(_op, [_positive(2, 3, 4)], [0], axes=[1])
_case("ReduceMax", [_spread(3, 4)], [0], axes=[1])
_case("ReduceMin", [_spread(3, 4)], [0], axes=[0])
_case("ReduceSum", [_X, _ints(1)], [0], keepdims=0)
_case("CumSum", [_X, np.int64(1)], [0])
_case("CumSum", [_X, np.int64(2)], [0], exclusive=1, reverse=1)
for _op in "Softmax LogSoftmax".split():
    _case(_op, [_X], [0], axis=1)
    _case(_op, [_X], [0], opset=11, axis=1)
_case("LayerNormalization", [_X, _normal(4), _normal(4)], [0, 1, 2])
_case("LayerNormalization", [_X, _normal(3, 4)], [0, 1], axis=1)
_case("RMSNormalization", [_X, _normal(4)], [0, 1], opset=23)
_case("InstanceNormalization", [_IMAGE, _normal(4), _normal(4)], [0, 1, 2])
_case("GroupNormalization", [_IMAGE, _normal(4), _normal(4)], [0, 1, 2], opset=21, num_groups=2)
_case("BatchNormalization", [_IMAGE, _normal(4), _normal(4), _normal(4), _positive(4)], [0, 1, 2, 3, 4])
for _op in "Reshape Expand".split():
    _case(_op, [_normal(2, 1, 3), _ints(*((6,) if _op == "Reshape" else (2, 4, 3)))], [0])
_case("Flatten", [_X], [0], axis=2)
_case("Squeeze", [_normal(2, 1, 3), _ints(1)], [0])
_case("Unsqueeze", [_X, _ints(0, 2)], [0])
_case("Transpose", [_X], [0], perm=[2, 0, 1])
_case("Transpose", [_X], [0])
_case("Concat", [_normal(2, 1, 4), _X, _normal(2, 2, 4)], [0, 1, 2], axis=-2)
_case("Split", [_normal(2, 5), _ints(2, 3)], [0], outputs=2, axis=1)
_case("Slice", [_X, _ints(3, -1), _ints(0, -9), _ints(2, 1), _ints(-2, -1)], [0])
_case("Gather", [_X, _ints(0, 2, 2, -1)], [0], axis=2)
_case("Gather", [_X, _ints(-1)], [0], axis=1)
_case("Gather", [_X, np.array(2, np.int64)], [0], axis=-1)
_case("Gather", [_X, np.array([[1]], np.int64)], [0], axis=0)
_case("GatherElements", [_normal(2, 3), np.array([[0, 0, 2], [1, 1, -1]], np.int64)], [0], axis=1)
_case("GatherND", [_normal(2, 3), np.array([[0, 1], [1, 1], [1, 1]], np.int64)], [0])
_case("Tile", [_normal(2, 3), _ints(2, 3)], [0])
_case("Pad", [_normal(2, 3), _ints(0, 1, 2, 1), np.float32(7)], [0])
_case("Pad", [_normal(3, 4), _ints(1, 1, 2, 1)], [0], mode="reflect")
_case("DepthToSpace", [_IMAGE], [0], blocksize=2)
_case("SpaceToDepth", [_normal(1, 2, 4, 6)], [0], blocksize=2)
_case("ReverseSequence", [_normal(4, 3), _ints(4, 2, 1)], [0], time_axis=0, batch_axis=1)
_case("Trilu", [_normal(3, 4)], [0])
_case("Resize", [_normal(1, 2, 3, 4), None, np.array([1, 1, 2, 1.5], np.float32)], [0], mode="nearest")
_case("Resize", [_normal(1, 2, 3, 4), None, np.array([1, 1, 2, 1.5], np.float32)], [0], mode="linear")
for _op in ["align_corners", "asymmetric", "pytorch_half_pixel"]:
    _case("Resize", [_normal(1, 2, 3, 4), None, None, _ints(1, 2, 5, 3)], [0], mode="linear",
          coordinate_transformation_mode=_op)  # fmt: skip
_case("ScatterND", [_normal(4, 3), _ints(2, 0)[:, None], _normal(2, 3)], [0, 2])
_case("ScatterElements", [_normal(2, 3), np.array([[2, 0]], np.int64), _normal(1, 2)], [0, 2], axis=1)
_case("TopK", [_spread(3, 4), _ints(2)], [0], outputs=2)
_GRU = [_normal(5, 2, 3), _normal(1, 12, 3), _normal(1, 12, 4), _normal(1, 24), None, _normal(1, 2, 4)]
_case("GRU", list(_GRU), [0, 1, 2, 3, 5], outputs=2, hidden_size=4)
_case("GRU", list(_GRU), [0, 1, 2, 3, 5], outputs=2, hidden_size=4, linear_before_reset=1, direction="reverse")
_case("GRU", [_normal(3, 2, 3), _normal(2, 12, 3), _normal(2, 12, 4)], [0, 1, 2],
      hidden_size=4, direction="bidirectional")  # fmt: skip
_case("LSTM", [_normal(5, 2, 3), _normal(1, 16, 3), _normal(1, 16, 4), _normal(1, 32), None, _normal(1, 2, 4),
               _normal(1, 2, 4)], [0, 1, 2, 3, 5, 6], outputs=3, hidden_size=4)  # fmt: skip


@pytest.mark.parametrize(("op", "inputs", "slots", "outputs", "opset", "step", "attributes"), CASES)
def test_a_rule_is_the_adjoint_of_its_operator(
    op: str, inputs: list[Array], slots: list[int], outputs: int, opset: int, step: float, attributes: dict[str, Any]
) -> None:
    inputs = [np.asarray(x) if x is not None else None for x in inputs]
    for slot in slots:
        _check(_graph(op, inputs, outputs, opset, attributes), slot, step)


def test_a_choice_between_two_numbers_is_walked_back() -> None:
    """What it chooses between is smaller than what it gives."""
    weights = {"zero": 0.0, "one": 1.0, "least": 0.25, "big": 3e4}
    proto = model(
        [
            node("Greater", "x zero", "g"),
            node("Where", "g one least", "w"),
            node("Mul", "x big", "b"),
            node("Max", "b w", "y"),
        ],
        [value("x", shape=(2, 8))],
        [value("y", shape=(2, 8))],
        [weight(name, np.float32(number)) for name, number in weights.items()],
    )
    feeds = [{"x": _normal(2, 8) * 4} for _ in range(2)]
    assert fix(proto, feeds, repairs="none").fp32_nodes == ("n_b", "n_y")
