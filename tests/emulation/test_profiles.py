"""The profiles: kernels that round on the way against plain arithmetic, fusions found where they fire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from halfwise.core.errors import HalfwiseError, InputError
from halfwise.core.formats import Format
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.profiles import (
    ORT_CUDA,
    ORT_CUDA_UNFUSED,
    PROFILES,
    STRICT,
    TENSORRT,
    Profile,
    profile_named,
    worst_case_profiles,
)
from halfwise.emulation.profiles.cuda import bias_joins_sum
from halfwise.emulation.profiles.rows import blocks_of_rows
from halfwise.emulation.profiles.spreads import LOOSE_SPREADS, SPREADS
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from tests.models.build import f32, model, node, value, weight
from tests.models.zoo import encoder
from tests.support.backend_cases import float_cases
from tests.support.profiles import Array, h, run
from tests.support.says import Says


def single(
    op: str,
    x: Array,
    more: Sequence[onnx.TensorProto] = (),
    opset: int = 18,
    profile: Profile = ORT_CUDA_UNFUSED,
    **attributes: Any,
) -> Array:
    names = " ".join(["x", *(each.name for each in more)])
    proto = model(
        [node(op, names, "y", **attributes)], [value("x", shape=x.shape)], [value("y", shape=None)], more, opset
    )
    return run(profile, proto, x=x)


def axes(*values: int) -> onnx.TensorProto:
    return weight("axes", np.array(values, np.int64))


# -- kernels ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [11, 13, 18])
def test_a_mean_over_the_last_axis_stores_its_sum(opset: int) -> None:
    x = np.full((2, 4), 30000.0, np.float32)
    given: dict[str, Any] = {"more": [axes(-1)]} if opset >= 18 else {"axes": [-1]}
    assert np.all(np.isinf(single("ReduceMean", x, opset=opset, **given)))
    assert np.all(single("ReduceMean", x, opset=opset, profile=STRICT, **given) == 30000)


def test_a_mean_over_a_middle_axis_does_not() -> None:
    x = np.full((2, 4, 3), 30000.0, np.float32)
    assert np.all(single("ReduceMean", x, [axes(1)]) == 30000)


@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_a_mean_over_the_first_axes_adds_what_blocks_of_rows_stored(opset: int, keepdims: int) -> None:
    assert blocks_of_rows(1000, 64) == (16, 15)
    assert blocks_of_rows(12, 64) == (4, 1)
    x = h(np.random.default_rng(2).random((10, 100, 64), dtype=np.float32))
    total, rows = np.zeros(64, np.float32), x.reshape(1000, 64)
    for block in range(15):
        mine = np.arange(1000) % (15 * 16) // 16 == block
        total = h(total + h(rows[mine].sum(0)))
    given: dict[str, Any] = {"more": [axes(0, 1)]} if opset >= 18 else {"axes": [0, 1]}
    got = single("ReduceMean", x, opset=opset, keepdims=keepdims, **given)
    assert got.shape == ((1, 1, 64) if keepdims else (64,))
    assert np.mean(got.reshape(-1) == h(total / 1000)) > 0.95


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceSumSquare", "ReduceLogSum"])
def test_sums_over_the_first_axis_add_what_blocks_of_rows_stored(op: str) -> None:
    x = h(np.random.default_rng(4).random((1000, 64), dtype=np.float32))
    terms, total = h(x * x) if op == "ReduceSumSquare" else x, np.zeros(64, np.float32)
    for block in range(15):
        total = h(total + h(terms[np.arange(1000) % (15 * 16) // 16 == block].sum(0)))
    wanted = h(np.log(total)) if op == "ReduceLogSum" else total
    assert np.mean(single(op, x, [axes(0)], keepdims=0) == wanted) > 0.95


@pytest.mark.parametrize("op", ["ReduceMean", "ReduceSum", "ReduceSumSquare", "ReduceLogSum"])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize("known", ["rank", "nothing"])
def test_whether_axes_are_the_first_is_asked_at_run_time_where_sizes_are_not_known(
    op: str, keepdims: int, opset: int, known: str
) -> None:
    listed = opset >= (13 if op == "ReduceSum" else 18)
    given = [axes(1)] if listed else []
    stated = {} if listed else {"axes": [1]}
    nodes = [node("Reshape", "x s", "z"), node(op, "z axes" if listed else "z", "y", keepdims=keepdims, **stated)]
    shape = ("N", "T", "C") if known == "rank" else None
    graph = model(nodes, [value("x", shape=("N", "T", "C")), value("s", TensorProto.INT64, shape=("R",))],
                  [value("y", shape=None)], given, opset)  # fmt: skip
    graph.graph.value_info.append(value("z", shape=shape))
    for size in ((1, 300, 40), (1, 12, 8), (3, 300, 40), (1, 300, 1)):
        x = h(np.random.default_rng(8).random(size, dtype=np.float32))
        seen = run(ORT_CUDA_UNFUSED, graph, x=x, s=np.array(size))
        wanted = single(op, x, given, opset, keepdims=keepdims, **stated)
        wide = single(op, x, given, opset, profile=STRICT, keepdims=keepdims, **stated)
        assert seen.shape == wanted.shape
        last = size == (
            1,
            300,
            1,
        )  # the first and the last axes at once: as the last ones if ranks are known, else wide
        assert np.array_equal(seen, wanted) or (last and np.allclose(seen, wide, rtol=2e-3))


@pytest.mark.parametrize("opset", [17, 18])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_a_log_sum_exp_stores_its_steps(opset: int, keepdims: int) -> None:
    x = h(3 * np.random.default_rng(6).standard_normal((40, 30)))
    largest = x.max(1, keepdims=True)
    wanted = h(h(np.log(h(h(np.exp(h(x - largest))).sum(1)))) + largest[:, 0])
    given: dict[str, Any] = {"more": [axes(1)]} if opset >= 18 else {"axes": [1]}
    got = single("ReduceLogSumExp", x, opset=opset, keepdims=keepdims, **given)
    assert got.shape == ((40, 1) if keepdims else (40,))
    assert np.mean(got.reshape(-1) == wanted) > 0.95


def test_a_mean_of_too_many_is_divided_by_infinity() -> None:
    assert np.all(single("ReduceMean", np.full((1, 65536), 0.5, np.float32), [axes(-1)]) == 0)


@pytest.mark.parametrize("reverse", [0, 1])
def test_a_running_sum_stores_every_sum(reverse: int) -> None:
    x = h(np.random.default_rng(5).random((3, 300), dtype=np.float32))
    total, wanted = np.zeros(3, np.float32), np.zeros_like(x)
    for index in range(300)[:: -1 if reverse else 1]:
        total = h(total + x[:, index])
        wanted[:, index] = total
    assert np.array_equal(single("CumSum", x, [weight("axis", np.array(1))], reverse=reverse), wanted)


def test_a_sum_of_several_stores_every_sum() -> None:
    proto = model([node("Sum", "a b c", "y")], [value(n, shape=(1,)) for n in "abc"], [value("y", shape=(1,))])
    feeds = {"a": f32(2048), "b": f32(1), "c": f32(1)}
    assert run(ORT_CUDA_UNFUSED, proto, **feeds) == 2048
    assert run(STRICT, proto, **feeds) == 2050


def test_squares_overflow_before_they_are_summed() -> None:
    x = np.array([[300.0, 1.0]], np.float32) * 2.0**-1
    assert np.isfinite(single("ReduceSumSquare", x, [axes(-1)])).all()
    assert np.isinf(single("ReduceSumSquare", 2 * x, [axes(-1)])).all()


POINTWISE: dict[str, tuple[dict[str, Any], Any]] = {
    "Elu": ({}, lambda x: np.where(x > 0, x, h(h(np.exp(x)) - 1))),
    "HardSwish": ({}, lambda x: x * np.clip(h(h(x / np.float32(6)) + np.float32(0.5)), 0, 1)),
    "LeakyRelu": ({"alpha": 0.01}, lambda x: np.where(x > 0, x, h(0.01) * x)),
    "Softsign": ({}, lambda x: x / h(1 + np.abs(x))),
    "HardSigmoid": ({"alpha": 0.2}, lambda x: np.clip(h(0.2) * x + np.float32(0.5), 0, 1)),
}


@pytest.mark.parametrize("op", POINTWISE)
def test_pointwise_kernels_store_their_steps(op: str) -> None:
    x = h(np.linspace(-8, 8, 4001))
    attributes, function = POINTWISE[op]
    assert np.array_equal(single(op, x, **attributes), h(function(x)))


@pytest.mark.parametrize("op", ["Sigmoid", "Softplus", "Selu", "Mish"])
def test_kernels_without_a_short_formula_stay_near_strict(op: str) -> None:
    x = h(np.linspace(-6, 6, 1001))
    near, strict = single(op, x), single(op, x, profile=STRICT)
    assert np.abs(near - strict).max() < 2e-3 * max(1.0, float(np.abs(strict).max()))


def resized(x: Array, made: int, profile: Profile) -> Array:
    """One row, resized; x holds two pixels."""
    sizes = weight("sizes", np.array([1, 1, 1, made], np.int64))
    proto = model(
        [node("Resize", "x - - sizes", "y", mode="linear", coordinate_transformation_mode="half_pixel")],
        [value("x", shape=(1, 1, 1, 2))],
        [value("y", shape=None)],
        [sizes],
        18,
    )
    return run(profile, proto, x=x.reshape(1, 1, 1, 2)).ravel()


def test_resizing_uses_narrow_weights() -> None:
    x = f32(1000, 2000)
    share = np.clip((np.arange(6, dtype=np.float32) + 0.5) / 3 - 0.5, 0, 1).astype(np.float32)
    wanted = h(h(h(1 - share) * x[0]) + h(share) * x[1])
    assert np.array_equal(resized(x, 6, ORT_CUDA_UNFUSED), wanted)
    assert not np.array_equal(resized(x, 6, STRICT), wanted)


@pytest.mark.parametrize(
    ("sizes", "joins"),
    [((32, 512, 128), False), ((1, 4, 16), True), ((197, 768, 10), True), ((1, 3072, 768), True),
     ((512, 3072, 1000), False)],
)  # fmt: skip
def test_whether_a_bias_joins_a_product_depends_on_its_size(sizes: tuple[int, int, int], joins: bool) -> None:
    assert bias_joins_sum(*sizes) is joins


@pytest.mark.parametrize(("columns", "wanted"), [(16, 2048), (12, 2050)])
def test_a_gemm_adds_its_bias_after_storing_or_before(columns: int, wanted: float) -> None:
    x, w = np.zeros((1, 16), np.float32), np.zeros((16, columns), np.float32)
    x[0, :2], w[0], w[1] = 1, 2048, 1
    got = single("Gemm", x, [weight("w", w), weight("b", np.ones(columns, np.float32))], 13)
    assert np.all(got == wanted)


def test_factors_of_a_gemm_are_rounded() -> None:
    x, w = np.ones((1, 1), np.float32), np.ones((1, 1), np.float32)
    assert single("Gemm", x, [weight("w", w)], 13, alpha=0.3) == h(h(0.3))


# -- profiles --------------------------------------------------------------------------------------------------------


def test_tensorrt_stores_a_norm_before_its_scale() -> None:
    x = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)
    proto = model(
        [node("LayerNormalization", "x g b", "y", axis=-1)],
        [value("x", shape=x.shape)],
        [value("y", shape=None)],
        [weight("g", np.full(64, 1.7, np.float32)), weight("b", np.full(64, 0.3, np.float32))],
        17,
    )
    wide = h(x).astype(np.float64)
    normal = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    wanted = h(h(h(normal) * h(1.7)) + h(0.3))
    assert np.mean(run(TENSORRT, proto, x=x) == wanted) > 0.99
    assert np.mean(run(STRICT, proto, x=x) == wanted) < 0.9


def test_every_profile_says_how_far_off_it_was_and_whether_that_is_inference() -> None:
    assert {name for name, profile in PROFILES.items() if profile.inferred} == {"tensorrt", "tensorrt-fp16-accumulate"}
    for name in ("ort-cuda", "ort-cuda-unfused"):
        assert (PROFILES[name].spread, PROFILES[name].loose_spread) == (SPREADS[name], LOOSE_SPREADS[name])
    assert [PROFILES[name].spread for name in ("strict", "tensorrt", "tensorrt-fp16-accumulate")] == [0.0, 0.3, 0.3]


@pytest.mark.parametrize(
    ("op", "shape", "axes_", "loose"),
    [
        ("ReduceMean", (1000, 64), (0,), True),
        ("ReduceMean", (12, 64), (0,), False),  # one block of threads
        ("ReduceMean", (4, 1000, 64), (1,), False),
        ("ReduceMean", ("N", 1000, 64), (1,), True),  # the first ones in a batch of one
        ("ReduceMean", ("N", 1000, 64), (2,), False),
        ("ReduceMean", ("N", 100, 35), (1,), False),  # one block, whatever the batch
        ("ReduceMean", None, (1,), True),
        ("ReduceMean", (150, 64), (0,), False),  # two sums are the same in either order
        ("ReduceSum", (1000, 64), (0,), True),
        ("ReduceL2", (1000, 64), (0,), False),
    ],
)
def test_a_model_is_given_the_spread_of_its_loosest_node(op: str, shape: Any, axes_: Any, loose: bool) -> None:
    graph = model(
        [node("Relu", "x", "z"), node(op, "z a", "y")],
        [value("x", shape=shape)],
        [value("y", shape=None)],
        [weight("a", np.array(axes_, np.int64))],
        18,
    )
    wanted = LOOSE_SPREADS["ort-cuda"] if loose else SPREADS["ort-cuda"]
    assert ORT_CUDA.spread_of(load(graph).nodes) == wanted


def test_a_verdict_is_the_worst_over_what_may_happen() -> None:
    names = {name: [profile.name for profile in worst_case_profiles(name)] for name in PROFILES}
    assert names["strict"] == ["strict"]
    assert names["ort-cuda"] == ["ort-cuda", "ort-cuda-unfused", "strict"]
    assert names["tensorrt"] == ["tensorrt", "strict"]
    assert names["tensorrt-fp16-accumulate"] == ["tensorrt-fp16-accumulate", "tensorrt", "strict"]


def test_an_unknown_profile_is_refused(says: Says) -> None:
    with says.raises(InputError):
        profile_named("cuda")


def test_fp32_nodes_are_left_alone_by_every_profile() -> None:
    zoo = encoder(layers=1)
    sites = Sites(load(zoo.model))
    exact = Emulator().session(Assignment(sites, {})).run(zoo.inputs[0])["logits"]
    for profile in PROFILES.values():
        wide = Assignment(sites, {}, Format.FP32)
        assert np.array_equal(Emulator(profile).session(wide).run(zoo.inputs[0])["logits"], exact)


@pytest.mark.parametrize("name", [name for name in PROFILES if name != "strict"])
def test_every_profile_spells_what_onnx_has_as_models_that_run(name: str) -> None:
    for case in float_cases()[5::24]:
        try:
            assignment = Assignment.all_narrow(Sites(load(case.model)))
            feeds = widen_feeds(case.feeds)
            wanted = Emulator().session(assignment).run(feeds)
        except HalfwiseError:
            continue  # refused by strict emulation, too
        session = Emulator(PROFILES[name]).session(assignment)
        got = session.run({key: feeds[key] for key in session.input_names})
        assert {key: array.shape for key, array in got.items() if isinstance(array, np.ndarray)} == {
            key: array.shape for key, array in wanted.items() if isinstance(array, np.ndarray)
        }, case.name
