"""What a file states of the ranks of its tensors may be wrong: ONNX Runtime runs it, and so does halfwise."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from halfwise.model.model import load
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.trace import trace
from tests.models.build import graph, model, node, value, weight

FEEDS = [{"x": np.random.default_rng(seed).standard_normal((6, 4)).astype(np.float32)} for seed in range(4)]


def flat_or_as_it_is(taken: str, made: str) -> onnx.NodeProto:
    """As torch.onnx.export writes a choice by a rank: the branch that keeps the tensor states rank 1 of it."""
    then = graph([node("Reshape", f"{taken} all", f"{made}_flat")], [], [value(f"{made}_flat", shape=("n",))], name="t")
    otherwise = graph([node("Identity", taken, f"{made}_is")], [], [value(f"{made}_is", shape=("n",))], name="e")
    return node("If", "flat", made, then_branch=then, else_branch=otherwise)


def with_wrong_ranks() -> onnx.ModelProto:
    nodes = [
        node("Shape", "x", "sizes"),
        node("Gather", "sizes axes", "as"),
        node("Reshape", "x as", "open"),
        flat_or_as_it_is("open", "a"),
        node("Mul", "a a", "b"),
        flat_or_as_it_is("b", "c"),
        node("Add", "c x", "y"),
    ]
    weights = [weight("all", [-1]), weight("axes", [0, 1]), weight("flat", np.array(False))]
    return model(nodes, [value("x", shape=("rows", "n"))], [value("y", TensorProto.FLOAT, ("rows", "n"))], weights)


def test_a_rank_that_a_branch_states_is_not_believed() -> None:
    given = load(with_wrong_ranks())
    ranks = {v.name: None if v.shape is None else len(v.shape) for each in given.graph for v in each.outputs}
    assert ranks["b"] in (None, 2)
    assert {each.name for each in trace(with_wrong_ranks(), FEEDS).tensors} >= {"a", "b", "c"}
    assert fix(with_wrong_ranks(), FEEDS).met
