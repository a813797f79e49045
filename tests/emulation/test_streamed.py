"""A large model runs segment by segment: the same answers as of one session over the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from halfwise.core import set_aside
from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.emulation import emulate, row_products, segments, streamed, weights
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.kept_walks import KeptWalks
from halfwise.emulation.profiles import WIDE, profile_named
from halfwise.emulation.streamed import StreamedSession
from halfwise.model.model import Model, load
from halfwise.model.weights import convert_array
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from tests.models.build import f32, model, node, value, weight
from tests.models.decoders import decoder, decoder_inputs
from tests.models.zoo import detr_head, encoder, transformer

Feed = dict[str, NDArray[Any]]


@pytest.fixture(autouse=True)
def every_weight_begins_a_segment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(emulate, "LARGE_BYTES", 0)
    monkeypatch.setattr(emulate, "INLINE_ELEMENTS", 8)
    monkeypatch.setattr(streamed, "LARGE_BYTES", 1)
    yield


CASES: dict[str, Callable[[], tuple[onnx.ModelProto, list[Feed]]]] = {
    "encoder": lambda: (encoder().model, list(encoder().inputs)),
    "detr_head": lambda: (detr_head().model, list(detr_head().inputs)),
    "operators": lambda: (decoder("operator"), list(decoder_inputs(2))),
    "steps": lambda: (decoder("cast"), list(decoder_inputs(2))),
}


@pytest.mark.parametrize("profile", ["strict", "tensorrt"])
@pytest.mark.parametrize("name", CASES)
def test_it_answers_as_the_whole_does(name: str, profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    proto, feeds = CASES[name]()
    sites = Sites(load(proto))
    for assignment, within in ((Assignment(sites, {}), 1e-5), (Assignment.all_narrow(sites), 2e-3)):
        session = Emulator(profile_named(profile)).session(assignment)
        assert isinstance(session, StreamedSession)
        found = list(session.answers(feeds[:2]))
        with monkeypatch.context() as patch:
            patch.setattr(emulate, "LARGE_BYTES", 1 << 40)
            whole = Emulator(profile_named(profile)).session(assignment)
        for feed, answer in zip(feeds, found, strict=False):
            assert isinstance(answer, dict)
            for output, array in whole.run({n: feed[n] for n in whole.input_names}).items():
                _assert_near(answer[output], array, within)


@pytest.mark.parametrize("name", CASES)
def test_a_stream_runs_the_whole_and_answers_alike(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its steps would read and round all weights anew; a model that is too large for it still runs so."""
    proto, feeds = CASES[name]()
    sites = Sites(load(proto))
    for assignment, within in ((Assignment(sites, {}), 1e-5), (Assignment.all_narrow(sites), 2e-3)):
        step, stream = Emulator().session(assignment), Emulator(in_a_row=True).session(assignment)
        assert isinstance(step, StreamedSession) and not isinstance(stream, StreamedSession)
        given = {name: feeds[0][name] for name in step.input_names}
        for output, array in step.run(given).items():
            _assert_near(stream.run(given)[output], array, within)
    monkeypatch.setattr(emulate, "MOST_WHOLE_BYTES", 0)
    assert isinstance(Emulator(in_a_row=True).under(WIDE).session(Assignment(sites, {})), StreamedSession)


def test_all_that_a_walk_found_is_kept_before_the_first_is_judged(tmp_path: Path) -> None:
    """Whoever is interrupted between two answers has lost none of them."""
    proto, feeds = CASES["steps"]()
    parts: list[int] = []

    def answers() -> Iterator[Any]:
        emulator = Emulator(walked=lambda done, _: parts.append(done), kept=KeptWalks(tmp_path))
        return emulator.session(Assignment(Sites(load(proto)), {})).answers(feeds[:2])

    first = next(answers())
    walked = len(parts)
    again = list(answers())
    assert len(parts) == walked > 3
    assert all(np.array_equal(first[name], again[0][name]) for name in first)


def test_a_walk_tells_how_far_it_is() -> None:
    proto, feeds = CASES["steps"]()
    told: list[tuple[int, int]] = []
    emulator = Emulator(walked=lambda done, total: told.append((done, total))).under(profile_named("tensorrt"))
    list(emulator.session(Assignment(Sites(load(proto)), {})).answers(feeds[:2]))
    total = told[0][1]
    assert total > 3 and told == [(done, total) for done in range(total)]


