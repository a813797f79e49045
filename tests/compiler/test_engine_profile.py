"""The profile of one engine: what its kernels' names make of the nodes in them, against plain arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halfwise.compiler.kernel_names import fused_attention, steps, sums_narrow
from halfwise.core.formats import Format
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.profiles import STRICT, TENSORRT, EngineKernel, engine_profile
from halfwise.emulation.profiles.fusions import fused_nodes
from halfwise.model.model import load
from halfwise.model.moving import MOVES
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from tests.models.build import model, node, value, weight
from tests.models.random_nets import feeds, random_net
from tests.support.engine_profiles import Array, drawn, h, one, run


def kernel(name: str, nodes: str, tactic: str = "") -> EngineKernel:
    """A kernel as an audit hands it over."""
    return EngineKernel(
        name, tuple(nodes.split()), steps(name), fused_attention(name) is not None, bool(sums_narrow(tactic))
    )


def decision(proto: onnx.ModelProto, *wide: str) -> Assignment:
    sites = Sites(load(proto))
    return Assignment.all_narrow(sites, frozenset(sites.model.node_by_name[name] for name in wide))


def by(kernels: Sequence[EngineKernel], proto: onnx.ModelProto, *wide: str, **feeds: Array) -> Array:
    return run(engine_profile(kernels), decision(proto, *wide), **feeds)


# -- several nodes in one kernel ---------------------------------------------------------------------------------------


def attention() -> onnx.ModelProto:
    nodes = [
        node("Transpose", "k", "kt", perm=[1, 0]), node("MatMul", "q kt", "s"), node("Mul", "s f", "t"),
        node("Softmax", "t", "p", axis=-1), node("MatMul", "p v", "y"),
    ]  # fmt: skip
    inputs = [value(name, shape=(8, 16)) for name in "qkv"]
    return model(nodes, inputs, [value("y", shape=None)], [weight("f", np.float32(0.25))])


MHA = (kernel("_gemm_mha_v2_myl0_5", "n_y n_p n_t n_s"),)


def test_fused_attention_stores_no_scores_and_multiplies_narrow_shares() -> None:
    proto = attention()
    q, k, v = (drawn(seed, 8, 16) for seed in (1, 2, 3))
    assert {each.name for each in fused_nodes(decision(proto), engine_profile(MHA).fusion).wide} == {"s", "t"}
    scores = 0.25 * q.astype(float) @ k.T.astype(float)
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = h(h(raised / raised.sum(-1, keepdims=True)).astype(float) @ v.astype(float))
    assert np.mean(by(MHA, proto, q=q, k=k, v=v) == wanted) > 0.99
    assert np.mean(run(STRICT, decision(proto), q=q, k=k, v=v) == wanted) < 0.8


def test_scores_beyond_fp16_overflow_only_where_they_are_stored() -> None:
    proto = attention()
    q, k, v = np.full((8, 16), 100, np.float32), np.full((8, 16), 100, np.float32), drawn(3, 8, 16)
    assert np.isfinite(by(MHA, proto, q=q, k=k, v=v)).all()
    apart = (kernel("s_myl0_1", "n_s"), kernel("__myl_MulMaxrSubExpSumDiv_myl0_2", "n_t n_p"), kernel("y", "n_y"))
    assert not np.isfinite(by(apart, proto, q=q, k=k, v=v)).any()


def test_attention_with_a_node_in_fp32_inside_is_no_one_kernel() -> None:
    fused = fused_nodes(decision(attention(), "n_p"), engine_profile(MHA).fusion)
    assert not fused.wide


def biased(op: str = "MatMul") -> tuple[onnx.ModelProto, Array, Array, Array]:
    x, w, b = drawn(1, 16, 64), drawn(2, 64, 16), h(100 * drawn(3, 16))
    nodes = [node("MatMul", "x w", "a"), node("Add", "a b", "y")] if op == "MatMul" else [node("Gemm", "x w b", "y")]
    return one(nodes, x.shape, w=w, b=b), x, x.astype(float) @ w, b


@pytest.mark.parametrize(
    ("names", "stored"),
    [
        (["__myl_FcAdd_myl0_1 n_a n_y"], 1),
        (["__myl_FcAddCast_myl0_1 n_a n_y"], 1),
        (["n_a_myl0_1 n_a n_y"], 1),  # a kernel that spells no steps and gives one result
        (["n_a_myl0_1 n_a", "__myl_AddReshTranReshMove_myl0_2 n_y"], 2),
        (["__myl_FcExpAdd_myl0_1 n_a n_y"], 2),
        ([], 2),
    ],
)
def test_a_bias_in_the_kernel_of_its_product_is_stored_with_it(names: list[str], stored: int) -> None:
    proto, x, product, bias = biased()
    kernels = [kernel(*name.split(" ", 1)) for name in names]
    wanted = h(product + bias) if stored == 1 else h(h(product) + bias)
    assert np.mean(by(kernels, proto, x=x) == wanted) > 0.99
    assert np.mean(h(product + bias) == h(h(product) + bias)) < 0.95


@pytest.mark.parametrize(("second", "stored"), [("", 1), ("__myl_AddReshTran_myl0_2", 2)])
def test_a_gemm_in_two_kernels_is_stored_between_them(second: str, stored: int) -> None:
    proto, x, product, bias = biased("Gemm")
    kernels = [kernel("n_y_myl0_1", "n_y"), *([kernel(second, "n_y")] if second else [])]
    wanted = h(product + bias) if stored == 1 else h(h(product) + bias)
    assert np.mean(by(kernels, proto, x=x) == wanted) > 0.99


def test_all_that_a_native_layer_does_after_its_convolution_is_stored_once() -> None:
    x, w = drawn(1, 1, 4, 6, 6), drawn(2, 4, 4, 1, 1)
    proto = one([node("Conv", "x w", "a"), node("Add", "a x", "b"), node("Relu", "b", "y")], x.shape, w=w)
    exact = np.einsum("oc,nchw->nohw", w[:, :, 0, 0].astype(float), x.astype(float))
    together = (kernel("n_a + n_b + n_y", "n_a n_b n_y"),)
    assert np.mean(by(together, proto, x=x) == h(np.maximum(exact + x, 0))) > 0.99
    assert np.mean(by((), proto, x=x) == h(np.maximum(h(h(exact) + x), 0))) > 0.99


@pytest.mark.parametrize(("name", "stored"), [("__myl_CorrSilu_myl0_1", 1), ("__myl_CorrSigmMul_myl0_1", 2)])
def test_a_sigmoid_and_its_product_as_one_step_are_stored_once(name: str, stored: int) -> None:
    x, w = drawn(1, 1, 4, 9, 9), drawn(2, 4, 4, 1, 1)
    proto = one([node("Conv", "x w", "a"), node("Sigmoid", "a", "s"), node("Mul", "a s", "y")], x.shape, w=w)
    made = h(np.einsum("oc,nchw->nohw", w[:, :, 0, 0].astype(float), x.astype(float))).astype(float)
    share = 1 / (1 + np.exp(-made))
    wanted = h(made * share) if stored == 1 else h(made * h(share))
    assert np.mean(by((kernel(name, "n_a n_s n_y"),), proto, x=x) == wanted) > 0.99
    assert np.mean(h(made * share) == h(made * h(share))) < 0.95


# -- one node ----------------------------------------------------------------------------------------------------------


def norm(op: str, length: int = 64) -> tuple[onnx.ModelProto, Array, Array]:
    x, g = h(3 + 400 * drawn(1, 4, length)), drawn(2, length)
    reads = "x g b" if op == "LayerNormalization" else "x g"
    weights = {"g": g, "b": drawn(3, length)} if op == "LayerNormalization" else {"g": g}
    return one([node(op, reads, "y", axis=-1)], x.shape, 23 if op == "RMSNormalization" else 17, **weights), x, g


WIDE_NORM = "__myl_CastMeanSubMulMeanAddSqrtDivMulCastMulAdd_myl0_0"
SPLIT = ["__myl_CastMean_myl0_1", "__myl_SubMulMean_myl0_3", "__myl_AddSqrtDivMulMulAddCast_myl0_4"]
SPLIT_WIDE = ["__myl_CastCastMean_myl0_1", "__myl_SubMulMean_myl0_3", "__myl_AddSqrtDivMulCastMulAddCast_myl0_4"]
TWO = "__myl_CastMeanSubMulMeanAddSqrtDivMulCastMulAddMeanSubMulMeanAddSqrtDivMulMulAdd_myl0_0"


@pytest.mark.parametrize(
    ("names", "wide"),
    [
        ([WIDE_NORM], True),
        (SPLIT, False),
        (SPLIT_WIDE, True),
        ([TWO], False),
        (["__myl_CasMeaSubMulMeaAddSqrDivMulCasMulAdd_myl3_0"], True),  # as older versions spell it
        (["__myl_CasMeaSubMulMeaAddSqrDivMulMulAddCas_myl3_0"], False),
        (["layer norm of one's own"], True),  # spells no steps
    ],
)
def test_a_norm_takes_its_statistics_as_its_kernels_say(names: list[str], wide: bool) -> None:
    """Squares of 400 times a normal value leave FP16."""
    proto, x, _ = norm("LayerNormalization")
    got = by([kernel(name, "n_y") for name in names], proto, x=x)
    assert np.array_equal(got, run(TENSORRT, decision(proto), x=x)) == wide
    assert np.isfinite(got).all()
    narrow_bias_only = np.allclose(got, load_bias(proto))  # the norm is x / inf, which is 0
    assert narrow_bias_only != wide


def load_bias(proto: onnx.ModelProto) -> Array:
    found = next(each for each in proto.graph.initializer if each.name == "b")
    return np.broadcast_to(onnx.numpy_helper.to_array(found), (4, 64))


@pytest.mark.parametrize("op", ["LayerNormalization", "RMSNormalization"])
def test_a_narrow_norm_stores_every_step(op: str) -> None:
    proto, x, g = norm(op)
    x = h(x / 400)
    d = h(x - h(x.mean(-1, keepdims=True, dtype=float))) if op == "LayerNormalization" else x
    variance = h(h(d * d).mean(-1, keepdims=True, dtype=float))
    normal = h(d * h(1 / h(np.sqrt(h(variance + h(1e-5))))))
    wanted = h(normal * g)
    if op == "LayerNormalization":
        wanted = h(wanted + drawn(3, 64))
    names = SPLIT if op == "LayerNormalization" else ["__myl_MulMeanAddSqrtDivMulMul_myl0_0"]
    assert np.mean(by([kernel(name, "n_y") for name in names], proto, x=x) == wanted) > 0.98


@pytest.mark.parametrize("apart", [True, False])
def test_a_group_norm_whose_scale_is_another_kernel_is_stored_before_it(apart: bool) -> None:
    x, g, b = drawn(1, 1, 4, 6, 6), drawn(2, 4), drawn(3, 4)
    proto = one([node("GroupNormalization", "x g b", "y", num_groups=2)], x.shape, 21, g=g, b=b)
    names = ["__myl_MoveResh_myl0_0", "__myl_Inor_myl0_1", "__myl_ReshMulAddMove_myl0_2"] if apart else ["__myl_Gnor_0"]
    groups = x.reshape(2, -1).astype(float)
    normal = (groups - groups.mean(1, keepdims=True)) / np.sqrt(groups.var(1, keepdims=True) + 1e-5)
    scale, bias = g[:, None, None], b[:, None, None]
    normal = normal.reshape(x.shape)
    wanted = h(h(h(normal) * scale) + bias) if apart else h(normal * scale + bias)
    assert np.mean(by([kernel(name, "n_y") for name in names], proto, x=x) == wanted) > 0.98
    assert np.mean(h(h(h(normal) * scale) + bias) == h(normal * scale + bias)) < 0.9


@pytest.mark.parametrize("opset", [11, 13, 18])
def test_a_softmax_stores_every_step(opset: int) -> None:
    x = h(4 * drawn(1, 3, 50))
    proto = one([node("Softmax", "x", "y", axis=1)], x.shape, opset)
    raised = h(np.exp(h(x - x.max(-1, keepdims=True)).astype(float)))
    wanted = h(raised / h(raised.sum(-1, keepdims=True, dtype=float)).astype(float))
    for got in (run(TENSORRT, decision(proto), x=x), by([kernel("__myl_MaxrSubExpSumDiv_0", "n_y")], proto, x=x)):
        assert np.mean(got == wanted) > 0.99


def test_a_sum_of_more_ones_than_fp16_counts_makes_every_share_nothing() -> None:
    x = np.zeros((1, 70_000), np.float32)
    proto = one([node("Softmax", "x", "y", axis=-1)], x.shape)
    names = ["__myl_CastMaxr_myl0_1", "__myl_SubExpSum_myl0_3", "__myl_DivCast_myl0_4"]
    assert not by([kernel(name, "n_y") for name in names], proto, x=x).any()
    assert run(STRICT, decision(proto), x=x).all()


def test_the_logarithm_of_a_share_that_is_none_is_infinite() -> None:
    x = np.array([[0, -5, -20]], np.float32)
    proto = one([node("LogSoftmax", "x", "y", axis=-1)], x.shape)
    got = by([kernel("__myl_MaxrSubExpSumDivLog_0", "n_y")], proto, x=x)
    assert np.isneginf(got[0, 2]) and np.allclose(got[0, :2], [-0.00672, -5.0067], rtol=0.05, atol=1e-3)
    assert np.isfinite(run(STRICT, decision(proto), x=x)).all()


def test_a_tactic_that_accumulates_in_fp16_stores_partial_sums() -> None:
    x, w = np.ones((1, 1616), np.float32), np.full((1616, 1), 0.25, np.float32)
    w[:16] = 1024
    proto = one([node("MatMul", "x w", "a"), node("Add", "a b", "y")], x.shape, w=w, b=np.ones(1, np.float32))
    told = {"ampere_h16816gemm_256x128_ldg8_stages_32x3_nn_v1": 16384, "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n": 16785}
    for tactic, wanted in told.items():
        assert by([kernel("n_a_myl0_1", "n_a n_y", tactic)], proto, x=x).item() == h(wanted)


@pytest.mark.parametrize(
    ("tactic", "narrow"),
    [
        ("sm80_xmma_gemm_f16f16_f16f16_f16_tn_n_tilesize64x64x64", True),
        ("sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize64x64x64", False),
        ("ampere_h16816gemm_128x128_ldg8_stages_32x5_nn", True),
        ("ampere_fp16_s16816gemm_fp16_64x64_sliced1x2_ldg8_f2f_tn", None),
        ("turing_h1688cudnn_128x128_ldg8_relu_exp_small_nhwc", True),
        ("sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc", False),
        ("__myelin_CASK_STUB", None),
        ("", None),
    ],
)
def test_what_a_tactic_says_it_accumulates_in(tactic: str, narrow: bool | None) -> None:
    assert sums_narrow(tactic) is narrow


# -- what no kernel places ---------------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_nodes_that_no_kernel_places_are_as_in_strict(seed: int) -> None:
    proto = random_net(seed)
    sites = Sites(load(proto))
    assignment = Assignment.all_narrow(sites)
    nothing = engine_profile([EngineKernel("other", ("no such node",))])
    feed = feeds(seed)[0]
    strict, ours = (Emulator(each).session(assignment).run(feed) for each in (STRICT, nothing))
    assert all(np.array_equal(ours[name], wanted, equal_nan=True) for name, wanted in strict.items())


NAMES = [
    "__myl_FcAdd_myl0_{}", "__myl_FcAddSilu_myl0_{}", "__myl_CorrSilu_myl0_{}",
    "__myl_CastMulMeanSqrtDivMulCast_myl0_{}",
    "__myl_MulMeanSqrtDivMul_myl0_{}", "_gemm_mha_v2_myl0_{}", "native + layer {}", "__myl_Move_myl0_{}",
]  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6), st.data())
def test_whatever_kernels_hold_only_tensors_within_one_are_not_stored(
    seed: int, most: int, data: st.DataObject
) -> None:
    proto = random_net(seed)
    sites = Sites(load(proto))
    names = [site.name for site in sites.all]
    kernels = []
    while names:
        count = data.draw(st.integers(1, most))
        name = data.draw(st.sampled_from(NAMES)).format(len(kernels))
        tactic = data.draw(st.sampled_from(["", "ampere_h16816gemm_128x128"]))
        kernels.append(kernel(name, " ".join(names[:count]), tactic))
        names = names[count:]
    keep = frozenset(data.draw(st.sets(st.sampled_from([site.node for site in sites.free]), max_size=4)))
    assignment = Assignment.all_narrow(sites, keep)
    profile = engine_profile(kernels)
    home = {name: each.name for each in kernels for name in each.nodes}
    for tensor in fused_nodes(assignment, profile.fusion).wide:
        maker = tensor.producer()
        assert maker is not None and not tensor.is_graph_output()
        assert assignment.of(maker) is Format.FP16
        computing = {node for node in (maker, *(user for user, _ in tensor.uses())) if node.op_type not in MOVES}
        assert len({home[node.name or ""] for node in computing}) <= 1
    got = Emulator(profile).session(assignment).run(feeds(seed)[0])
    wide = Emulator(STRICT).session(Assignment(sites, {})).run(feeds(seed)[0])
    assert {name: array.shape for name, array in got.items()} == {name: array.shape for name, array in wide.items()}


def test_a_reverted_node_is_narrow_whatever_the_plan_says() -> None:
    proto, x, product, bias = biased()
    both = decision(proto, "n_a", "n_y")
    assert np.allclose(run(engine_profile(()), both, x=x), product + bias, rtol=1e-5)
    assert np.mean(run(engine_profile((), ["n_a"]), both, x=x) == (h(product) + bias).astype(np.float32)) > 0.99


def test_weights_beyond_the_range_are_clamped() -> None:
    proto = one([node("MatMul", "x w", "a"), node("Add", "a b", "y")], (1, 1), w=np.full((1, 1), 1e5, np.float32),
                b=np.zeros(1, np.float32))  # fmt: skip
    got = by([kernel("__myl_FcAdd_myl0_1", "n_a n_y")], proto, x=np.ones((1, 1), np.float32))
    assert got.item() == 65504
