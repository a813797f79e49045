"""HW412: phases are wrapped to a period, so that harmonics and sines of them need no FP32."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from halfwise import fix
from halfwise.core.notes import NoteKind
from halfwise.repair.wrap_phase import WRAP_PHASE
from tests.support.repairing import Feed, effect

TIMES, RATE = 6000, 24000.0


def weight(name: str, array: object, dtype: type = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(array, dtype), name)


def voice(kind: str = "cycles", opset: int = 17) -> onnx.ModelProto:
    """A pitch, summed up to a phase, and what vocoders make of it."""
    node = helper.make_node
    nodes = [node("Mul", ["pitch", "per_step"], ["rate"], "rate"), node("CumSum", ["rate", "one"], ["sum"], "sum")]
    rate = 2 * math.pi / RATE if kind in ("radians", "quadrature") else 1.0 / RATE
    weights = [weight("per_step", rate), weight("one", 1, np.int64), weight("turn", 2 * math.pi)]
    if kind in ("cycles", "read twice"):
        nodes += [node("Mul", ["sum", "turn"], ["phase"], "phase"), node("Sin", ["phase"], ["wave"], "wave")]
    elif kind == "harmonics":
        weights += [weight("numbers", [[[1.0], [2.0], [3.0]]])]
        nodes += [
            node("Unsqueeze", ["sum", "one"], ["row"], "row"),
            node("Mul", ["row", "numbers"], ["each"], "each"),
            node("Mul", ["each", "turn"], ["phase"], "phase"),
            node("Sin", ["phase"], ["waves"], "waves"),
            node("ReduceMean", ["waves"], ["wave"], "mean", axes=[1], keepdims=0),
        ]
    elif kind == "odd harmonics":  # no period is common to all of them
        weights += [weight("numbers", [[[1.0], [math.sqrt(2.0)], [math.e]]])]
        nodes += [
            node("Unsqueeze", ["sum", "one"], ["row"], "row"),
            node("Mul", ["row", "numbers"], ["each"], "each"),
            node("Sin", ["each"], ["waves"], "waves"),
            node("ReduceMean", ["waves"], ["wave"], "mean", axes=[1], keepdims=0),
        ]
    elif kind == "radians":
        nodes += [node("Add", ["sum", "turn"], ["phase"], "phase"), node("Sin", ["phase"], ["wave"], "wave")]
    else:
        sides = [node("Sin", ["sum"], ["sine"], "sine"), node("Cos", ["sum"], ["cosine"], "cosine")]
        nodes += [*sides, node("Add", ["sine", "cosine"], ["wave"], "wave")]
    outputs = ["out"] + (["phase"] if kind == "read twice" else [])
    weights += [weight("gain", 0.1), weight("floor", 0.02)]
    nodes += [node("Mul", ["wave", "gain"], ["quiet"], "quiet"), node("Add", ["quiet", "floor"], ["out"], "out")]
    graph = helper.make_graph(
        nodes,
        "voice",
        [helper.make_tensor_value_info("pitch", TensorProto.FLOAT, [1, TIMES])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def pitches(count: int = 5) -> list[Feed]:
    random = np.random.default_rng(0)
    times = np.linspace(0.0, 1.0, TIMES)
    # A pitch that FP16 holds, so that all the error is that of the phase.
    bends = [np.round(160 + 80 * random.random() + 30 * np.sin(9 * times + k)) for k in range(count)]
    return [{"pitch": bend[None].astype(np.float32)} for bend in bends]


@pytest.mark.parametrize(
    ("kind", "period"),
    [("cycles", 1.0), ("harmonics", 1.0), ("radians", 2 * math.pi), ("quadrature", 2 * math.pi)],
)
def test_wraps_before_the_phase_is_scaled(kind: str, period: float) -> None:
    found = effect(WRAP_PHASE, voice(kind), pitches(2))
    assert len(found.repairs) == 1
    assert found.repairs[0].parameters == {"value": "sum", "period": pytest.approx(period, rel=1e-7)}
    mod = next(node for node in found.repaired.nodes if node.op_type == "Mod")
    assert mod.inputs[0] is not None and mod.inputs[0].name == "sum"
    assert found.deviation <= 1e-4


@pytest.mark.parametrize("kind", ["read twice", "odd harmonics"])
def test_leaves_alone_what_is_no_phase_of_one_period(kind: str) -> None:
    assert not effect(WRAP_PHASE, voice(kind), pitches(1)).repairs


def test_leaves_alone_what_has_no_remainder_or_stays_small() -> None:
    quiet = [{"pitch": feed["pitch"] / 16} for feed in pitches(1)]
    assert not effect(WRAP_PHASE, voice(opset=17), quiet).repairs


@pytest.mark.parametrize(("kind", "plain", "runs"), [("cycles", 4, 22), ("harmonics", 6, 27)])
def test_a_voice_keeps_only_its_sum_and_the_remainder(kind: str, plain: int, runs: int, tmp_path: Path) -> None:
    feeds = pitches()
    result = fix(voice(kind), feeds, out=tmp_path)
    assert result.met and len(result.fp32_nodes) <= 3  # the steps, their sum, and its remainder
    assert [each.rule for each in result.plan.repairs] == ["HW412"]
    assert result.cost.model_runs <= runs  # what is rounded away from the phase is known from before the repair
    assert {note.kind for node in result.plan.nodes for note in node.because} >= {NoteKind.ROUNDS_PHASE}
    assert len(fix(voice(kind), feeds, repairs="none").fp32_nodes) == plain
    assert result.typed is not None
    session = onnxruntime.InferenceSession(str(result.typed.path), providers=["CPUExecutionProvider"])
    for feed in feeds:
        (got,) = session.run(None, feed)
        phase = 2 * math.pi * np.cumsum(feed["pitch"].astype(np.float64) / RATE, 1)
        numbers = [1, 2, 3] if kind == "harmonics" else [1]
        wanted = 0.1 * np.mean([np.sin(k * phase) for k in numbers], axis=0) + 0.02
        assert np.linalg.norm(got - wanted) <= 0.01 * np.linalg.norm(wanted)
