"""Samples of a large model go through it side by side: each is seen, and answered, as if it were alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from benchmarks.zoo.decoder import Sizes, feeds, write_decoder
from halfwise import fix
from halfwise.core.formats import Format
from halfwise.emulation import emulate, streamed
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.ort import Session
from halfwise.emulation.stepper import Stepper
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search import faithful
from halfwise.search.faithful import Faithfulness
from halfwise.search.overflows import harmful_overflows, headroom
from halfwise.search.tensor_statistics import beside_one_another, tensor_statistics
from tests.models.build import model, node, value, weight
from tests.models.random_nets import feeds as net_feeds
from tests.models.random_nets import random_net
from tests.support.rescaled import normal

Array = NDArray[Any]

SIZES = Sizes(layers=4, width=320, heads=5, shared=5, inner=896, vocabulary=300)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every model counts as large."""
    monkeypatch.setattr(emulate, "LARGE_BYTES", 0)
    monkeypatch.setattr(streamed, "LARGE_BYTES", 1)


def _branches() -> onnx.ModelProto:
    """Another branch for each sign of the sum, with nodes of different number."""
    twice = onnx.helper.make_graph(
        [node("Mul", "x x", "s"), node("Add", "s x", "t"), node("Mul", "t s", "one")], "then", [], [value("one")]
    )
    once = onnx.helper.make_graph([node("Neg", "x", "other")], "else", [], [value("other")])
    nodes = [
        node("ReduceSum", "x", "sum", keepdims=0),
        node("Less", "sum zero", "below"),
        node("If", "below", "chosen", then_branch=twice, else_branch=once),
        node("MatMul", "chosen w", "y"),
    ]
    table = np.linspace(-2, 2, 16, dtype=np.float32).reshape(4, 4)
    return model(
        nodes,
        [value("x", shape=("n", 4))],
        [value("y", shape=("n", 4)), value("chosen", shape=("n", 4))],
        [weight("zero", np.float32(0)), weight("w", table)],
    )


@pytest.mark.parametrize("samples", [1, 2, 3])
def test_each_is_seen_as_if_alone(samples: int, large: None) -> None:
    for proto, given in (
        (_branches(), [{"x": np.float32(sign) * np.ones((n, 4), np.float32)} for sign, n in ((1, 2), (-3, 5), (2, 1))]),
        (random_net(17), [*net_feeds(17), *net_feeds(18)]),
    ):
        sites = Sites(load(proto))
        emulator = Emulator()
        found = list(beside_one_another(Stepper(emulator), sites, given[:samples]))
        answers = emulator.session(Assignment(sites, {})).answers(given[:samples])
        assert len(found) == samples
        for (seen, answer), feed, expected in zip(found, given, answers, strict=False):
            alone = tensor_statistics(Stepper(Emulator()), sites, feed)
            assert (seen.sizes, seen.tensors, seen.powers) == (alone.sizes, alone.tensors, alone.powers)
            assert not isinstance(expected, Exception)
            for name in sites.model.output_names:
                np.testing.assert_array_equal(answer[name], expected[name])


def test_a_weight_is_multiplied_once_with_the_rows_of_all(large: None, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    run = Session.run

    def seen(self: Session, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Array]:
        taken.extend(each.size for each in feeds.values() if each.ndim == 2 and len(each) == 4)
        return run(self, feeds, outputs)

    monkeypatch.setattr(Session, "run", seen)
    table = np.linspace(-2, 2, 12, dtype=np.float32).reshape(4, 3)
    proto = model([node("MatMul", "x w", "y")], [value("x", shape=("b", "n", 4))], [value("y")], [weight("w", table)])
    given = [{"x": normal(n, 2, n, 4)} for n in (3, 5)]
    found = list(beside_one_another(Stepper(Emulator()), Sites(load(proto)), given))
    assert taken == [table.size]
    assert [answer["y"].shape for _, answer in found] == [(2, 3, 3), (2, 5, 3)]


def test_overflows_are_followed_as_if_alone(large: None) -> None:
    """Of samples that lose values at different nodes."""
    nodes = [
        node("MatMul", "x w", "m"),
        node("Mul", "m m", "q"),
        node("Sqrt", "q", "r"),
        node("MatMul", "r w", "s"),
        node("Mul", "s far", "t"),
        node("Mul", "t near", "y"),
    ]
    scales = [weight("far", np.float32(100)), weight("near", np.float32(0.01))]
    weights = [weight("w", np.eye(4, dtype=np.float32)), *scales]
    sites = Sites(load(model(nodes, [value("x", shape=("n", 4))], [value("y", shape=("n", 4))], weights)))
    given = [{"x": np.full((n, 4), size, np.float32)} for n, size in ((2, 1.0), (3, 300.0), (1, 700.0))]
    room = headroom(sites, [tensor_statistics(Stepper(Emulator()), sites, feed) for feed in given[:1]])
    found = harmful_overflows(Stepper(Emulator()), sites, given, Format.FP32, room)
    alone = [harmful_overflows(Stepper(Emulator()), sites, [feed], Format.FP32, room)[0] for feed in given]
    assert found == alone
    lost = [{node.name for needs in each.found for node in needs} for each in found]
    assert lost == [set(), {"n_q", "n_r"}, {"n_q", "n_r", "n_t", "n_y"}]


def test_a_repair_that_changes_the_answer_is_refused(
    large: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the answers that walks told as by runs."""
    path, inputs = write_decoder(tmp_path, SIZES, planted=("massive",)), feeds(SIZES, tokens=8)
    known, told = Faithfulness._walked, list[bool]()

    def walked(self: Faithfulness, made: Sequence[Sites]) -> list[Mapping[int, Mapping[str, Array]]]:
        found = known(self, made)
        told.append(all(found))
        return found

    monkeypatch.setattr(Faithfulness, "_walked", walked)
    assert {repair.rule for repair in fix(path, inputs).plan.repairs} == {"HW401", "HW402"}
    monkeypatch.setattr(faithful, "_bound", lambda entry: 1e-12 if entry[0].id == "HW402" else 0.0)
    assert "HW402" not in {repair.rule for repair in fix(path, inputs).plan.repairs}
    assert told[:2] == [True, True]


def test_what_rounding_does_in_branches_is_kept_for_the_next_sample(large: None, tmp_path: Path) -> None:
    given = [{"x": normal(seed, 4, 4) + np.float32((-1) ** seed)} for seed in range(6)]
    found = fix(_branches(), given, out=tmp_path, tolerance=["*:rel_l2<=0.00005"], repairs="none")
    assert found.met and found.fp32_nodes
