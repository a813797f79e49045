"""Small sound models that mutants are made from: between them they hold every construct that a file may have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["SEEDS", "case_names", "seed_model"]

Shape = Sequence[int | str | None]
FLOAT = TensorProto.FLOAT
CASE = "onnx:"  # prefix of ONNX's own node cases


def _value(name: str, shape: Shape | None, kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _node(op: str, read: str, made: str, **attributes: Any) -> onnx.NodeProto:
    """`-` stands for an input that is left out."""
    names = ["" if name == "-" else name for name in read.split()]
    return helper.make_node(op, names, made.split(), name=f"n_{made.split()[0]}", **attributes)


def _weight(name: str, *shape: int, scale: float = 0.5, kind: str = "float32") -> onnx.TensorProto:
    values = np.random.default_rng(len(name) + sum(shape)).standard_normal(shape) * scale
    return numpy_helper.from_array(values.astype(kind), name)


def _ints(name: str, *values: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def _model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: Sequence[onnx.TensorProto] = (),
    opset: int = 17,
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), list(weights))
    domains = ("", "com.microsoft", "local")
    imports = [helper.make_opsetid(domain, opset if not domain else 1) for domain in domains]
    return helper.make_model(graph, opset_imports=imports, ir_version=9, functions=list(functions))


def norm() -> onnx.ModelProto:
    """A hand-written norm over loud values, a linear layer behind it."""
    nodes = [
        _node("Mul", "x loud", "h"),
        _node("ReduceMean", "h", "mean", axes=[-1], keepdims=1),
        _node("Sub", "h mean", "centred"),
        _node("Pow", "centred two", "square"),
        _node("ReduceMean", "square", "variance", axes=[-1], keepdims=1),
        _node("Add", "variance epsilon", "safe"),
        _node("Sqrt", "safe", "root"),
        _node("Div", "centred root", "normal"),
        _node("MatMul", "normal w", "y"),
    ]
    weights = [
        numpy_helper.from_array(np.array(number, np.float32), name)
        for name, number in (("loud", 900.0), ("two", 2.0), ("epsilon", 1e-6))
    ]
    return _model(nodes, [_value("x", ["n", 8])], [_value("y", ["n", 4])], [*weights, _weight("w", 8, 4)])


def convolutions() -> onnx.ModelProto:
    nodes = [
        _node("Conv", "x w b", "c", pads=[1, 1, 1, 1]),
        _node("BatchNormalization", "c s b m v", "n"),
        _node("Relu", "n", "r"),
        _node("MaxPool", "r", "p", kernel_shape=[2, 2], strides=[2, 2]),
        _node("Resize", "p - scales", "u", mode="nearest"),
        _node("GlobalAveragePool", "u", "a"),
        _node("Flatten", "a", "f"),
        _node("Gemm", "f g", "y", alpha=1.0),
    ]
    weights = [_weight("w", 3, 2, 3, 3, scale=1e-6), *(_weight(name, 3) for name in "sbm"), _weight("g", 3, 2)]
    weights.append(numpy_helper.from_array(np.ones(3, np.float32), "v"))
    weights.append(numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales"))
    return _model(nodes, [_value("x", [1, 2, 6, 6])], [_value("y", [1, 2])], weights)


def attention() -> onnx.ModelProto:
    nodes = [
        _node("MatMul", "x wq", "q"),
        _node("MatMul", "x wk", "k"),
        _node("Transpose", "k", "kt", perm=[0, 2, 1]),
        _node("MatMul", "q kt", "scores"),
        _node("Div", "scores root", "scaled"),
        _node("Where", "mask scaled low", "masked"),
        _node("Softmax", "masked", "p", axis=-1),
        _node("MatMul", "p x", "o"),
        _node("LayerNormalization", "o g b", "y", axis=-1),
    ]
    weights = [_weight("wq", 8, 8, scale=30.0), _weight("wk", 8, 8, scale=30.0), _weight("g", 8), _weight("b", 8)]
    weights += [numpy_helper.from_array(np.array(v, np.float32), n) for n, v in (("root", 2.83), ("low", -1e9))]
    inputs = [_value("x", [1, "t", 8]), _value("mask", [1, "t", "t"], TensorProto.BOOL)]
    return _model(nodes, inputs, [_value("y", [1, "t", 8])], weights)


def bodies() -> onnx.ModelProto:
    """An If with a Loop and a Scan in its branches."""
    step = helper.make_graph(
        [_node("Add", "state each", "next"), _node("Exp", "each", "out")],
        "step", [_value("state", [4]), _value("each", [4])], [_value("next", [4]), _value("out", [4])],
    )  # fmt: skip
    turn = helper.make_graph(
        [_node("Mul", "carried half", "less"), _node("Identity", "going", "still"), _node("Sigmoid", "less", "seen")],
        "turn",
        [_value("i", [], TensorProto.INT64), _value("going", [], TensorProto.BOOL), _value("carried", [4])],
        [_value("still", [], TensorProto.BOOL), _value("less", [4]), _value("seen", [4])],
    )
    then = helper.make_graph(
        [_node("Scan", "zero x", "last all", body=step, num_scan_inputs=1), _node("ReduceSum", "all first", "t")],
        "then", [], [_value("t", None)],
    )  # fmt: skip
    other = helper.make_graph(
        [_node("Loop", "trips - zero", "end each_seen", body=turn), _node("Add", "end zero", "e")],
        "other", [], [_value("e", None)],
    )  # fmt: skip
    nodes = [
        _node("ReduceMax", "x", "top", keepdims=0),
        _node("Greater", "top limit", "is_loud"),
        _node("If", "is_loud", "y", then_branch=then, else_branch=other),
    ]
    weights = [numpy_helper.from_array(np.array(v, np.float32), n) for n, v in (("limit", 1.0), ("half", 0.5))]
    weights += [numpy_helper.from_array(np.zeros(4, np.float32), "zero"), _ints("first", 0)]
    weights.append(numpy_helper.from_array(np.array(3, np.int64), "trips"))
    return _model(nodes, [_value("x", [3, 4])], [_value("y", None)], weights)


def functions() -> onnx.ModelProto:
    """A function with an attribute of its caller's, called twice, and one that calls it."""
    scaled = onnx.FunctionProto(name="Scaled", domain="local", input=["a"], output=["o"], attribute=["alpha"])
    scaled.opset_import.append(helper.make_opsetid("", 17))
    leaky = _node("LeakyRelu", "a", "l")
    leaky.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="alpha", type=onnx.AttributeProto.FLOAT))
    scaled.node.extend([leaky, _node("Exp", "l", "o")])
    twice = onnx.FunctionProto(name="Twice", domain="local", input=["a"], output=["o"])
    twice.opset_import.extend([helper.make_opsetid("", 17), helper.make_opsetid("local", 1)])
    twice.node.append(helper.make_node("Scaled", ["a"], ["m"], name="in_twice", domain="local", alpha=0.2))
    twice.node.append(_node("Tanh", "m", "o"))
    nodes = [
        helper.make_node("Scaled", ["x"], ["h"], name="s", domain="local", alpha=0.5),
        helper.make_node("Twice", ["h"], ["t"], name="t", domain="local"),
        helper.make_node("Gelu", ["t"], ["y"], name="gelu", domain="com.microsoft"),
    ]
    return _model(nodes, [_value("x", [1, 4])], [_value("y", [1, 4])], functions=[scaled, twice])


