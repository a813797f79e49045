"""What FP32 nodes cost at least: told by a few runs, and never more than what is enough costs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from numpy.typing import NDArray

from halfwise.core.tolerance import Bound, Tolerance
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.stepper import Stepper
from halfwise.model.model import load
from halfwise.precision.sites import Sites
from halfwise.search import least_cost
from halfwise.search.journal import Journal
from halfwise.search.judge import Judge, Question
from halfwise.search.least_cost import costs_as_much
from halfwise.search.search import Search
from halfwise.verbs.fix.fix import fix
from tests.models.build import f32, model, node, value, weight

WEIGHTS = [weight("big", f32(1e3)), weight("two", f32(2)), weight("least", f32(1e-5)), weight("far", f32(700))]


def norms(layers: int) -> onnx.ModelProto:
    """Their squares overflow. The cosine of a large angle needs FP32, too, and no repair mends it."""
    nodes = [node("Mul", "x big", "s0")]
    for i in range(layers):
        nodes += [
            node("ReduceMean", f"s{i}", f"mean{i}", axes=[-1]),
            node("Sub", f"s{i} mean{i}", f"apart{i}"),
            node("Pow", f"apart{i} two", f"squares{i}"),
            node("ReduceMean", f"squares{i}", f"variance{i}", axes=[-1]),
            node("Add", f"variance{i} least", f"more{i}"),
            node("Sqrt", f"more{i}", f"size{i}"),
            node("Div", f"apart{i} size{i}", f"n{i}"),
            node("Mul", f"n{i} big", f"s{i + 1}"),
        ]
    nodes += [node("Mul", "at far", "angle"), node("Cos", "angle", "wave"), node("Add", f"n{layers - 1} wave", "y")]
    floats = [value(name, shape=("rows", 64)) for name in ("x", "at", "y")]
    return model(nodes, floats[:2], floats[2:], WEIGHTS)


def inputs(count: int = 4) -> list[Mapping[str, NDArray[np.float32]]]:
    rng = np.random.default_rng(0)
    return [
        {"x": rng.standard_normal((2, 64)).astype(np.float32), "at": rng.uniform(-1, 1, (2, 64)).astype(np.float32)}
        for _ in range(count)
    ]


def searched(layers: int) -> tuple[Search, frozenset[ir.Node], dict[ir.Node, float]]:
    """The search, all nodes as if each were kept, and what they cost."""
    sites, emulator = Sites(load(norms(layers))), Emulator()
    judge = Judge(sites, emulator, Question(Tolerance((Bound.of("*", "rel_l2", 0.01),))), inputs(2))
    every = frozenset(site.node for site in sites.free)
    return Search(sites, judge, Stepper(emulator), Journal()), every, dict.fromkeys(every, 1.0)


@pytest.mark.parametrize("limit", [1.0, 4.5])
def test_parts_that_overflow_keep_a_node_each(limit: float) -> None:
    search, every, cost = searched(layers=8)
    assert costs_as_much(search, every, cost, limit)
    assert search.judge.counter.samples <= 2 + 2 * np.ceil(limit)


def test_nodes_that_need_no_fp32_cost_nothing() -> None:
    search, every, cost = searched(layers=8)
    harmless = frozenset(node for node in every if node.op_type in ("Sub", "Div"))
    assert not costs_as_much(search, harmless, cost, 1.0)


def test_what_is_enough_is_never_told_to_cost_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(least_cost, "LEAST_PART", 1)
    search, every, cost = searched(layers=2)
    keep = search.run().keep
    told = [limit for limit in range(1, len(every)) if costs_as_much(search, every, cost, limit)]
    assert told
    assert max(told) <= len(keep)


def test_small_parts_tell_nothing() -> None:
    search, every, cost = searched(layers=8)
    assert not costs_as_much(search, every, cost, len(every) / 4)
    assert search.judge.counter.samples == 0


def test_an_answer_with_repairs_is_compared_with_few_runs() -> None:
    """66 nodes stay in FP32 without repairs and one with them: pruning the 66 took 14 of 38 runs."""
    found = fix(norms(16), inputs())
    assert found.met
    assert len(found.fp32_nodes) == 1
    assert {repair.rule for repair in found.plan.repairs} >= {"HW402"}
    assert found.cost.model_runs < 30
