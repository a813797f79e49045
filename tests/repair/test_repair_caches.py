"""HW401 where attention keeps a cache: channels are scaled behind the input and in front of the output alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto

from halfwise import fix
from halfwise.repair.rescale import RESCALE
from tests.models.build import graph, model, node, value, weight
from tests.support.repairing import effect
from tests.support.rescaled import normal

Array = NDArray[Any]
Feed = dict[str, Array]

_WIDTH, _HEADS, _EACH = 8, 2, 4
_SOME = np.where(np.isin(np.arange(_WIDTH), [0, 3, 5]), -26, 0)
_ALL = np.full(_WIDTH, -26)
_X, _PAST = value("x", shape=("n", "s", _WIDTH)), value("past", shape=("n", _HEADS, "p", _EACH))
_Y, _PRESENT = value("y", shape=("n", "s", _WIDTH)), value("present", shape=("n", _HEADS, "t", _EACH))
_CONSTANTS = {
    "wq": normal(1, _WIDTH, _WIDTH, scale=0.3), "apart": np.array([0, 0, _HEADS, _EACH]),
    "together": np.array([0, 0, _WIDTH]), "head": normal(4, _WIDTH, _WIDTH, scale=0.3),
}  # fmt: skip


def nodes(prefix: str = "", *, past: bool = True) -> list[onnx.NodeProto]:
    """Queries are keys, for short: with a cache, all of what it holds weighs the same."""
    own = "new" if past else "present"
    made = [
        node("MatMul", "x wv", "v"), node("Reshape", "v apart", "a"), node("Transpose", "a", own, perm=[0, 2, 1, 3]),
        *([node("Concat", "past new", "present", axis=2)] if past else []),
        node("MatMul", "x wq", "q"), node("Reshape", "q apart", "b"), node("Transpose", "b", "c", perm=[0, 2, 1, 3]),
        node("Transpose", "present", "d", perm=[0, 1, 3, 2]), node("Mul", "d nothing", "e"), node("MatMul", "c e", "f"),
        node("Softmax", "f", "g", axis=-1), node("MatMul", "g present", "h"),
        node("Transpose", "h", "i", perm=[0, 2, 1, 3]), node("Reshape", "i together", "j"), node("MatMul", "j wo", "k"),
        node("MatMul", "k head", "y"),
    ]  # fmt: skip
    names = {name for each in made for name in each.output}
    for each in made:
        each.name = prefix + each.name
        for told in (each.input, each.output):
            told[:] = [prefix + name if name in names else name for name in told]
    return made


def weights(quiet: Array) -> list[onnx.TensorProto]:
    v, o = normal(2, _WIDTH, _WIDTH, scale=0.3), normal(3, _WIDTH, _WIDTH, scale=0.3)
    own = {"wv": v * np.exp2(quiet), "wo": o / np.exp2(quiet)[:, None], "nothing": 0.0}
    return [
        *(weight(name, np.float32(array)) for name, array in own.items()),
        *(weight(name, array) for name, array in _CONSTANTS.items()),
    ]


def decoder(quiet: Array) -> onnx.ModelProto:
    return model(nodes(), [_X, _PAST], [_Y, _PRESENT], weights(quiet))


def merged(quiet: Array) -> onnx.ModelProto:
    """A first step in one branch, and one with a cache in the other."""
    first, more = (
        graph(
            nodes(name, past=past), [], [value(f"{name}y", shape=None), value(f"{name}present", shape=None)], name=name
        )
        for name, past in (("one", False), ("two", True))
    )
    chosen = node("If", "cached", "y present", then_branch=more, else_branch=first)
    return model([chosen], [_X, _PAST, value("cached", TensorProto.BOOL, [])], [_Y, _PRESENT], weights(quiet))


def run(proto: onnx.ModelProto | Path, feed: Feed) -> Feed:
    given = str(proto) if isinstance(proto, Path) else proto.SerializeToString()
    session = onnxruntime.InferenceSession(given, providers=["CPUExecutionProvider"])
    names = {each.name for each in session.get_inputs()}
    return dict(
        zip(
            "y present".split(),
            session.run(["y", "present"], {n: a for n, a in feed.items() if n in names}),
            strict=True,
        )
    )


def step(seed: int, past: Array | None = None, tokens: int = 5) -> Feed:
    cache = np.zeros((2, _HEADS, 0, _EACH), np.float32) if past is None else past
    return {"x": normal(seed, 2, tokens, _WIDTH), "past": cache, "cached": np.array(past is not None)}


def feeds(proto: onnx.ModelProto) -> list[Feed]:
    """First steps, and each second one goes on with the cache of the one before."""
    names, found = {each.name for each in proto.graph.input}, list[Feed]()
    for seed in range(6):
        before = run(proto, found[-1])["present"] if seed % 2 else None
        found.append({n: a for n, a in step(seed, before, 5 if before is None else 1).items() if n in names})
    return found


@pytest.mark.parametrize("quiet", [_SOME, _ALL], ids=["some", "all"])
def test_what_comes_and_goes_keeps_its_bits(quiet: Array) -> None:
    proto = decoder(quiet)
    found = effect(RESCALE, proto, feeds(proto), searched=6)
    (repair,) = found.repairs
    assert found.bit_identical and len(repair.parameters["entries"]) == len(repair.parameters["ends"]) == 1


@pytest.mark.parametrize("make", [decoder, merged])
@pytest.mark.parametrize("quiet", [_SOME, _ALL], ids=["some", "all"])
def test_two_nodes_are_left_and_each_channel_of_the_cache_is_right(make: Any, quiet: Array, tmp_path: Path) -> None:
    """Over ten steps, each with the own cache of the one before."""
    proto = make(quiet)
    given = feeds(proto)
    found, without = (fix(proto, given, repairs=which, out=tmp_path / which) for which in ("all", "none"))
    assert found.met and len(found.fp32_nodes) == (2 if make is decoder else 4) < len(without.fp32_nodes)
    (typed,) = (tmp_path / "all").glob("*.fp16.onnx")
    exact, own = None, None
    for seed in range(20, 30):
        one, other = (
            run(p, step(seed, cache, 1 if cache is not None else 5)) for p, cache in ((proto, exact), (typed, own))
        )
        exact, own = one["present"], other["present"]
        for axes, name in (((0, 1), "y"), ((0, 2), "present")):
            error = np.linalg.norm(np.float64(one[name]) - other[name], axis=axes)
            assert (error <= 0.01 * np.linalg.norm(np.float64(one[name]), axis=axes)).all()


def test_first_steps_alone_tell_of_the_cache_what_its_channels_hold() -> None:
    proto = decoder(_SOME)
    found = fix(proto, feeds(proto)[::2])
    assert found.met and len(found.fp32_nodes) == 2


def test_a_cache_that_is_loud_where_values_are_quiet_is_not_scaled_beyond_fp16() -> None:
    proto = decoder(_SOME)
    given = [step(seed, normal(seed, 2, _HEADS, 3, _EACH), 1) for seed in range(3)]
    loud = [{"x": feed["x"], "past": feed["past"]} for feed in given]
    found = effect(RESCALE, proto, loud)
    assert found.bit_identical
    for repair in found.repairs:
        edits = repair.parameters.get("entries", ())
        assert all(np.max(edit["powers" if "powers" in edit else "power"]) <= 14 for edit in edits)


def test_what_nobody_reads_inside_gets_no_factor() -> None:
    """A unit of a last layer that died in training is as quiet as its result."""
    w = normal(1, _WIDTH, _WIDTH)
    w[:, 2] *= 2.0**-40
    proto = model([node("MatMul", "x w", "y")], [_X], [_Y], [weight("w", w)])
    assert not effect(RESCALE, proto, [{"x": normal(seed, 2, 5, _WIDTH)} for seed in range(3)]).repairs


def test_parts_of_one_output_are_scaled_back_together() -> None:
    """Each part is read by another weight, so that nothing else couples them."""
    quiet, loud = (np.float32(normal(seed, _WIDTH, 4) * 2.0**power) for seed, power in ((1, -26), (2, 26)))
    parts = [
        node("MatMul", "x wa", "a"), node("MatMul", "x wb", "b"), node("Concat", "a b", "present", axis=-1),
        node("Slice", "present zero four last", "c"), node("Slice", "present four eight last", "d"),
        node("MatMul", "c va", "e"), node("MatMul", "d vb", "f"), node("Add", "e f", "y"),
    ]  # fmt: skip
    held = [weight(name, np.array([number])) for name, number in (("zero", 0), ("four", 4), ("eight", 8), ("last", -1))]
    held += [weight("wa", quiet), weight("wb", 0.5 * quiet), weight("va", loud.T.copy()), weight("vb", loud.T.copy())]
    handed = value("present", shape=("n", "s", _WIDTH))
    found = effect(
        RESCALE, model(parts, [_X], [_Y, handed], held), [{"x": normal(seed, 2, 5, _WIDTH)} for seed in range(3)]
    )
    assert found.bit_identical and found.ops().count("Mul") == 1


def test_an_input_that_a_constant_multiplies_gets_no_factor_in_front_of_that() -> None:
    """A state that decays, and a channel of which is quiet: the constant takes any power."""
    wv = np.float32(normal(2, _WIDTH, _WIDTH) * np.exp2(np.where(np.arange(_WIDTH) == 3, -20, 0)))
    wo = np.float32(normal(3, _WIDTH, _WIDTH) * np.exp2(np.where(np.arange(_WIDTH) == 3, 20, 0))[:, None])
    parts = [
        node("MatMul", "x wv", "v"), node("Mul", "past decay", "a"), node("Add", "v a", "b"),
        node("MatMul", "b wo", "y"),
    ]  # fmt: skip
    held = [weight("wv", wv), weight("wo", wo), weight("decay", np.full(_WIDTH, 0.9, np.float32))]
    state = value("past", shape=("n", "s", _WIDTH))
    proto = model(parts, [_X, state], [_Y], held)
    given = [
        {"x": normal(seed, 2, 5, _WIDTH), "past": np.float32(normal(seed + 9, 2, 5, _WIDTH) @ wv)} for seed in range(3)
    ]
    found = effect(RESCALE, proto, given)
    assert not any(repair.parameters.get("entries") for repair in found.repairs)
