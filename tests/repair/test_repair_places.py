"""HW401 past what scatters and gathers by computed places, into recurrent operators, and from a spectrum."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from halfwise.repair.rescale import RESCALE
from tests.models.build import model, node, value, weight
from tests.support.repairing import Feed, effect
from tests.support.rescaled import normal, rows

_ROWS, _WIDTH, _EDGES = 6, 8, 20
_QUIET = np.exp2(np.where(np.isin(np.arange(_WIDTH), [0, 3, 5]), -26.0, 0.0)).astype(np.float32)
_PLACES = np.random.default_rng(1).integers(0, _ROWS, (_EDGES, 1))


def channels_apart(nodes: list[onnx.NodeProto], **weights: Any) -> onnx.ModelProto:
    """x (6, 8) makes `h`, of which some channels are quiet; `z` is read again."""
    every = [node("MatMul", "x quiet", "h"), *nodes, node("MatMul", "z loud", "y")]
    held = {"quiet": normal(2, _WIDTH, _WIDTH) * _QUIET, "loud": normal(3, _WIDTH, _WIDTH) / _QUIET[:, None], **weights}
    ends = [value("x", shape=(_ROWS, _WIDTH))], [value("y", shape=None)]
    return model(every, *ends, [weight(name, np.asarray(array)) for name, array in held.items()], opset=18)


_SUMMED = [node("Gather", "h at", "rows", axis=0)]
_ZEROS = [node("ConstantOfShape", "size", "zeros")]
_WAYS = {
    "a table of zeros": (
        [*_SUMMED, *_ZEROS, node("ScatterElements", "zeros wide rows", "z", axis=0, reduction="add")],
        {"at": _PLACES[:, 0], "wide": np.broadcast_to(_PLACES, (_EDGES, _WIDTH)), "size": np.array([_ROWS, _WIDTH])},
    ),
    "rows added by place": (
        [*_SUMMED, node("ScatterND", "table places rows", "z", reduction="add")],
        {"at": _PLACES[:, 0], "places": _PLACES, "table": np.zeros((_ROWS, _WIDTH), "f4")},
    ),
    "rows replaced": (
        [node("Neg", "h", "rows"), node("ScatterND", "h places rows", "z")],
        {"places": np.arange(_ROWS)[::-1, None].copy()},
    ),
    "gathered by place": ([node("GatherND", "h places", "z")], {"places": _PLACES}),
    "gathered one by one": (
        [node("GatherElements", "h wide", "z", axis=0)],
        {"wide": np.broadcast_to(_PLACES, (_EDGES, _WIDTH))},
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", _WAYS)
def test_channels_keep_powers_of_their_own_where_rows_are_chosen(way: str) -> None:
    nodes, weights = _WAYS[way]
    found = effect(RESCALE, channels_apart(nodes, **weights), rows(5, _ROWS, _WIDTH))
    assert found.bit_identical and found.after < 1 < found.before


@pytest.mark.parametrize("op", ["ScatterElements", "GatherElements"])
def test_channels_that_places_choose_from_have_one_power(op: str) -> None:
    chosen = np.random.default_rng(4).integers(0, _WIDTH, (_ROWS, _WIDTH))
    inputs, given = ("h chosen h", {"reduction": "add"}) if op == "ScatterElements" else ("h chosen", {})
    proto = channels_apart([node(op, inputs, "z", axis=1, **given)], chosen=chosen)
    found = effect(RESCALE, proto, rows(5, _ROWS, _WIDTH))
    assert found.bit_identical


@pytest.mark.parametrize("reduction", ["mul", "max"])
def test_what_is_multiplied_in_place_stays_as_it_is(reduction: str) -> None:
    nodes = [node("Neg", "h", "rows"), node("ScatterND", "h places rows", "z", reduction=reduction)]
    found = effect(RESCALE, channels_apart(nodes, places=np.arange(_ROWS)[:, None]), rows(5, _ROWS, _WIDTH))
    passed = {name for repair in found.repairs for name in repair.nodes}
    assert found.bit_identical and ("n_z" in passed) == (reduction == "max")


@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_a_recurrent_operator_reads_channels_of_unlike_size(op: str, gates: int) -> None:
    hidden = 5
    nodes = [
        node("MatMul", "x uneven", "h"),
        node(op, "h w r", "s last", hidden_size=hidden, direction="bidirectional"),
    ]
    uneven = np.exp2(np.linspace(-24, 19, _WIDTH).round()).astype(np.float32)
    weights = [
        weight("uneven", normal(2, _WIDTH, _WIDTH) * uneven),
        weight("w", normal(3, 2, gates * hidden, _WIDTH, scale=0.3) / uneven),
        weight("r", normal(4, 2, gates * hidden, hidden, scale=0.3)),
    ]
    ends = [value("x", shape=(7, 2, _WIDTH))], [value("s", shape=None), value("last", shape=None)]
    found = effect(RESCALE, model(nodes, *ends, weights), rows(5, 7, 2, _WIDTH))
    assert found.bit_identical and found.after < 1 < found.before


@pytest.mark.parametrize("made", [False, True])
def test_a_power_spectrum_is_taken_of_a_signal_that_is_scaled_down(made: bool) -> None:
    """A window that is computed has no power: then what the transform makes is scaled."""
    nodes = [
        node("Relu", "curve", "window"),
        node("STFT", f"signal hop {'window' if made else 'curve'} length", "parts", onesided=1),
        node("Mul", "parts parts", "squares"),
        node("ReduceSum", "squares last", "power", keepdims=0),
        node("MatMul", "power bands", "y"),
    ]
    weights = [
        weight("curve", np.hanning(16).astype("f4")), weight("hop", np.array(8)), weight("length", np.array(16)),
        weight("last", np.array([3])), weight("bands", np.abs(normal(1, 9, 4, scale=1e-5))),
    ]  # fmt: skip
    ends = [value("signal", shape=(1, 64, 1))], [value("y", TensorProto.FLOAT, None)]
    feeds: list[Feed] = [{"signal": normal(seed, 1, 64, 1, scale=1e3)} for seed in range(3)]
    found = effect(RESCALE, model(nodes[0 if made else 1 :], *ends, weights), feeds)
    assert found.bit_identical and found.after < 1 < found.before
