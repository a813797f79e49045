"""HW409 clips weights, with loss; HW410 makes constants finite where that has no effect."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from halfwise.model.model import load
from halfwise.repair import Ranges, repaired
from halfwise.repair.clip_weights import CLIP_WEIGHTS
from halfwise.repair.finite_constants import FINITE_CONSTANTS
from tests.models.build import f32, model, node, value, weight
from tests.models.zoo import SHAPES, cnn_tiny_weights
from tests.support.repairing import effect, ranges_of
from tests.support.says import Says


def feeds(scale: float = 1.0) -> list[dict[str, Any]]:
    rng = np.random.default_rng(5)
    return [{"x": (scale * rng.standard_normal((4, 6))).astype(np.float32)} for _ in range(3)]


def one(op: str, inputs: str, weights: Any, *more: onnx.NodeProto, out: int = TensorProto.FLOAT) -> onnx.ModelProto:
    last = "y" if not more else "m"
    nodes = [node(op, inputs, last), *more]
    return model(nodes, [value("x", shape=(4, 6))], [value("y", out, None)], weights)


# -- clip-weights -----------------------------------------------------------------------------------------------------


def test_weights_are_flushed_and_clipped(says: Says) -> None:
    w = f32(1e-9, -4e-5, 2e-5, 1e6, -1e6, 0.5, 0.0, -1e-9).reshape(8, 1)
    x = np.eye(8, dtype=np.float32)
    proto = model(
        [node("MatMul", "x w", "y")], [value("x", shape=(8, 8))], [value("y", shape=(8, 1))], [weight("w", w)]
    )
    found = effect(CLIP_WEIGHTS, proto, [{"x": x}])
    least = 2.0**-14
    assert found.answers[0]["y"].ravel().tolist() == [0.0, -least, 0.0, 65504.0, -65504.0, 0.5, 0.0, 0.0]
    (repair,) = found.repairs
    assert (repair.parameters["flushed"], repair.parameters["clipped"]) == (4, 2)
    says(repair.algebra)


def test_it_is_lossy_and_says_so() -> None:
    assert CLIP_WEIGHTS.lossy
    zoo = cnn_tiny_weights("tensors")
    found = effect(CLIP_WEIGHTS, zoo.model, zoo.inputs[:2], zoo.tolerance)
    assert found.deviation > 0.1  # all that mattered was tiny


def test_epsilons_and_healthy_weights_stay() -> None:
    proto = one("Add", "x e", [weight("e", f32(1e-12))])
    assert CLIP_WEIGHTS.find(load(proto), Ranges()) == ()
    rng = np.random.default_rng(0)
    proto = one("MatMul", "x w", [weight("w", (1.0 + rng.random((6, 6))).astype(np.float32))])
    assert CLIP_WEIGHTS.find(load(proto), Ranges()) == ()


def test_a_shared_weight_stays_for_who_else_reads_it() -> None:
    proto = one("MatMul", "x w", [weight("w", np.full((6, 6), 1e-6, np.float32))], node("Mul", "w k", "y"))
    proto.graph.initializer.append(weight("k", f32(1e6)))
    proto.graph.output.append(value("m", shape=(4, 6)))
    found = effect(CLIP_WEIGHTS, proto, feeds())
    assert (found.answers[0]["m"] == 0).all()
    assert (found.answers[0]["y"] == np.float32(1e-6) * np.float32(1e6)).all()


# -- finite-constants -------------------------------------------------------------------------------------------------

_SAME = [
    ("Clip", "x lo hi", {"lo": -np.inf, "hi": 1e9}, [1, 2]),
    ("Clip", "x lo hi", {"lo": 0.0, "hi": np.inf}, [2]),
    ("Max", "x lo", {"lo": -3.4e38}, [1]),
    ("Min", "hi x", {"hi": 1e6}, [0]),
    ("Less", "x hi", {"hi": 1e6}, [1]),
    ("Greater", "x hi", {"hi": -np.inf}, [1]),
    ("Equal", "x hi", {"hi": np.inf}, [1]),
]


@pytest.mark.parametrize(("op", "inputs", "constants", "slots"), _SAME)
def test_constants_without_effect_become_finite(op: str, inputs: str, constants: Any, slots: list[int]) -> None:
    weights = [weight(name, np.float32(number)) for name, number in constants.items()]
    out = TensorProto.BOOL if op in ("Less", "Greater", "Equal") else TensorProto.FLOAT
    found = effect(FINITE_CONSTANTS, one(op, inputs, weights, out=out), feeds())
    assert [repair.parameters["slot"] for repair in found.repairs] == slots
    assert found.bit_identical
    for slot in slots:
        new = found.repaired.node_by_name["n_y"].inputs[slot]
        assert abs(float(new.const_value.numpy())) == 65504.0


@pytest.mark.parametrize("pick", ["ArgMax", "ArgMin", "Less"])
def test_a_stand_in_that_is_only_picked_over(pick: str) -> None:
    weights = [weight("flag", np.arange(6) % 2 == 0), weight("far", np.float32(1e30)), weight("k", np.float32(7.0))]
    last = node(pick, "m k" if pick == "Less" else "m", "y")
    out = TensorProto.BOOL if pick == "Less" else TensorProto.INT64
    found = effect(FINITE_CONSTANTS, one("Where", "flag x far", weights, last, out=out), feeds())
    assert len(found.repairs) == 1
    assert found.bit_identical


_NOT = [
    ("Clip", "x big hi", {"big": 1e9, "hi": 2e9}),  # every element becomes 1e9
    ("Max", "x big", {"big": 1e9}),
    ("Min", "x big", {"big": -1e9}),
    ("Add", "x big", {"big": 1e9}),
    ("Mul", "x big", {"big": 1e9}),
    ("Clip", "x lo hi", {"lo": -60000.0, "hi": 65504.0}),
    ("Clip", "x lo hi", {"lo": -1.0, "hi": np.nan}),
]


@pytest.mark.parametrize(("op", "inputs", "constants"), _NOT)
def test_constants_with_an_effect_stay(op: str, inputs: str, constants: Any) -> None:
    weights = [weight(name, np.float32(number)) for name, number in constants.items()]
    loaded = load(one(op, inputs, weights))
    found = FINITE_CONSTANTS.find(loaded, Ranges(high={"x": 5.0}))
    assert all(repair.parameters["slot"] != 1 for repair in found)
    assert op == "Clip" or found == ()


@pytest.mark.parametrize("reader", ["Softmax", "ReduceMin", "Relu"])
def test_a_stand_in_whose_value_matters_stays(reader: str) -> None:
    weights = [weight("flag", np.arange(6) % 2 == 0), weight("far", np.float32(1e30))]
    loaded = load(one("Where", "flag x far", weights, node(reader, "m", "y")))
    assert FINITE_CONSTANTS.find(loaded, ranges_of(loaded, feeds())) == ()


def test_what_exceeds_fp16_itself_keeps_its_bounds() -> None:
    proto = one("Clip", "x lo hi", [weight("lo", np.float32(-1e9)), weight("hi", np.float32(1e9))])
    assert effect(FINITE_CONSTANTS, proto, feeds(1e6)).repairs == ()
    assert FINITE_CONSTANTS.find(load(proto), Ranges()) == ()


def test_a_place_that_is_gone_is_refused() -> None:
    loaded = load(one("Min", "hi x", [weight("hi", np.float32(1e6))]))
    (repair,) = FINITE_CONSTANTS.find(loaded, ranges_of(loaded, feeds()))
    for other in (one("Max", "hi x", [weight("hi", np.float32(-1e6))]), one("Min", "hi x", [weight("hi", f32(1.0))])):
        assert repaired(load(other), [(FINITE_CONSTANTS, repair)])[1] == ()
    healthy = load(SHAPES["healthy_mlp"]().model)
    assert repaired(healthy, [(FINITE_CONSTANTS, repair)])[1] == ()


@settings(max_examples=30, deadline=None)
@given(
    op=st.sampled_from(["Max", "Min", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal"]),
    constant=st.sampled_from([65505.0, -65505.0, 1e9, -3.4e38, np.inf, -np.inf]),
    values=st.lists(st.floats(-32768, 32768, width=32), min_size=24, max_size=24),
)
def test_no_bit_of_fp32_changes(op: str, constant: float, values: list[float]) -> None:
    out = TensorProto.FLOAT if op in ("Max", "Min") else TensorProto.BOOL
    proto = one(op, "x c", [weight("c", np.float32(constant))], out=out)
    assert effect(FINITE_CONSTANTS, proto, [{"x": np.array(values, np.float32).reshape(4, 6)}]).bit_identical