def _assert_near(one: NDArray[Any], other: NDArray[Any], within: float) -> None:
    known = np.isfinite(other)
    assert np.array_equal(np.isfinite(one), known)
    if other.dtype.kind == "f":
        assert np.linalg.norm(one[known] - other[known]) <= within * np.linalg.norm(other[known])


def test_inputs_at_once_are_answered_as_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there is no room for all of them."""
    session = Emulator().session(Assignment.all_narrow(Sites(load(encoder().model))))
    feeds = list(encoder().inputs[:4])
    apart = [session.run(feed) for feed in feeds]
    for name, room in (("LIVE_BYTES", 1 << 30), ("AT_ONCE_BYTES", 1), ("AT_ONCE_BYTES", 1 << 12), ("LIVE_BYTES", 1)):
        monkeypatch.setattr(row_products if name == "AT_ONCE_BYTES" else streamed, name, room)
        for one, other in zip(session.answers(feeds), apart, strict=True):
            assert isinstance(one, dict) and all(np.array_equal(one[n], other[n]) for n in other)


@pytest.mark.parametrize("turned", [True, False])
def test_a_table_that_is_rounded_in_parts_gives_the_same_bits(turned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is beyond FP16 is clamped in whichever part it is."""
    table = np.random.default_rng(0).standard_normal((300, 40)).astype(np.float32)
    table[299, 0] = 1e5
    turn = [node("Transpose", "table", "turned", perm=[1, 0])] if turned else []
    proto = model(
        [*turn, node("MatMul", "x turned" if turned else "x table", "y")],
        [value("x", shape=["batch", "tokens", 40])],
        [value("y", shape=["batch", "tokens", 300])],
        [weight("table", table if turned else np.ascontiguousarray(table.T))],
    )
    feeds = [{"x": np.full((1, tokens, 40), 0.5, np.float32)} for tokens in (3, 1, 2)]

    def answers() -> list[Any]:
        return list(Emulator().session(Assignment.all_narrow(Sites(load(proto)))).answers(feeds))

    whole, sizes, made = answers(), list[int](), weights._held

    def seen(stored: NDArray[Any], *rest: Any, **options: Any) -> Any:
        sizes.append(stored.size)
        return made(stored, *rest, **options)

    for name, size in (("_PART", 1), ("_HUGE", 1), ("_LEAST_ROWS", 64)):
        monkeypatch.setattr(weights, name, size)
    monkeypatch.setattr(weights, "_held", seen)
    parts = [*answers(), *answers()]
    assert all(np.array_equal(one["y"], other["y"]) for one, other in zip(parts, whole * 2, strict=True))
    assert np.isfinite(whole[0]["y"]).all()
    assert max(sizes) == 80 * 40


def test_large_outputs_of_all_inputs_are_not_held_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_aside, "LARGE", 1)
    proto, feeds = CASES["steps"]()
    for answer in Emulator().session(Assignment(Sites(load(proto)), {})).answers(feeds[:2]):
        assert isinstance(answer, dict) and all(set_aside.is_aside(array) for array in answer.values())


