"""HW401: powers of two that cancel bring weights and activations into FP16's range, and no bit of FP32 changes."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from halfwise.model.model import load
from halfwise.repair import Ranges, repaired
from halfwise.repair.rescale import RESCALE, scalings
from halfwise.repair.scale_ends import plain_flow
from halfwise.repair.scale_flow import ScaleFlow
from tests.models.build import f32, model, node, value, weight
from tests.models.zoo import SHAPES, cnn_tiny_weights
from tests.support.repairing import Effect, effect, ranges_of
from tests.support.rescaled import normal, rows
from tests.support.says import Says


def mlp(*middle: onnx.NodeProto, tiny: float = 1e-7, loud: float = 3e3, more: Any = (), **given: Any) -> Any:
    """x -> loud -> `middle`, from a to b -> tiny -> y."""
    nodes = [node("MatMul", "x w1", "a"), *middle, node("MatMul", "b w2", "y")]
    weights = [weight("w1", normal(1, 8, 8, scale=loud)), weight("w2", normal(2, 8, 8, scale=tiny)), *more]
    outputs = given.pop("outputs", [value("y", shape=(4, 8))])
    return model(nodes, [value("x", shape=(4, 8))], outputs, weights, **given)


def changed(found: Effect) -> set[str]:
    return {edit["node"] for repair in found.repairs for edit in repair.parameters["constants"]}


# -- what it is for ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tensors", "channels"])
def test_a_cnn_with_tiny_weights_needs_no_fp32_node(kind: Any) -> None:
    zoo = cnn_tiny_weights(kind)
    found = effect(RESCALE, zoo.model, zoo.inputs, zoo.tolerance)
    assert found.before > 4
    assert found.after < 0.2
    assert found.bit_identical
    assert len(found.repairs) == 3  # one a stage
    assert found.ops() == [each.op_type for each in found.model.nodes]  # not one node more


def test_tiny_channels_are_scaled_alone() -> None:
    zoo = cnn_tiny_weights("channels")
    found = effect(RESCALE, zoo.model, zoo.inputs[:3], zoo.tolerance)
    edit = next(e for e in found.repairs[0].parameters["constants"] if e["node"] == "/stages.0/shrink/Conv")
    assert [i for i, power in enumerate(edit["powers"]) if power] == [2, 7, 11]
    assert changed(found) == {f"/stages.{i}/{part}/Conv" for i in range(3) for part in ("shrink", "recover")}


@pytest.mark.parametrize("residual", [False, True])
def test_tiny_channels_are_scaled_alone_through_a_sum(residual: bool) -> None:
    """With a bias, and with another tensor of as many channels."""
    quiet = np.where(np.isin(np.arange(8), (2, 5)), 2.0**-30, 1).astype(np.float32)
    nodes = [
        node("MatMul", "x w1", "a"),
        *([node("MatMul", "x w3", "b")] if residual else []),
        node("Add", "a b", "c"),
        node("Relu", "c", "d"),
        node("MatMul", "d w2", "y"),
    ]
    weights = [weight("w1", normal(1, 8, 8) * quiet), weight("w2", normal(3, 8, 8) / quiet[:, None])]
    weights += [weight("w3", normal(2, 8, 8) * quiet)] if residual else [weight("b", normal(2, 8) * quiet)]
    proto = model(nodes, [value("x", shape=(4, 8))], [value("y", shape=(4, 8))], weights)
    found = effect(RESCALE, proto, rows())
    assert found.before > 1 > found.after and found.bit_identical
    moved = {edit["node"]: np.flatnonzero(edit["powers"]).tolist() for edit in found.repairs[0].parameters["constants"]}
    assert moved == {name: [2, 5] for name in ("n_a", "n_b" if residual else "n_c", "n_y")}


@pytest.mark.parametrize("powers", [[-40] * 8, [40] * 8, [0, -40, -40, -40, 0, 0, 0, 0], [0, 0, 20, 0, 0, 20, 0, 0]])
def test_channels_of_a_residual_stream_that_have_to_move_together(powers: list[int]) -> None:
    """What mixes them is beyond FP16 as soon as one moves alone; loud ones arise within the stream."""
    scale = np.exp2(powers).astype(np.float32)
    first = np.minimum(scale, 1) if 0 in powers else scale
    nodes = [node("MatMul", "x w1", "a"), node("MatMul", "a w2", "b"), node("Add", "b c", "d"), node("Add", "a d", "e")]
    weights = [weight("w1", normal(1, 8, 8) * first), weight("w2", normal(2, 8, 8) * scale / first[:, None])]
    weights += [weight("c", normal(3, 8) * scale), weight("w3", normal(4, 8, 8) / scale[:, None])]
    io = [value("x", shape=(4, 8))], [value("y", shape=(4, 8))]
    found = effect(RESCALE, model([*nodes, node("MatMul", "e w3", "y")], *io, weights), rows())
    assert found.before > 1 > found.after and found.bit_identical


def test_subnormal_weights_behind_loud_activations() -> None:
    zoo = SHAPES["subnormal_weights"]()
    found = effect(RESCALE, zoo.model, zoo.inputs, zoo.tolerance)
    assert found.before > 1 > 0.2 > found.after
    assert found.bit_identical


def test_loud_activations_in_front_of_a_norm_operator() -> None:
    nodes = [
        node("MatMul", "x w1", "a"),
        node("Add", "a c", "b"),
        node("LayerNormalization", "b g s", "n", axis=-1, epsilon=1e-3),
        node("MatMul", "n w2", "y"),
    ]
    weights = [
        weight("w1", normal(1, 8, 8, scale=1e5)), weight("c", normal(2, 8, scale=1e4)),
        weight("g", normal(3, 8)), weight("s", normal(4, 8)), weight("w2", normal(5, 8, 8)),
    ]  # fmt: skip
    found = effect(RESCALE, model(nodes, [value("x", shape=(4, 8))], [value("y", shape=(4, 8))], weights), rows())
    assert found.before > 1 > found.after
    assert found.bit_identical
    norm = found.repaired.node_by_name["n_n"]
    power = found.repairs[0].parameters["epsilons"][0]["power"]
    assert power < 0
    assert norm.attributes["epsilon"].as_float() == np.float32(1e-3) * 4.0**power


@pytest.mark.parametrize("op", ["InstanceNormalization", "BatchNormalization"])
def test_loud_feature_maps_in_front_of_a_norm(op: str) -> None:
    rest = "g s m v" if op == "BatchNormalization" else "g s"
    nodes = [node("Conv", "x w1", "a"), node(op, f"a {rest}", "b"), node("Conv", "b w2", "y")]
    weights = [
        weight("w1", normal(1, 6, 3, 1, 1, scale=1e5)), weight("w2", normal(2, 2, 6, 1, 1)),
        weight("g", normal(3, 6)), weight("s", normal(4, 6)), weight("m", normal(5, 6, scale=1e5)),
        weight("v", normal(6, 6, scale=1e5) ** 2),
    ]  # fmt: skip
    weights = weights if op == "BatchNormalization" else weights[:4]
    proto = model(nodes, [value("x", shape=(1, 3, 4, 4))], [value("y", shape=(1, 2, 4, 4))], weights)
    found = effect(RESCALE, proto, rows(9, 1, 3, 4, 4))
    assert found.before > 1
    assert found.bit_identical
    if op == "InstanceNormalization":
        assert found.after < 1
    else:  # a variance of 1e10 leaves FP16 whatever is done to its input; the activations fit
        assert all(high < 65504 for high in ranges_of(found.repaired, rows(9, 1, 3, 4, 4)).high.values())


def test_a_result_that_must_come_out_as_it_is_is_scaled_back_behind_the_operator() -> None:
    nodes = [
        node("Mul", "x l", "a"),
        node("Exp", "a", "e"),
        node("Gemm", "e w c", "z", transB=1),
        node("Tanh", "z", "y"),
    ]
    weights = [weight("l", f32(1.0)), weight("w", normal(1, 5, 8, scale=2e-7)), weight("c", normal(2, 5, scale=1e-3))]
    proto = model(nodes, [value("x", shape=(4, 8))], [value("y", shape=(4, 5))], weights)
    feeds = [{"x": 7.0 + normal(i, 4, 8)} for i in range(3)]
    found = effect(RESCALE, proto, feeds)
    assert found.before > 1 > found.after
    assert found.bit_identical
    assert found.ops() == ["Mul", "Exp", "Gemm", "Mul", "Tanh"]
    assert found.repaired.node_by_name["n_y"].inputs[0].name == "z"  # readers keep the name that they read


@pytest.mark.parametrize("gains", [{"alpha": 1e-5}, {"alpha": 1e-5, "beta": 0.3}, {"alpha": -1e-5, "beta": 0.0}])
def test_a_product_with_gains_lets_a_power_pass(gains: dict[str, float]) -> None:
    """The gains multiply what is scaled already."""
    nodes = [node("Mul", "x k", "a"), node("Gemm", "a w c", "b", **gains), node("Tanh", "b", "y")]
    weights = [weight("k", f32(1e5, 2e5, 3e5)), weight("w", normal(1, 3, 2)), weight("c", normal(2, 2))]
    proto = model(nodes, [value("x", shape=(4, 3))], [value("y", shape=(4, 2))], weights)
    found = effect(RESCALE, proto, [{"x": normal(i, 4, 3)} for i in range(3)])
    assert found.before > 1 > found.after
    assert found.bit_identical


def test_scaling_back_in_front_of_an_output_keeps_its_name() -> None:
    nodes = [node("Exp", "x", "e"), node("MatMul", "e w", "y")]
    proto = model(
        nodes, [value("x", shape=("n", 8))], [value("y", shape=("n", 5))], [weight("w", normal(1, 8, 5, scale=1e-7))]
    )
    found = effect(RESCALE, proto, [{"x": 7.0 + normal(i, 4, 8)} for i in range(3)])
    assert found.before > 1 > found.after
    assert found.bit_identical
    assert found.repaired.output_names == ("y",)


def test_weights_over_65504_come_down() -> None:
    proto = mlp(node("Relu", "a", "b"), tiny=3e5, loud=1e-3)
    found = effect(RESCALE, proto, rows())
    assert np.isinf(found.before) or found.before > 1
    assert found.bit_identical
    for node_name in ("n_a", "n_y"):
        assert np.abs(found.repaired.node_by_name[node_name].inputs[1].const_value.numpy()).max() < 65504


def test_embeddings_and_residual_sums_carry_one_scale() -> None:
    nodes = [
        node("Gather", "t ids", "a", axis=0), node("MatMul", "a w1", "h"), node("Relu", "h", "r"),
        node("MatMul", "r w2", "d"), node("Add", "a d", "b"), node("RMSNormalization", "b g", "n", axis=-1),
        node("MatMul", "n w3", "y"),
    ]  # fmt: skip
    weights = [
        weight("t", normal(1, 11, 8, scale=9e4)), weight("w1", normal(2, 8, 8, scale=0.3)),
        weight("w2", normal(3, 8, 8, scale=0.3)), weight("g", normal(4, 8)), weight("w3", normal(5, 8, 8)),
    ]  # fmt: skip
    proto = model(
        nodes, [value("ids", TensorProto.INT64, (6,))], [value("y", shape=(6, 8))], weights, opset=23, ir_version=11
    )
    found = effect(RESCALE, proto, [{"ids": np.random.default_rng(i).integers(0, 11, 6)} for i in range(3)])
    assert found.before > 1 > found.after
    assert found.bit_identical


# -- what it leaves alone ---------------------------------------------------------------------------------------------


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    zoo = SHAPES["healthy_mlp"]()
    loaded = load(zoo.model)
    assert RESCALE.find(loaded, ranges_of(loaded, zoo.inputs[:3])) == ()


def test_without_ranges_nothing_is_found() -> None:
    assert RESCALE.find(load(SHAPES["subnormal_weights"]().model), Ranges()) == ()


@pytest.mark.parametrize("between", ["Tanh", "Exp", "Softplus", "Sin", "Gelu"])
def test_what_bends_lets_no_scale_pass(between: str) -> None:
    opset = {"opset": 20, "ir_version": 9} if between == "Gelu" else {}
    found = effect(RESCALE, mlp(node(between, "a", "b"), loud=0.3, **opset), rows())
    assert found.bit_identical
    assert changed(found) <= {"n_y"}  # what is in front of the bend stays; the tiny weights are scaled back behind
    assert not any(edit["slot"] == 0 for repair in found.repairs for edit in repair.parameters["constants"])


def test_a_square_carries_twice_the_power() -> None:
    found = effect(RESCALE, mlp(node("Mul", "a a", "b")), rows())
    powers = {edit["node"]: edit["powers"] for edit in found.repairs[0].parameters["constants"]}
    assert powers["n_y"] == -2 * powers["n_a"] > 0
    assert found.bit_identical
    assert found.before > 1 > found.after


def test_a_tensor_that_is_an_output_keeps_its_values() -> None:
    outputs = [value("y", shape=(4, 8)), value("a", shape=(4, 8))]
    found = effect(RESCALE, mlp(node("Relu", "a", "b"), outputs=outputs), rows())
    assert found.bit_identical
    assert "n_a" not in changed(found)


def test_a_tensor_that_a_subgraph_reads_keeps_its_values() -> None:
    then = helper.make_graph([node("Exp", "a", "t")], "then", [], [value("t", shape=(4, 8))])
    other = helper.make_graph([node("Neg", "a", "o")], "else", [], [value("o", shape=(4, 8))])
    branch = helper.make_node("If", ["flag"], ["z"], name="n_z", then_branch=then, else_branch=other)
    extra = [weight("flag", np.array(False))]
    outputs = [value("y", shape=(4, 8)), value("z", shape=(4, 8))]
    found = effect(RESCALE, mlp(node("Relu", "a", "b"), branch, outputs=outputs, more=extra), rows())
    assert found.bit_identical
    assert "n_a" not in changed(found)


@pytest.mark.parametrize("repeated", [True, False])
def test_a_token_beside_what_overflows_is_scaled_with_it(repeated: bool) -> None:
    """As a vision transformer puts the token of the class in front of its patches."""
    token = weight("token", normal(3, 1, 1, 8, scale=1e5))
    nodes = [node("MatMul", "x w1", "a"), node("Expand", "token shape", "t"), node("Concat", "t a", "c", axis=1),
             node("MatMul", "c w2", "y")]  # fmt: skip
    if not repeated:
        nodes[1:3] = [node("Concat", "token a", "c", axis=1)]
    weights = [weight("w1", normal(1, 8, 8, scale=1e5)), weight("w2", normal(2, 8, 8, scale=1e-6)), token]
    weights += [weight("shape", np.array([1, 1, 8]))] if repeated else []
    proto = model(nodes, [value("x", shape=(1, 4, 8))], [value("y", shape=(1, 5, 8))], weights)
    found = effect(RESCALE, proto, rows(9, 1, 4, 8))
    assert found.before > 1 > found.after and found.bit_identical
    assert {"n_a", "n_t" if repeated else "n_c", "n_y"} <= changed(found)


def test_a_constant_that_is_joined_twice_takes_one_power_a_place() -> None:
    nodes = [node("MatMul", "x w1", "a"), node("Concat", "token a token", "c", axis=1), node("MatMul", "c w2", "y")]
    weights = [weight("w1", normal(1, 8, 8, scale=1e5)), weight("w2", normal(2, 8, 8, scale=1e-6))]
    weights += [weight("token", normal(3, 1, 1, 8, scale=1e5))]
    proto = model(nodes, [value("x", shape=(1, 4, 8))], [value("y", shape=(1, 6, 8))], weights)
    found = effect(RESCALE, proto, rows(9, 1, 4, 8))
    assert found.before > 1 > found.after and found.bit_identical


def test_a_sum_with_something_unscaled_stays() -> None:
    found = effect(RESCALE, mlp(node("Relu", "a", "r"), node("Add", "r x", "b")), rows())
    assert "n_a" not in changed(found)
    assert found.bit_identical


def _decayed(least: float) -> onnx.ModelProto:
    """Half of the hidden units are in other units; every third weight is what weight decay has left of it."""
    units = np.resize(np.exp2(np.float32([-26, 0])), 8).astype(np.float32)
    first, second = normal(1, 8, 8) * units, normal(2, 8, 8) / units[:, None]
    first.reshape(-1)[::3] = second.reshape(-1)[::3] = least
    nodes = [node("MatMul", "x w1", "a"), node("Relu", "a", "b"), node("MatMul", "b w2", "y")]
    weights = [weight("w1", first), weight("w2", second)]
    return model(nodes, [value("x", shape=(4, 8))], [value("y", shape=(4, 8))], weights)


@pytest.mark.parametrize("least", [1e-42, 3e-39, 4e-38])
def test_what_decay_has_left_of_weights_does_not_forbid_a_repair(least: float) -> None:
    """They are below FP32's normal numbers, or once scaled: beside the others they are 0."""
    found = effect(RESCALE, _decayed(least), rows())
    assert found.before > 1.0 > found.after and found.bit_identical
    assert "below 2^-126 become 0" in found.repairs[0].algebra
    (edited,) = {
        tuple(edit["powers"]) for r in found.repairs for edit in r.parameters["constants"] if edit["node"] == "n_y"
    }
    kept = load(_decayed(least)).graph.initializers["w2"].const_value.numpy() * np.exp2(np.float32(edited))[:, None]
    kept[np.abs(kept) < np.finfo(np.float32).tiny] = 0
    assert np.array_equal(found.repaired.node_by_name["n_y"].inputs[1].const_value.numpy(), kept)


