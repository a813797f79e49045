"""The bias of a product between quantisers, which ONNX Runtime quantises itself: delivered models are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto

from halfwise import fix
from halfwise.core.notes import NoteKind
from halfwise.core.reasons import Reason
from tests.models.build import model, node, value, weight
from tests.models.quantised import whole

Array = np.ndarray[Any, Any]
LEVELS = [
    ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
]
SHAPES = {"Gemm": (4, 8), "MatMul": (4, 8), "Conv": (2, 8, 3, 3), "ConvTranspose": (2, 8, 3, 3)}


def quantised_layer(
    op: str,
    bias: float,
    weight_scale: Array | float = 1e-3,
    kind: int = TensorProto.INT8,
    passed: str = "Relu",
) -> onnx.ModelProto:
    """x -> Q -> DQ -> product with a bias -> `passed` -> Q -> DQ -> y."""
    shape = SHAPES[op]
    channels = op in ("Gemm", "MatMul")
    steps = np.rint(np.random.default_rng(0).standard_normal((8, 8)) * 40).clip(-120, 120)
    axis = {"axis": 1 if channels else 0} if np.ndim(weight_scale) else {}
    product = [node("MatMul", "d v", "p"), node("Add", "p b", "m")] if op == "MatMul" else [node(op, "d v b", "m")]
    return model(
        [
            node("QuantizeLinear", "x s z", "q"),
            node("DequantizeLinear", "q s z", "d"),
            node("DequantizeLinear", "w ws", "v", **axis),
            *product,
            node(passed, "m", "r"),
            node("QuantizeLinear", "r so z", "qo"),
            node("DequantizeLinear", "qo so z", "y"),
        ],
        [value("x", shape=shape)],
        [value("y", shape=shape)],
        [
            weight("s", np.float32(0.01)),
            weight("so", np.float32(0.02)),
            weight("ws", np.float32(weight_scale)),
            whole("z", np.zeros(()), kind),
            whole("w", steps if channels else steps.reshape(8, 8, 1, 1), kind),
            weight("b", np.linspace(-bias, bias, 8).astype(np.float32)),
        ],
        opset=19,
        ir_version=10,
    )


def feeds(op: str) -> list[dict[str, Array]]:
    rng = np.random.default_rng(1)
    return [{"x": rng.standard_normal(SHAPES[op]).astype(np.float32)} for _ in range(4)]


def ran(given: onnx.ModelProto, feed: dict[str, Array], level: ort.GraphOptimizationLevel) -> Array:
    options = ort.SessionOptions()
    options.graph_optimization_level, options.log_severity_level = level, 4
    session = ort.InferenceSession(given.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feed)[0], dtype=np.float64)


@pytest.mark.parametrize(
    ("op", "passed", "kind"),
    [
        ("Gemm", "Relu", TensorProto.INT8),
        ("MatMul", "Identity", TensorProto.FLOAT8E4M3FN),
        ("Conv", "Relu", TensorProto.FLOAT8E4M3FN),
        ("ConvTranspose", "Identity", TensorProto.INT8),
    ],
)
def test_what_is_delivered_is_right_at_every_optimisation_level(
    op: str, passed: str, kind: int, tmp_path: Path
) -> None:
    given = quantised_layer(op, 2.0, kind=kind, passed=passed)
    made = fix(given, feeds(op), out=tmp_path, tolerance=["rel_l2<=0.05"])
    assert made.good and made.typed is not None
    product = "n_p" if op == "MatMul" else "n_m"
    assert set(made.fp32_nodes) >= {product, "n_d", "n_v"}
    entry = next(each for each in made.plan.nodes if each.name == product)
    assert entry.why is Reason.COMPILER and entry.because[0].kind is NoteKind.KEEPS_BIAS_STEPS
    typed = onnx.load(made.typed.path)
    for feed in feeds(op):
        wanted = ran(given, feed, LEVELS[0])
        for level in LEVELS:
            assert np.linalg.norm(ran(typed, feed, level) - wanted) <= 0.05 * np.linalg.norm(wanted)


CHANNELS = np.geomspace(1e-5, 1e-2, 8)


@pytest.mark.parametrize(
    ("bias", "scale", "passed", "target"),
    [
        (0.005, 1e-4, "Relu", "onnx"),  # the product of the scales is subnormal, and the steps are few
        (2.0, 1e-3, "Tanh", "onnx"),  # not quantised by ONNX Runtime: no QuantizeLinear reads the sum
        (2.0, 1e-3, "Relu", "trt-10.9"),
    ],
)
def test_no_node_is_kept_without_need(bias: float, scale: float, passed: str, target: str) -> None:
    made = fix(
        quantised_layer("Conv", bias, scale, passed=passed), feeds("Conv"), target=target, tolerance=["rel_l2<=0.05"]
    )
    assert not made.fp32_nodes


def test_scales_by_channel_each_with_its_own_bias(tmp_path: Path) -> None:
    """With that of the input, the least scale is 1e-7: of all biases only the first has too many steps."""
    given = quantised_layer("Conv", 0.01, CHANNELS)
    made = fix(given, feeds("Conv"), out=tmp_path, tolerance=["rel_l2<=0.05"], target="ort-cuda")
    assert any(each.because[0].kind is NoteKind.KEEPS_BIAS_STEPS for each in made.plan.nodes)


@pytest.mark.parametrize(("forced", "good"), [("n_m", True), ("n_q n_d n_v n_m n_r n_qo n_y", False)])
def test_the_run_of_what_was_delivered_tells(forced: str, good: bool, tmp_path: Path) -> None:
    """Forced into FP16 by the user, the product is computed wrong: a neighbour in FP32 mends it, where one may."""
    given = quantised_layer("Gemm", 2.0)
    force = [f"name:{name}" for name in forced.split()]
    made = fix(given, feeds("Gemm"), out=tmp_path, tolerance=["rel_l2<=0.05"], force=force)
    assert made.met and made.good == good
    assert made.to_json()["delivered"]["status"] == ("met" if good else "not-met")
    assert not good or {each.because[0].kind for each in made.plan.nodes} == {NoteKind.KEEPS_CPU_RIGHT}