def quantised() -> onnx.ModelProto:
    nodes = [
        _node("QuantizeLinear", "x s z", "q"),
        _node("DequantizeLinear", "q s z", "d"),
        _node("DequantizeLinear", "w ws wz", "dw", axis=1),
        _node("MatMul", "d dw", "m"),
        _node("DynamicQuantizeLinear", "m", "dq dscale dzero"),
        _node("DequantizeLinear", "dq dscale dzero", "y"),
    ]
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(np.asarray(array), name)
        for name, array in {
            "s": np.float32(0.02), "z": np.uint8(128), "w": rng.integers(-128, 127, (4, 3)).astype(np.int8),
            "ws": np.array([0.01, 0.02, 1e-6], np.float32), "wz": np.zeros(3, np.int8),
        }.items()
    ]  # fmt: skip
    return _model(nodes, [_value("x", [2, 4])], [_value("y", [2, 3])], weights)


def recurrent() -> onnx.ModelProto:
    nodes = [
        _node("LSTM", "x w r b", "a h c", hidden_size=3),
        _node("Squeeze", "a one", "s"),
        _node("GRU", "s gw gr", "g", hidden_size=2),
        _node("Squeeze", "g one", "t"),
        _node("ReduceSum", "t", "y", keepdims=0),
    ]
    weights = [_weight("w", 1, 12, 4), _weight("r", 1, 12, 3), _weight("b", 1, 24), _ints("one", 1)]
    weights += [_weight("gw", 1, 6, 3), _weight("gr", 1, 6, 2)]
    return _model(nodes, [_value("x", ["t", 1, 4])], [_value("y", [])], weights)


