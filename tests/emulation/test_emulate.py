"""The emulation of whole models: edges rounded where they must be and only there."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto

from benchmarks.emulation_cost import switchable
from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.core.tolerance import Tolerance
from halfwise.emulation import emulate as emulation
from halfwise.emulation.emulate import Emulator, emulate, widen_feeds
from halfwise.emulation.ort import Session, check_casts
from halfwise.emulation.profiles import ORT_CUDA, profile_named
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto
from halfwise.search.judge import Question
from halfwise.search.quantiser_steps import Movement
from halfwise.search.run_counter import RunCounter
from tests.models.build import f32, model, node, value, weight
from tests.models.dags import FEEDS, Dag, dags
from tests.support.backend_cases import same_bits
from tests.support.says import Says
from tests.support.scalar_formats import round_array

Array = NDArray[np.float32]
NARROW = (Format.FP16, Format.BF16)


# -- mixed decisions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", NARROW)
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_a_tensor_is_rounded_where_it_is_narrow_and_nowhere_else(fmt: Format, data: st.DataObject) -> None:
    dag, feeds = data.draw(dags(fmt)), data.draw(FEEDS)
    expected = dag.answer(feeds)
    got = Emulator().session(dag.loaded()).run(feeds)
    assert set(got) == set(dag.outputs)
    for name, array in got.items():
        assert same_bits(array, expected[name]), name


@given(dag=dags(), feeds=FEEDS)
@settings(max_examples=100, deadline=None)
def test_the_typed_model_read_back_means_the_same(dag: Dag, feeds: dict[str, Array]) -> None:
    assignment = dag.loaded()
    typed = typed_proto(assignment)
    if dag.io is not Format.FP32:
        feeds = {name: round_array(feed, dag.io) for name, feed in feeds.items()}
    given = {name: feed.astype(dag.io.dtype) for name, feed in feeds.items()}
    one = Emulator().session(assignment).run(feeds)
    other = Emulator().session(Assignment(Sites(load(typed)), {})).run(widen_feeds(given))
    assert all(same_bits(one[name], other[name]) for name in one)


@given(dag=dags(), feeds=FEEDS)
@settings(max_examples=30, deadline=None)
def test_the_self_contained_model_is_the_session(dag: Dag, feeds: dict[str, Array]) -> None:
    assignment = dag.loaded()
    proto = emulate(assignment)
    onnx.checker.check_model(proto)
    kinds = {t.data_type for t in proto.graph.initializer} | {
        v.type.tensor_type.elem_type for v in (*proto.graph.input, *proto.graph.output)
    }
    assert kinds <= {TensorProto.FLOAT}
    one, other = Session(proto).run(feeds), Emulator().session(assignment).run(feeds)
    assert all(same_bits(one[name], other[name]) for name in one)


def test_a_weight_shared_by_both_formats_is_rounded_for_one_of_them() -> None:
    proto = model(
        [node("Add", "x w", "a"), node("Add", "x w", "b")],
        [value("x", shape=[1])],
        [value("a", shape=[1]), value("b", shape=[1])],
        [weight("w", f32(1 / 3))],
    )
    sites = Sites(load(proto))
    narrow = Assignment(sites, {sites.all[0].node: Format.FP16})
    got = Emulator().session(narrow).run({"x": f32(0)})
    assert got["a"] == np.float32(np.float16(1 / 3))
    assert got["b"] == np.float32(1 / 3)


def test_fp16_and_bf16_in_one_model() -> None:
    """Range from one, precision from the other: 70000 fits BF16 only, 1.001 FP16 only."""
    proto = model(
        [node("Mul", "x w", "big"), node("Add", "x x", "small")],
        [value("x", shape=[1])],
        [value("big", shape=[1]), value("small", shape=[1])],
        [weight("w", f32(69888.0))],
    )
    sites = Sites(load(proto))
    formats = {sites.all[0].node: Format.BF16, sites.all[1].node: Format.FP16}
    got = Emulator().session(Assignment(sites, formats)).run({"x": f32(1.001)})
    assert got["big"] == round_array(f32(69888.0), Format.BF16)[0]
    assert got["small"] == 2 * np.float32(np.float16(1.001))


def test_bf16_is_used_only_where_its_schema_has_it() -> None:
    """Opset 13's Add takes BF16, its MaxPool does not; FP16 both."""
    proto = model(
        [node("Add", "x x", "a"), node("MaxPool", "a", "y", kernel_shape=[1])],
        [value("x", shape=[1, 1, 1])],
        [value("y", shape=[1, 1, 1])],
        opset=13,
    )
    sites = Sites(load(proto))
    third = f32(1 / 3)[None, None]
    mixed = Assignment(sites, dict.fromkeys((s.node for s in sites.free), Format.BF16))
    typed = typed_proto(mixed)
    onnx.checker.check_model(typed, full_check=True)
    got = Emulator().session(mixed).run({"x": third})["y"]
    assert got == 2 * round_array(third, Format.BF16)
    assert [site.free for site in Sites(load(proto), Format.BF16).all] == [True, False]


