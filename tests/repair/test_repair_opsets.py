"""Every rule in every opset that its operators had: the repaired model is valid there, runs, and keeps its answer."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

from halfwise.model.model import Model, load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto
from halfwise.repair import RULES, Ranges, repaired

OPSETS = range(7, 25)
HARD_SWISH = 14
SHAPE = (3, 8)

# Places for rules, each in a few nodes; "mean" and "sum" stand for reductions over the last axis in the opset's form.
PLACES = """
    a0 = Mul (x, thousand) a1 = mean (a0) a2 = Sub (a0, a1) a3 = Mul (a2, a2) a4 = mean (a3) a5 = Add (a4, tiny)
    a6 = Sqrt (a5) norm = Div (a2, a6)
    b0 = Exp (x) b1 = sum (b0) lse = Log (b1)
    c0 = Mul (b0, b0) c1 = Div (b0, c0) sig = Log (c1)
    d0 = Add (x, masks) masked = Softmax <axis = 1> (d0)
    e0 = Mul (x, loud) e1 = Transpose (x) e2 = MatMul (e0, e1) e3 = Mul (e2, tenth) e4 = Softmax <axis = 1> (e3)
    attended = MatMul (e4, x)
    f0 = Abs (x) f1 = Add (f0, tiny) quotient = Div (x, f1)
    g0 = Mul (x, six) g1 = Exp (g0) g2 = Mul (g1, g1) g3 = sum (g2) g4 = Sqrt (g3)
    length = Mul (g4, milli)
    h0 = Exp (tenth) folded = Mul (x, h0)
    i0 = Mul (x, small) i1 = Mul (i0, i0) i2 = Add (i1, milli) level = Log (i2)
    j0 = MatMul (x, weights) j1 = Mul (j0, million) j2 = Relu (j1) back = Mul (j2, millionth)
    k0 = Max (x, least) bounded = Softmax <axis = 1> (k0)
    l0 = Mul (x, thousand) l1 = Add (l0, six) wave = Sin (l1)
    m0 = Mul (x, million) m1 = HardSwish (m0) swish = Mul (m1, millionth)
"""
OUTPUTS = "norm lse sig masked attended quotient length folded level back bounded wave swish".split()
NUMBERS = {"thousand": 1e3, "tiny": 1e-12, "loud": 9e3, "six": 6.0, "tenth": 0.125, "milli": 1e-3, "small": 2.0**-9,
           "million": 1e6, "millionth": 1e-6}  # fmt: skip


@cache
def given(opset: int) -> Model:
    text = PLACES if opset >= HARD_SWISH else PLACES.replace("HardSwish", "Relu")
    for word, op, since in (("mean", "ReduceMean", 18), ("sum", "ReduceSum", 13)):
        of_axis = f"{op} <axes = [1], keepdims = 1> (" if opset < since else f"{op} <keepdims = 1> (@"
        text = text.replace(f"= {word} (", f"= {of_axis}")
    text = "".join(piece.replace(")", ", one)", 1) if at else piece for at, piece in enumerate(text.split("@")))
    ends = ", ".join(f"float[m, n] {name}" for name in OUTPUTS)
    stamp = f'<ir_version: {11 if opset > 20 else 8}, opset_import: ["" : {opset}]>'
    proto = onnx.parser.parse_model(f"{stamp} agraph (float[3, 8] x) => ({ends}) {{ {text} }}")
    masks = np.where(np.arange(24).reshape(SHAPE) % 5, 0, -1e9)
    weights = np.random.default_rng(1).standard_normal((8, 8)) / 1e3
    held = {**NUMBERS, "masks": masks, "weights": weights, "least": np.full(SHAPE, -3.4e38)}
    arrays = {name: np.asarray(array, np.float32) for name, array in held.items()}
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    proto.graph.initializer.extend([*tensors, onnx.numpy_helper.from_array(np.array([1]), "one")])
    return load(proto)


FEED = {"x": np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)}


def ran(proto: onnx.ModelProto) -> dict[str, Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip((value.name for value in session.get_outputs()), session.run(None, FEED), strict=True))


@cache
def wanted(opset: int) -> tuple[dict[str, Any], Ranges]:
    """The answers, and what every tensor held."""
    proto = typed_proto(Assignment(Sites(given(opset)), {}))
    inner = [name for node in proto.graph.node for name in node.output if name not in OUTPUTS]
    proto.graph.output.extend(onnx.helper.make_tensor_value_info(name, 1, None) for name in inner)
    seen = {**ran(proto), **FEED}
    sizes = {name: np.abs(array[array != 0]) for name, array in seen.items()}
    high = {name: float(size.max(initial=0.0)) for name, size in sizes.items()}
    low = {name: float(size.min()) for name, size in sizes.items() if size.size}
    return {name: seen[name] for name in OUTPUTS}, Ranges(high, low, {name: seen[name].size for name in seen})


@pytest.mark.parametrize("opset", OPSETS)
def test_a_repaired_model_is_valid_in_its_opset_and_keeps_its_answer(opset: int) -> None:
    before, ranges = wanted(opset)
    for rule in RULES:
        found = [(rule, repair) for repair in rule.find(given(opset), ranges)]
        if not found or rule.lossy:
            continue
        after, done = repaired(given(opset), found)
        assert done and after.opset() >= opset
        wide = typed_proto(Assignment(Sites(after), {}))
        for proto in (wide, typed_proto(Assignment.all_narrow(Sites(after)))):
            onnx.checker.check_model(proto, full_check=True)
        answers = ran(wide)
        for name, array in before.items():
            assert answers[name].shape == array.shape
            apart = float(np.linalg.norm(answers[name].astype(np.float64) - array))
            assert apart <= max(rule.bound, 1e-6) * float(np.linalg.norm(array)), (rule.name, name)


def test_each_rule_finds_its_place_in_most_opsets() -> None:
    found = {
        rule.name: [opset for opset in OPSETS if rule.find(given(opset), wanted(opset)[1])]
        for rule in RULES
        if not rule.lossy
    }
    assert {name for name, opsets in found.items() if len(opsets) < len(OPSETS) // 2} == set(), found