def test_a_tied_embedding_is_neither_turned_nor_read_for_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two readers: of one only the rows that inputs pick are read, the other is one product of the rows of all."""
    proto = model(
        [
            node("Gather", "table i", "x"),
            node("Transpose", "table", "turned", perm=[1, 0]),
            node("MatMul", "x turned", "y"),
            node("Relu", "y", "z"),
        ],
        [value("i", onnx.TensorProto.INT64, ["batch", "tokens"])],
        [value("z", shape=["batch", "tokens", 5])],
        [weight("table", np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32))],
    )
    session = Emulator().session(Assignment(Sites(load(proto)), {}))
    assert isinstance(session, StreamedSession)
    feeds = [{"i": np.array([[0, 1, 2]])}, {"i": np.array([[4, 3]])}, {"i": np.array([[9, 3]])}, {"i": np.array([[2]])}]
    made: list[str] = []
    run = StreamedSession._run

    def seen(self: StreamedSession, segment: segments.Segment, *rest: Any) -> dict[str, Any]:
        made.append(segment.nodes[0].op_type)
        return run(self, segment, *rest)

    apart = [next(session.answers([feed])) for feed in feeds]
    monkeypatch.setattr(StreamedSession, "_run", seen)
    list(session.answers(feeds[:2]))
    assert made == ["Gemm", "Relu", "Relu"]
    for one, other in zip(apart, session.answers(feeds), strict=True):
        if isinstance(one, dict):
            assert isinstance(other, dict) and np.array_equal(one["z"], other["z"])
        else:
            assert isinstance(other, InputError)


def test_an_input_that_fails_leaves_the_others_alone() -> None:
    proto = model(
        [node("Gather", "table i", "rows"), node("MatMul", "rows w", "y")],
        [value("i", onnx.TensorProto.INT64, [1])],
        [value("y", shape=[1, 4])],
        [weight("table", np.ones((3, 4), np.float32)), weight("w", np.eye(4, dtype=np.float32))],
    )
    session = Emulator().session(Assignment(Sites(load(proto)), {}))
    good, bad = {"i": np.array([2])}, {"i": np.array([7])}
    first, second, third = session.answers([good, bad, good])
    assert isinstance(second, InputError) and isinstance(first, dict) and isinstance(third, dict)
    assert np.array_equal(first["y"], np.ones((1, 4))) and np.array_equal(third["y"], first["y"])
    with pytest.raises(InputError, match="n_rows"):
        session.run(bad)


def test_layers_of_one_kind_share_their_sessions() -> None:
    counts = []
    for layers in (2, 6):
        made, known = transformer(layers), streamed.Sessions()
        emulator = Emulator()
        emulator._segments = known
        emulator.session(Assignment.all_narrow(Sites(load(made.model)))).run(made.inputs[0])
        counts.append(len(known))
    assert counts[0] == counts[1]


def test_a_kernel_that_asks_for_constants_is_loaded_once_for_all_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is gone with its segment: it holds a weight."""
    proto = model(
        [node("BiasGelu", "x bias", "g", domain="com.microsoft"), node("MatMul", "g w", "y")],
        [value("x", shape=["batch", 16])],
        [value("y", shape=["batch", 4])],
        [weight("bias", f32(*range(16))), weight("w", np.eye(16, 4, dtype=np.float32))],
    )
    session = Emulator().session(Assignment(Sites(load(proto)), {}))
    made: list[int] = []

    class Counted(streamed.Session):
        def __init__(self, proto: onnx.ModelProto, weights: Any = None, **rest: Any) -> None:
            super().__init__(proto, weights, **rest)
            made.append(len(weights or {}))

    monkeypatch.setattr(streamed, "Session", Counted)
    feeds = [{"x": np.full((rows, 16), rows, np.float32)} for rows in (1, 2, 3)]
    for _ in range(2):
        assert all(isinstance(each, dict) for each in session.answers(feeds))
    assert made.count(1) == 2


def test_a_sequence_stays_in_one_segment() -> None:
    proto = model(
        [
            node("MatMul", "x w", "a"),
            node("SplitToSequence", "a", "s", axis=0),
            node("MatMul", "x v", "b"),
            node("ConcatFromSequence", "s", "c", axis=0),
            node("Add", "b c", "y"),
        ],
        [value("x", shape=[4, 4])],
        [value("y", shape=[4, 4])],
        [weight("w", np.eye(4, dtype=np.float32)), weight("v", 2 * np.eye(4, dtype=np.float32))],
    )
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    got = Emulator().session(Assignment(Sites(load(proto)), {})).run({"x": x})["y"]
    assert np.array_equal(got, 3 * x)


@pytest.mark.parametrize("fmt", [Format.FP16, Format.BF16, Format.FP32])
@pytest.mark.parametrize("stored", [np.float32, np.float16, np.float64])
def test_a_weight_is_rounded_in_blocks_as_it_is_at_once(
    fmt: Format, stored: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "_BLOCK", 300)
    rng = np.random.default_rng(3)
    with np.errstate(over="ignore"):
        array = (rng.standard_normal(1000) * np.geomspace(1e-10, 1e10, 1000)).astype(stored)
    array[:4] = f32(np.inf, -np.inf, np.nan, -0.0)
    expected = np.asarray(convert_array(array, fmt)[0], np.float32)
    got = weights.held_in_fp32(array.reshape(10, 100), fmt).reshape(-1)
    assert np.array_equal(got, expected, equal_nan=True)