def test_a_guard_that_would_leave_the_normal_numbers_is_left() -> None:
    """A constant whose values all become 0 is no term beside others: behind it may be a division."""
    guard = weight("guard", np.full(8, 2e-38, np.float32))
    found = effect(RESCALE, mlp(node("Add", "a guard", "c"), node("Relu", "c", "b"), more=[guard]), rows())
    assert found.bit_identical
    assert not any("become 0" in repair.algebra for repair in found.repairs)


# -- how it is applied ------------------------------------------------------------------------------------------------


def test_shared_weights_stay_as_they_are_for_others() -> None:
    proto = mlp(node("Relu", "a", "b"))
    proto.graph.node.append(node("MatMul", "x w2", "other"))
    proto.graph.node.append(node("MatMul", "x w1", "third"))
    proto.graph.output.extend([value("other", shape=(4, 8)), value("third", shape=(4, 8))])
    found = effect(RESCALE, proto, rows())
    assert found.bit_identical
    assert {"n_a", "n_y"} <= changed(found)
    assert found.model.node_by_name["n_a"].inputs[1] is found.model.graph.initializers["w1"]  # the original as it was


def test_a_place_that_is_gone_is_refused_and_nothing_changes() -> None:
    loaded = load(mlp(node("Relu", "a", "b")))
    (repair,) = RESCALE.find(loaded, ranges_of(loaded, rows()))
    other = load(mlp(node("LeakyRelu", "a", "r"), node("Identity", "r", "b")))
    after, done = repaired(other, [(RESCALE, repair)])
    assert done == ()
    assert [n.name for n in after.nodes] == [n.name for n in other.nodes]


