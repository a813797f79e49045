"""Behind a second search nodes that nothing seen needs go back to FP16; held-out inputs have a say in that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import onnx_ir as ir
import pytest

from halfwise.core.formats import Format
from halfwise.core.reasons import Reason
from halfwise.model.inputs.feed import Feed
from halfwise.model.inputs.samples import Samples
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.context import EvaluationContext
from halfwise.search.held_out import Decided
from halfwise.search.prune import Kept
from halfwise.verbs.fix.feedback import spared
from tests.models.build import model, node, value

STEPS = ("n_a", "n_b", "n_y")


@dataclass
class Asked:
    """Of inputs that need some nodes in FP32: 0.5 of the allowed error with them, 1.2 without."""

    needed: frozenset[str]
    spent: bool = False
    counts: list[int] = field(default_factory=list)

    def measure(self, assignment: Assignment) -> Any:
        wide = {site.name for site in assignment.sites.all if assignment.of(site.node) is Format.FP32}
        self.counts.append(len(wide))
        ratio = 0.5 if self.needed <= wide else 1.2
        return SimpleNamespace(ratio=ratio, unseen_bound=ratio)

    def affords(self, *_: object) -> bool:
        return True


@pytest.mark.parametrize(
    ("searched", "held_out", "stays"),
    [
        ([], [], []),
        (["n_b"], [], ["n_b"]),
        ([], ["n_b"], ["n_b"]),
        (["n_a"], ["n_y"], ["n_a", "n_y"]),
    ],
)
def test_what_held_out_inputs_need_is_not_put_back(
    searched: Sequence[str], held_out: Sequence[str], stays: Sequence[str]
) -> None:
    proto = model(
        [node("Exp", "x", "a"), node("Neg", "a", "b"), node("Tanh", "b", "y")],
        [value("x", shape=(2,))],
        [value("y", shape=(2,))],
    )
    sites = Sites(load(proto))
    nodes = [sites.model.node_by_name[name] for name in STEPS]
    given = Samples((cast(Feed, SimpleNamespace(id=0)),), (cast(Feed, SimpleNamespace(id=1)),), "given")
    judges = {0: Asked(frozenset(searched)), 1: Asked(frozenset(held_out))}
    context = SimpleNamespace(
        io=Format.FP32,
        judge=lambda _, feeds: judges[feeds[0].id],
        required=lambda *_: frozenset[ir.Node](),
    )
    kept = tuple(Kept(each, Reason.MARGIN, 0.5) for each in nodes)
    decided = Decided(sites.model, sites, dict.fromkeys(nodes, Format.FP32), kept, given)
    fewer, proven = spared(decided, cast(EvaluationContext, context), lambda _: None)
    assert sorted(each.name or "" for each in fewer.formats) == sorted(each.node.name or "" for each in fewer.kept)
    assert sorted(each.name or "" for each in fewer.formats) == sorted(proven) == sorted(stays)