def test_weights_are_clamped_as_tensorrt_clamps_them() -> None:
    numbers_in = f32(1e6, -3e38, 65519, 65520, 1e-8, 2.0**-25, 3e-8, np.inf, -np.inf, np.nan)
    proto = model(
        [node("Add", "x w", "y")], [value("x", shape=[10])], [value("y", shape=[10])], [weight("w", numbers_in)]
    )
    got = Emulator().session(Assignment.all_narrow(Sites(load(proto)))).run({"x": np.zeros(10, np.float32)})["y"]
    expected = f32(65504, -65504, 65504, 65504, 0, 0, 2.0**-24, np.inf, -np.inf, np.nan)
    assert same_bits(got, expected)


def test_a_large_weight_is_rounded_as_a_small_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inline, by memory, and in a model that runs segment by segment."""
    rng = np.random.default_rng(5)
    array = (rng.normal(size=(64, 64)) * np.geomspace(1e-9, 1e9, 64)).astype(np.float32)
    proto = model(
        [node("Add", "x w", "y"), node("Gather", "x i", "z")],
        [value("x", shape=[64, 64])],
        [value("y", shape=[64, 64]), value("z", shape=[1000, 64])],
        [weight("w", array), weight("i", np.arange(1000) % 64)],
    )
    assignment = Assignment.all_narrow(Sites(load(proto)))
    feed = {"x": np.zeros((64, 64), np.float32)}
    clamped = np.clip(array, -65504, 65504)
    answers = [Emulator().session(assignment).run(feed)]
    monkeypatch.setattr(emulation, "INLINE_ELEMENTS", 1 << 20)
    answers.append(Emulator().session(assignment).run(feed))
    monkeypatch.setattr(emulation, "INLINE_ELEMENTS", 1)
    monkeypatch.setattr(emulation, "LARGE_BYTES", 0)
    answers.append(Emulator().session(assignment).run(feed))
    for answer in answers:
        assert np.array_equal(answer["y"], round_array(clamped, Format.FP16))
        assert answer["z"].shape == (1000, 64)


def test_a_constant_fill_is_what_the_typed_model_holds() -> None:
    fill = onnx.helper.make_tensor("", TensorProto.FLOAT, [1], [-1e9])
    proto = model(
        [node("ConstantOfShape", "s", "mask", value=fill), node("Add", "x mask", "y")],
        [value("x", shape=[2]), value("s", TensorProto.INT64, [1])],
        [value("y", shape=None)],
    )
    assignment = Assignment.all_narrow(Sites(load(proto)))
    feeds = {"x": f32(0, 8), "s": np.array([2])}
    assert np.array_equal(Emulator().session(assignment).run(feeds)["y"], f32(-65504, -65504))
    typed = typed_proto(assignment)
    again = Emulator().session(Assignment(Sites(load(typed)), {})).run(feeds)["y"]
    assert np.array_equal(again, f32(-65504, -65504))


# -- parts that are narrow in the model as given ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fmt", "element_type"), [(Format.FP16, TensorProto.FLOAT16), (Format.BF16, TensorProto.BFLOAT16)]
)
def test_what_is_narrow_as_given_is_rounded_without_being_asked(fmt: Format, element_type: int) -> None:
    proto = model(
        [
            node("Cast", "x", "h", to=element_type),
            node("Mul", "h h", "hh"),
            node("Cast", "hh", "f", to=TensorProto.FLOAT),
            node("Add", "f x", "y"),
        ],
        [value("x", shape=[1])],
        [value("y", shape=[1])],
    )
    x = f32(1.2345678)
    half = round_array(x, fmt)
    got = Emulator().session(Assignment(Sites(load(proto)), {})).run({"x": x})["y"]
    assert got == round_array(half * half, fmt) + x


def test_narrow_inputs_are_fed_as_they_are() -> None:
    proto = model(
        [node("Mul", "x x", "y")], [value("x", TensorProto.FLOAT16, [1])], [value("y", TensorProto.FLOAT16, [1])]
    )
    feeds = widen_feeds({"x": np.array([300.0], np.float16)})
    assert feeds["x"].dtype == np.float32
    assert Emulator().session(Assignment(Sites(load(proto)), {})).run(feeds)["y"] == np.inf


# -- not fooled ------------------------------------------------------------------------------------------------------


def test_the_runtime_hides_an_overflow_that_the_emulation_shows() -> None:
    """300 * 300 is beyond FP16; ONNX Runtime's CPU kernels keep it in FP32 and the typed model looks right there."""
    proto = model(
        [node("Mul", "x x", "square"), node("Sqrt", "square", "y")], [value("x", shape=[1])], [value("y", shape=[1])]
    )
    assignment = Assignment.all_narrow(Sites(load(proto)))
    feeds = {"x": f32(300)}
    plain = ort.InferenceSession(typed_proto(assignment).SerializeToString(), providers=["CPUExecutionProvider"])
    assert plain.run(None, feeds)[0] == 300
    assert Emulator().session(assignment).run(feeds)["y"] == np.inf


