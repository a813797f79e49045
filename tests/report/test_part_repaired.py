"""A node that a repair changed and that stays in FP32 all the same is told once, as kept."""

from __future__ import annotations

from functools import cache

import numpy as np

from halfwise import fix
from halfwise.core.tolerance import Verdict
from halfwise.report.html.along import along
from halfwise.report.html.culprits import culprits
from halfwise.report.html.names import Names
from halfwise.report.html.places import Places
from halfwise.report.html.verdict import verdict_text
from halfwise.verbs.fix.result import FixResult
from tests.models.build import model, node, value, weight
from tests.support.says import Says


@cache
def part_repaired() -> FixResult:
    """All of it is scaled; the result itself exceeds FP16's range, and its node stays in FP32."""
    rng = np.random.default_rng(0)
    given = model(
        [node("MatMul", "x w", "a"), node("Mul", "a s", "b"), node("Relu", "b", "r"), node("MatMul", "r v", "y")],
        [value("x", shape=(2, 16))],
        [value("y", shape=(2, 4))],
        [
            weight("w", rng.normal(0, 0.2, (16, 16)).astype(np.float32)),
            weight("s", np.float32([1e5])),
            weight("v", rng.normal(0, 0.2, (16, 4)).astype(np.float32)),
        ],
    )
    return fix(given, [{"x": rng.normal(size=(2, 16)).astype(np.float32)} for _ in range(10)])


def test_it_is_no_repaired_node() -> None:
    result, names = part_repaired(), Names()
    (kept,) = result.plan.nodes
    assert any(kept.name in repair.nodes for repair in result.plan.repairs)
    found = culprits(result, names, Places(result))
    cards = {rule: [names.table[each.name] for each in found if bool(each.rule) is rule] for rule in (False, True)}
    assert cards[False] == [kept.name]
    assert cards[True] and kept.name not in cards[True]


def test_its_share_of_the_error_is_kept_in_fp32() -> None:
    result, names = part_repaired(), Names()
    (kept,) = result.plan.nodes
    seen = along(result, names, Places(result), {kept.name: kept}, {})
    assert seen is not None
    done = {names.table[part.name]: part.done for part in seen.views[0].parts}
    assert done.pop(kept.name) == "kept in FP32" and set(done.values()) == {"repaired"}


def test_the_page_shows_as_many_digits_as_the_screen(says: Says) -> None:
    says(verdict_text(Verdict(True, 0.12, "y", "rel_l2", 0.0012345, 0.01)))