def indices() -> onnx.ModelProto:
    """Token ids, a table, shapes that are computed, text-like choices."""
    nodes = [
        _node("Gather", "table ids", "e"),
        _node("Shape", "e", "shape"),
        _node("Slice", "shape zero one", "rows"),
        _node("Concat", "rows minus", "wanted", axis=0),
        _node("Reshape", "e wanted", "flat"),
        _node("Log", "flat", "l"),
        _node("TopK", "l one", "values places", axis=-1),
        _node("Cast", "places", "as_float", to=FLOAT),
        _node("Split", "l", "left right", axis=1),
        _node("Einsum", "left right", "product", equation="ij,kj->ik"),
        _node("ReduceLogSumExp", "product", "y", axes=[1]),
    ]
    table = numpy_helper.from_array(
        np.abs(np.random.default_rng(1).standard_normal((5, 6))).astype(np.float32), "table"
    )
    weights = [table, _ints("zero", 0), _ints("one", 1), _ints("minus", -1)]
    outputs = [_value("values", ["n", 1]), _value("as_float", ["n", 1]), _value("y", ["n", 1])]
    return _model(nodes, [_value("ids", ["n"], TensorProto.INT64)], outputs, weights)


def sequences() -> onnx.ModelProto:
    nodes = [
        _node("SplitToSequence", "x", "parts", axis=0),
        _node("SequenceAt", "parts first", "part"),
        _node("Softplus", "part", "y"),
        _node("ConcatFromSequence", "parts", "whole", axis=0),
        _node("Optional", "whole", "maybe"),
        _node("OptionalGetElement", "maybe", "z"),
    ]
    first = numpy_helper.from_array(np.array(0, np.int64), "first")
    return _model(nodes, [_value("x", [2, 3])], [_value("y", None), _value("z", None)], [first])


def half() -> onnx.ModelProto:
    """In FP16 already, with casts, constants as nodes and a Constant of each kind."""
    narrow = TensorProto.FLOAT16
    nodes = [
        _node("Constant", "", "c", value=numpy_helper.from_array(np.array([1, 2, 3], np.float16), "c")),
        _node("Constant", "", "f", value_float=2.0),
        _node("Constant", "", "i", value_ints=[1, 3]),
        _node("Cast", "f", "f16", to=narrow),
        _node("Mul", "x c", "m"),
        _node("Add", "m f16", "a"),
        _node("Expand", "a i", "e"),
        _node("Softmax", "e", "y"),
    ]
    return _model(nodes, [_value("x", [1, 3], narrow)], [_value("y", [1, 3], narrow)], opset=21)


def fused() -> onnx.ModelProto:
    """Operators of ONNX Runtime's own, and the newest of ONNX."""
    own = [
        helper.make_node("SkipLayerNormalization", ["x", "x", "g", "b"], ["s"], name="skip", domain="com.microsoft"),
        helper.make_node("FusedMatMul", ["s", "w"], ["f"], name="fused", domain="com.microsoft", alpha=0.5),
        helper.make_node("QuickGelu", ["f"], ["q"], name="quick", domain="com.microsoft"),
        _node("Attention", "q q q", "a", q_num_heads=2, kv_num_heads=2),
        _node("RMSNormalization", "a g", "y", axis=-1),
    ]
    weights = [_weight("g", 4), _weight("b", 4), _weight("w", 4, 4)]
    return _model(own, [_value("x", [1, 3, 4])], [_value("y", [1, 3, 4])], weights, opset=23)


_ALL: tuple[Callable[[], onnx.ModelProto], ...] = (
    norm, convolutions, attention, bodies, functions, quantised, recurrent, indices, sequences, half, fused,
)  # fmt: skip
SEEDS = {make.__name__: make for make in _ALL}


@cache
def _cases() -> dict[str, bytes]:
    import warnings

    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    return {f"{CASE}{case.name}": case.model.SerializeToString() for case in found if case.model is not None}


def case_names() -> tuple[str, ...]:
    """ONNX's own node cases as seeds; to load them takes seconds."""
    return tuple(sorted(_cases()))


def seed_model(name: str) -> onnx.ModelProto:
    if name.startswith(CASE):
        return onnx.load_from_string(_cases()[name])
    return SEEDS[name]()