def test_an_overflow_can_end_in_a_silent_zero() -> None:
    proto = model(
        [node("Mul", "x x", "square"), node("Div", "x square", "y")], [value("x", shape=[1])], [value("y", shape=[1])]
    )
    assignment = Assignment.all_narrow(Sites(load(proto)))
    assert Emulator().session(assignment).run({"x": f32(300)})["y"] == 0


def test_the_runtime_rounds_through_casts_at_every_level() -> None:
    """The pairs the emulation stands on are kept even where every optimisation is on."""
    check_casts()
    proto = model([node("Add", "x x", "a"), node("Add", "a a", "y")], [value("x", shape=[3])], [value("y", shape=[3])])
    assignment = Assignment.all_narrow(Sites(load(proto)))
    whole = ort.InferenceSession(emulate(assignment).SerializeToString(), providers=["CPUExecutionProvider"])
    x = f32(1 + 2.0**-11, 20000, 2.0**-26)
    assert same_bits(whole.run(None, {"x": x})[0], f32(4, np.inf, 0))
    assert same_bits(Emulator().session(assignment).run({"x": x})["y"], f32(4, np.inf, 0))


@pytest.mark.parametrize("branch", [True, False])
@given(dag=dags(), feeds=FEEDS)
@settings(max_examples=15, deadline=None)
def test_what_the_benchmark_compares_with_is_an_emulation_too(branch: bool, dag: Dag, feeds: dict[str, Array]) -> None:
    whole = emulate(dag.loaded())
    one, other = Session(whole).run(feeds), Session(switchable(whole, branch=branch)).run(feeds)
    # ONNX Runtime's Where loses the sign of a zero.
    assert all(np.array_equal(one[name], other[name], equal_nan=True) for name in one)


# -- profiles --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_the_cuda_profile_rounds_before_a_convolution_adds_its_bias(rank: int) -> None:
    proto = model(
        [node("Conv", "x w b", "y")],
        [value("x", shape=[1, 1, *[2] * rank])],
        [value("y", shape=None)],
        [weight("w", np.full((1, 1, *[1] * rank), 1.0, np.float32)), weight("b", f32(1))],
    )
    x = np.full((1, 1, *[2] * rank), 2049.0, np.float32)  # a tie, rounded to 2048
    x[..., 0] = 2051.0  # a tie, rounded to 2052; plus 1 a tie again, rounded to 2052
    assignment = Assignment.all_narrow(Sites(load(proto)))
    strict = Emulator().session(assignment).run({"x": x})["y"]
    cuda = Emulator(ORT_CUDA).session(assignment).run({"x": x})["y"]
    rounded = round_array(x, Format.FP16)
    assert np.array_equal(strict, round_array(rounded + 1, Format.FP16))
    assert np.array_equal(cuda, round_array(round_array(rounded, Format.FP16) + 1, Format.FP16))


def test_the_two_profiles_differ_where_the_product_itself_is_rounded() -> None:
    proto = model(
        [node("Conv", "x w b", "y")],
        [value("x", shape=[1, 2, 1])],
        [value("y", shape=None)],
        [weight("w", np.ones((1, 2, 1), np.float32)), weight("b", f32(1))],
    )
    x = f32(2048, 1)[None, :, None]  # 2049 is lost before the bias, or makes 2050 with it
    assignment = Assignment.all_narrow(Sites(load(proto)))
    assert Emulator().session(assignment).run({"x": x})["y"] == 2050
    assert Emulator(ORT_CUDA).session(assignment).run({"x": x})["y"] == 2048


def test_an_unknown_profile_is_refused(says: Says) -> None:
    with says.raises(InputError):
        profile_named("cuda")


@pytest.mark.parametrize("opset", [13, 21, 22, min(25, onnx.defs.onnx_opset_version())])
def test_who_moves_what_enters_a_quantiser_leaves_the_written_model_as_it_was(opset: int) -> None:
    nodes = [node("QuantizeLinear", "x s", "q"), node("DequantizeLinear", "q s", "y")]
    ends, scale = ([value("x", shape=(4,))], [value("y", shape=(4,))]), weight("s", np.array(0.1, np.float32))
    made = model(nodes, *ends, [scale], opset=opset)
    emulator, loaded = Emulator(), load(made)
    fp32 = Assignment(Sites(loaded), {})
    before = emulator.write(fp32).proto.SerializeToString(deterministic=True)
    feeds = [{"x": f32(0.11, 0.26, 0.39, 0.5)}]
    question = Question(Tolerance.parse(["*:rel_l2<=0.01"], ["y"], ["y"]))
    references = [emulator.session(fp32).run(feeds[0])]
    moved = Movement(fp32.sites, emulator, question, feeds, references, RunCounter()).measured(0.5)
    assert moved.ratio > 1.0
    assert emulator.write(fp32).proto.SerializeToString(deterministic=True) == before