def test_segments_hold_one_large_weight_each() -> None:
    loaded: Model = load(encoder().model)
    written = Emulator().write(Assignment(Sites(loaded), {}))
    names = {each.name for each in written.weights}
    found = segments.segments(written.proto.graph, names, ())
    assert sum(len(each.nodes) for each in found) == len(written.proto.graph.node)
    firsts = [segments.reads_of(each.nodes[0]).keys() & names for each in found[1:]]
    assert all(firsts) and all(names.isdisjoint(segments.reads_of(inner)) for each in found for inner in each.nodes[1:])


@pytest.mark.parametrize("fmt", [Format.FP16, Format.FP32])
def test_a_turned_weight_is_read_as_it_lies_by_each_of_its_products(fmt: Format) -> None:
    rng = np.random.default_rng(0)
    proto = model(
        [
            node("Transpose", "table", "turned", perm=[1, 0]),
            node("MatMul", "x turned", "a"),
            node("Sigmoid", "x", "b"),
            node("MatMul", "b turned", "c"),
            node("Add", "a c", "y"),
        ],
        [value("x", shape=["batch", 3, 4])],
        [value("y", shape=["batch", 3, 5])],
        [weight("table", rng.standard_normal((5, 4)).astype(np.float32))],
    )
    sites = Sites(load(proto))
    assignment = Assignment(sites, {}) if fmt is Format.FP32 else Assignment.all_narrow(sites)
    x = rng.standard_normal((2, 3, 4)).astype(np.float32)
    session = Emulator().session(assignment)
    assert isinstance(session, StreamedSession)
    assert sum(each.product is not None and each.product.turned for each in session._segments) == 2
    table = onnx.numpy_helper.to_array(proto.graph.initializer[0])

    def kept(array: NDArray[Any]) -> NDArray[Any]:
        return array.astype(np.float16).astype(np.float32) if fmt is Format.FP16 else array

    given, weights_ = kept(x), kept(table)
    first, second = kept(given @ weights_.T), kept(kept(1 / (1 + np.exp(-given))) @ weights_.T)
    assert np.allclose(session.run({"x": x})["y"], kept(first + second), rtol=1e-3, atol=1e-3)
    one, other = session.answers([{"x": x[:1]}, {"x": x[1:]}])
    assert isinstance(one, dict) and isinstance(other, dict)
    assert np.array_equal(np.concatenate([one["y"], other["y"]]), session.run({"x": x})["y"])


@pytest.mark.parametrize("stored", [np.float16, np.float32])
def test_picked_rows_are_those_of_the_whole_weight(stored: type) -> None:
    table = np.random.default_rng(1).standard_normal((6, 2, 3)).astype(stored)
    table[2] = 7e4 if stored is np.float32 else np.inf
    kind = onnx.TensorProto.FLOAT if stored is np.float32 else onnx.TensorProto.FLOAT16
    proto = model(
        [node("Gather", "table i", "x"), node("Identity", "x", "y")],
        [value("i", onnx.TensorProto.INT32, ["batch", 2])],
        [value("y", kind, shape=["batch", 2, 2, 3])],
        [weight("table", table)],
    )
    indices = np.array([[-1, 2], [0, 0]], np.int32)
    got = Emulator().session(Assignment.all_narrow(Sites(load(proto)))).run({"i": indices})["y"]
    with np.errstate(over="ignore"):
        expected = table[indices].astype(np.float16).astype(np.float32)
    expected[np.isinf(expected) & np.isfinite(table[indices])] = 65504
    assert np.array_equal(got, expected)


def _typed() -> onnx.ModelProto:
    """A product with a weight of 4,096 values, all in FP16."""
    x, y = (value(name, onnx.TensorProto.FLOAT16, (2, 64)) for name in "xy")
    return model([node("MatMul", "x w", "y")], [x], [y], [weight("w", np.ones((64, 64), np.float16))])


def test_weights_stored_in_fp16_count_as_they_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """In FP32: a typed model needs the memory of the model that it was made of."""
    monkeypatch.setattr(emulate, "LARGE_BYTES", 3 * 4096)
    assert isinstance(Emulator().session(Assignment(Sites(load(_typed())), {})), StreamedSession)
    monkeypatch.setattr(emulate, "LARGE_BYTES", 4 * 4096)
    assert not isinstance(Emulator().session(Assignment(Sites(load(_typed())), {})), StreamedSession)