def test_the_algebra_names_places_and_powers(says: Says) -> None:
    loaded = load(mlp(node("Relu", "a", "b")))
    (repair,) = RESCALE.find(loaded, ranges_of(loaded, rows()))
    assert repair.rule == "HW401"
    assert repair.nodes == ("n_a", "n_b", "n_y")
    says(repair.algebra)
    assert repair.algebra.endswith("which cancel")


def test_a_copy_of_a_weight_is_a_weight() -> None:
    """TorchScript writes equal weights once, and an Identity for each other place."""
    random = np.random.default_rng(0)
    nodes = [
        node("Identity", "w", "again"),
        node("MatMul", "x w", "h"),
        node("Mul", "h large", "m"),
        node("MatMul", "m again", "g"),
        node("Mul", "g large", "y"),
    ]
    small = (random.standard_normal((4, 4)) * 2.0**-23).astype(np.float32)
    weights = [weight("w", small), weight("large", np.float32(2.0**22))]
    given = model(nodes, [value("x", shape=(2, 4))], [value("y", shape=(2, 4))], weights)
    feeds = [{"x": random.standard_normal((2, 4)).astype(np.float32)} for _ in range(3)]
    found = effect(RESCALE, given, feeds)
    assert found.before > 1.0 > found.after and found.bit_identical
    assert found.model.node_by_name.keys() == {"n_h", "n_m", "n_g", "n_y"}


def test_a_walk_that_nobody_needs_any_more_is_gone_at_once() -> None:
    """Of 9,000 nodes each takes 0.07 GB, and whoever waits for the search for garbage holds ten of them."""
    zoo = cnn_tiny_weights("tensors")
    loaded = load(zoo.model)
    ranges = ranges_of(loaded, zoo.inputs)
    gc.collect()
    gc.disable()
    try:
        flows = [plain_flow(loaded, ranges), ScaleFlow(loaded, ranges, entries=[loaded.inputs[0].name])]
        assert scalings("HW401", flows[0])
        left = list(map(weakref.ref, flows))
        del flows, ranges
        assert [each() for each in left] == [None] * 2
    finally:
        gc.enable()
