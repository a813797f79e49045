"""Ranks that inference cannot tell are taken from the FP32 run, and rules work behind them."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

from halfwise import fix
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.observed_ranks import with_observed_ranks
from halfwise.model.model import Model, load
from halfwise.verbs.gate import fits
from tests.support.repairing import Feed

# What takes one axis away, so that inference knows no rank behind it; but in one of them.
FRONTS = {
    "branch": """s = Shape (x) d = Gather <axis = 0> (s, one) c = Equal (d, one)
        h = If (c) <then_branch = then () => (float[] t) { t = Squeeze (x, ones) },
                    else_branch = other () => (float[] e) { e = Identity (x) }>""",
    "known": "h = Squeeze (x, ones)",
    "sizes": "s = Shape (x) kept = Greater (s, one) sizes = Compress (s, kept) h = Reshape (x, sizes)",
}
NORM = """a = MatMul (h, w1) m = MatMul (a, w2) mu = ReduceMean (m, last) dc = Sub (m, mu) q = Mul (dc, dc)
    v = ReduceMean (q, last) ve = Add (v, little) sd = Sqrt (ve) n0 = Div (dc, sd) n1 = Mul (n0, scale)
    y = MatMul (n1, w3)"""
REST = """loud = Mul (h, many) a = MatMul (loud, w1) p = Mul (a, a) m = MatMul (p, w2) safe = Add (m, little)
    level = Log (safe) y = MatMul (level, w3)"""


def model(front: str, rest: str = REST) -> onnx.ModelProto:
    ends = "(float[b, n, t, 16] x) => (float[?, ?, 4] y)"
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> g {ends} {{ {FRONTS[front]} {rest} }}')
    random = np.random.default_rng(0)
    floats = {
        "w1": random.standard_normal((16, 32)) * 3.0,
        "w2": np.abs(random.standard_normal((32, 16))),
        "w3": random.standard_normal((16, 4)),
        "many": 300.0,
        "little": 1e-6,
        "scale": np.linspace(1.0, 2.0, 16),
    }
    for name, array in floats.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array, np.float32), name))
    for name, number in (("one", 1), ("ones", [1]), ("last", [-1])):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(number, np.int64), name))
    return proto


def feeds(*sizes: int) -> list[Feed]:
    random = np.random.default_rng(1)
    return [{"x": random.standard_normal((2, size, 5, 16)).astype(np.float32)} for size in sizes]


def ranks(of: Model) -> dict[str, int | None]:
    values = [value for node in of.graph for value in node.outputs]
    return {value.name or "": None if value.shape is None else len(value.shape) for value in values}


@pytest.mark.parametrize("front", ["branch", "sizes"])
def test_rules_work_behind_a_rank_that_only_a_run_tells(front: str) -> None:
    given = load(model(front))
    assert ranks(given)["h"] is None
    seen, answers = with_observed_ranks(given, feeds(1, 1), Emulator())
    assert ranks(seen)["h"] == ranks(seen)["level"] == 3 and ranks(given)["h"] is None
    plain = ort.InferenceSession(model(front).SerializeToString(), providers=["CPUExecutionProvider"])
    for feed, answer in zip(feeds(1, 1), answers, strict=True):
        assert isinstance(answer, dict) and np.allclose(answer["y"], plain.run(None, feed)[0], rtol=1e-4)
    result = fix(model(front), feeds(1, 1, 1))
    assert result.met and not result.fp32_nodes and result.plan.repairs


def test_the_run_that_tells_ranks_is_that_of_the_fp32_model() -> None:
    def runs(front: str) -> float:
        proto = model(front)
        proto.graph.initializer[3].CopyFrom(onnx.numpy_helper.from_array(np.float32(0.1), "many"))
        return fix(proto, feeds(1, 1, 1), repairs=("none",)).cost.model_runs

    assert runs("branch") == runs("known")


def test_a_plan_with_such_a_repair_is_applied_without_a_run() -> None:
    given = model("branch", NORM)
    loud = onnx.numpy_helper.to_array(given.graph.initializer[0]) * np.float32(100.0)
    given.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(loud, "w1"))
    result = fix(given, feeds(1, 1, 1), repairs=("norm-operator",))
    assert [repair.rule for repair in result.plan.repairs] == ["HW402"] and not result.fp32_nodes
    assert all(check.status == "pass" for check in fits(result.plan, load(given)))


def test_a_rank_on_which_samples_differ_stays_open() -> None:
    given = load(model("branch"))
    seen, answers = with_observed_ranks(given, feeds(1, 2), Emulator())
    assert seen is given and len(answers) == 2


def test_a_model_of_known_ranks_is_not_run() -> None:
    given = load(model("known"))
    assert with_observed_ranks(given, feeds(1), Emulator()) == (given, [])
