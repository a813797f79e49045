"""What repairs may take away at best, and that a search spends no run on what is known without."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import onnx_ir as ir
import pytest

from halfwise.model.model import load
from halfwise.precision.sites import Sites
from halfwise.repair import Repair, Rule
from halfwise.search.noise import Noise
from halfwise.search.noise_model import NoiseModel
from halfwise.search.repair_gain import least_left
from halfwise.search.repair_selector import RepairSelector
from halfwise.search.tensor_statistics import ranges_if_asked
from halfwise.verbs.fix.fix import fix
from tests.models.build import model, node, value
from tests.models.zoo import ZooModel, detr_head, encoder

NAMES = "abcdefgh"


def chain() -> Sites:
    nodes = [node("Relu", f"t{i}", f"t{i + 1}", name=name) for i, name in enumerate(NAMES)]
    return Sites(load(model(nodes, [value("t0")], [value(f"t{len(NAMES)}")])))


def left(*pieces: tuple[str, float, bool], at: str) -> float:
    """Of noise at these nodes, with a repair at one."""
    sites = chain()
    by_name = sites.model.node_by_name
    noise = tuple(Noise(frozenset({by_name[name]}), energy, fatal) for name, energy, fatal in pieces)
    fatal = frozenset[ir.Node](each for piece in noise if piece.fatal for each in piece.needs)
    known = SimpleNamespace(noise=NoiseModel(noise, {}, fatal))
    base: Any = SimpleNamespace(repairs=(), solution=known, search=SimpleNamespace(sites=sites))
    rule: Any = SimpleNamespace(id="HW499")
    return least_left(base, ((rule, Repair("HW499", (at,), "made up")),))


def test_noise_stays_that_is_far_from_a_repair() -> None:
    assert left(("a", 3.0, False), ("h", 1.0, False), at="a") == pytest.approx(0.5)
    assert left(("h", 1.0, False), at="a") == pytest.approx(1.0)
    assert left(("c", 1.0, False), at="a") == 0.0  # two nodes away: it may be the repair's


def test_an_overflow_stays_that_is_far_from_a_repair() -> None:
    assert left(("a", 0.0, True), ("h", 0.0, True), at="a") == math.inf
    assert left(("a", 0.0, True), ("h", 1.0, False), at="a") == 0.0  # nobody knows what is left behind it


@dataclass(frozen=True)
class Named:
    id: str


@pytest.mark.parametrize(
    ("alone", "together", "kept", "tried"),
    [
        ((math.inf, 3e6), 33.0, 1, True),  # far less than any rule leaves, though nodes have to stay in FP32
        ((math.inf, math.inf), 33.0, 1, True),
        ((math.inf, 40.0), 33.0, 5, False),
        ((math.inf, 40.0), 33.0, 6, True),  # of 10: another error may hide what they bring
        ((math.inf, 40.0), 41.0, 6, False),
        ((math.inf, math.inf), math.inf, 6, False),
        ((math.inf, 3e6), 0.9, 1, True),
        ((math.inf, 0.9), 0.1, 6, False),  # one is enough
    ],
)
def test_repairs_that_make_others_possible_are_searched_where_they_leave_far_less(
    alone: tuple[float, float], together: float, kept: int, tried: bool
) -> None:
    first, second, third = (
        (cast(Rule, Named(name)), Repair(name, (name,), "made up")) for name in ("HW497", "HW498", "HW499")
    )
    left = {(first,): alone[0], (second,): alone[1], (first, second): math.inf, (first, second, third): together}
    asked: Any = SimpleNamespace(
        target_ratio=1.0,
        _affords_attempt=lambda base: True,
        _narrow=lambda base, repairs: left[repairs],
        _with_what_follows=lambda base, rules, found: (*found, third),
    )
    base: Any = SimpleNamespace(repairs=(), mostly_kept=2 * kept > 10)
    found = RepairSelector._healing(asked, base, (), (first, second))
    assert found == ((first, second, third) if tried else ())


@dataclass(frozen=True)
class Bound:
    zoo: ZooModel
    runs: float


@pytest.mark.parametrize("case", [Bound(encoder(), 10.0), Bound(detr_head(), 15.0)], ids=lambda case: case.zoo.name)
def test_a_job_takes_few_runs(case: Bound) -> None:
    """Of the encoder overflows decide, and one repair heals all; the head's repairs are not worth a search."""
    zoo = case.zoo
    given = [feed for index, feed in enumerate(zoo.inputs) if index % 4 != 3]
    found = fix(zoo.model, given, tolerance=f"*:rel_l2<={zoo.tolerance!r}")
    assert found.met
    assert found.cost.model_runs <= case.runs


def test_ranges_are_made_where_a_rule_asks_and_once() -> None:
    made = list[int]()

    def statistics() -> list[Any]:
        made.append(1)
        return []

    ranges = ranges_if_asked(statistics)
    assert not made
    assert ranges.high.get("x", 1.0) == 1.0 and "x" not in ranges.low and not ranges.size
    assert made == [1]
