"""Which groups of nodes are tried: the exact answer on backends that hide culprits, and the number of builds."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.bisection import CASES, Case, builds_of, found_by, measure
from halfwise.verbs.bisect.belief import Belief
from halfwise.verbs.bisect.culprits import Answer, Found

Good = Callable[[frozenset[int]], bool]  # of the nodes that are narrow


class Hiding:
    """A backend that knows which narrow nodes are good together; `fails` says which builds do not come out."""

    def __init__(self, good: Good, fails: Callable[[int, frozenset[int]], bool] = lambda build, narrow: False) -> None:
        self.good, self.fails = good, fails
        self.asked: list[frozenset[int]] = []

    def __call__(self, narrow: frozenset[int]) -> Answer:
        self.asked.append(narrow)
        if self.fails(len(self.asked), narrow):
            return Answer.FAILED
        return Answer.GOOD if self.good(narrow) else Answer.BAD

    def check(self, found: Found, count: int) -> None:
        """The set is enough, was itself built, and no node of it can be spared."""
        narrow = frozenset(range(count)) - {*found.culprits, *found.unbuildable, *found.unproven}
        assert narrow in self.asked
        assert self.good(narrow)
        assert not any(self.good(narrow | {node}) for node in found.culprits)


def needs(*culprits: int) -> Good:
    return lambda narrow: narrow.isdisjoint(culprits)


@pytest.mark.parametrize(
    ("culprits", "most"),
    [
        ((0,), 12),  # the first of the ranking
        ((999,), 22),  # the last
        ((500,), 20),
        ((5, 900), 28),
        ((0, 999), 26),
        ((41, 42, 43, 44), 42),
        ((7, 300, 301, 302, 650, 651, 980, 999), 80),
    ],
)
def test_every_culprit_is_named_and_no_other_node(culprits: tuple[int, ...], most: int) -> None:
    backend = Hiding(needs(*culprits))
    found = found_by(backend, 1000)
    assert (found.ending, found.culprits) == ("found", culprits)
    assert (found.unbuildable, found.unproven, found.sum) == ((), (), False)
    assert len(backend.asked) <= most
    backend.check(found, 1000)


def test_the_baseline_is_tried_first_and_the_control_second() -> None:
    backend = Hiding(needs(3))
    found_by(backend, 10)
    assert backend.asked[:2] == [frozenset(range(10)), frozenset()]


def test_nothing_wrong_takes_one_build() -> None:
    backend = Hiding(lambda narrow: True)
    assert found_by(backend, 1000) == Found("none")
    assert len(backend.asked) == 1


def test_wrong_in_fp32_too_takes_two_builds_and_blames_no_node() -> None:
    backend = Hiding(lambda narrow: False)
    found = found_by(backend, 1000)
    assert (found.ending, found.culprits, found.measured) == ("control", (), True)
    assert len(backend.asked) == 2


def test_a_control_that_cannot_be_built_is_told_apart_from_one_that_is_wrong() -> None:
    found = found_by(Hiding(lambda narrow: False, lambda build, narrow: not narrow), 10)
    assert (found.ending, found.measured) == ("control", False)


def test_two_that_break_something_only_together_cost_one_node() -> None:
    """Either of them in FP32 is enough: the more suspicious one is taken."""
    backend = Hiding(lambda narrow: not {20, 700} <= narrow)
    found = found_by(backend, 1000)
    assert found.culprits == (20,)
    assert len(backend.asked) <= 20
    backend.check(found, 1000)


def test_two_that_help_only_together_are_both_named() -> None:
    backend = Hiding(lambda narrow: narrow.isdisjoint({20, 700}))
    assert found_by(backend, 1000).culprits == (20, 700)


def test_single_and_interacting_culprits_mix() -> None:
    def good(narrow: frozenset[int]) -> bool:
        return narrow.isdisjoint({3, 998}) and not {100, 101} <= narrow and not {50, 400, 900} <= narrow

    backend = Hiding(good)
    found = found_by(backend, 1000)
    assert found.culprits == (3, 50, 100, 998)
    assert len(backend.asked) <= 45
    backend.check(found, 1000)


def test_errors_that_add_up_are_told_from_culprits() -> None:
    """No node breaks anything by itself; the most suspicious ones stay in FP32, and none of them in vain."""
    energy = {node: 0.1 * 0.9**node for node in range(200)}
    backend = Hiding(lambda narrow: sum(energy[node] for node in narrow) <= 0.3)
    found = found_by(backend, 200)
    assert (found.ending, found.sum) == ("found", True)
    assert len(found.culprits) == 12  # of 200; 0.9 ** 12 < 0.3 < 0.9 ** 11
    assert found.culprits == tuple(range(len(found.culprits)))
    backend.check(found, 200)
    assert len(backend.asked) <= 45


def test_many_culprits_of_their_own_are_no_sum() -> None:
    backend = Hiding(needs(*range(0, 120, 10)))
    found = found_by(backend, 120)
    assert (found.culprits, found.sum) == (tuple(range(0, 120, 10)), False)


def test_a_build_that_fails_now_and_then_changes_no_answer() -> None:
    culprits = (7, 301, 302, 980)
    backend = Hiding(needs(*culprits), lambda build, narrow: build > 2 and build % 3 == 0)
    found = found_by(backend, 1000)
    assert (found.culprits, found.unbuildable) == (culprits, ())
    assert len(backend.asked) <= 62


def test_a_baseline_that_fails_is_neither_good_nor_bad() -> None:
    backend = Hiding(needs(4, 5), lambda build, narrow: len(narrow) == 50)
    found = found_by(backend, 50)
    assert (found.ending, found.culprits, found.unbuildable) == ("found", (4, 5), ())


def test_a_node_with_which_no_build_comes_out_is_named_apart() -> None:
    backend = Hiding(needs(10, 600), lambda build, narrow: 333 in narrow)
    found = found_by(backend, 1000)
    assert (found.culprits, found.unbuildable) == ((10, 600), (333,))
    assert len(backend.asked) <= 64
    backend.check(found, 1000)


def test_a_limit_of_builds_leaves_a_set_that_is_good() -> None:
    culprits = (7, 301, 302, 980)
    backend = Hiding(needs(*culprits))

    def limited(narrow: frozenset[int]) -> Answer | None:
        return backend(narrow) if len(backend.asked) < 15 else None

    found = found_by(limited, 1000)
    assert (found.ending, len(backend.asked)) == ("budget", 15)
    assert set(found.culprits) < set(culprits) <= {*found.culprits, *found.unproven}
    backend.check(found, 1000)


def test_builds_run_out_before_the_control_was_good() -> None:
    found = found_by(lambda narrow: Answer.BAD if narrow else None, 10)
    assert (found.ending, found.measured) == ("budget", False)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 60), st.data())
def test_any_backend_on_which_more_fp32_does_no_harm_gets_a_minimal_answer(count: int, data: st.DataObject) -> None:
    """Whatever sets of nodes break the result together, whichever builds fail twice at most."""
    group = st.frozensets(st.integers(0, count - 1), min_size=1, max_size=4)
    bad = data.draw(st.lists(group, max_size=6))
    failing = data.draw(st.frozensets(st.integers(3, 40), max_size=2))
    backend = Hiding(lambda narrow: not any(each <= narrow for each in bad), lambda build, narrow: build in failing)
    found = found_by(backend, count)
    if not bad:
        assert found == Found("none")
        return
    assert found.ending == "found"
    if not found.unbuildable:
        backend.check(found, count)


def test_a_model_without_nodes_has_no_culprit() -> None:
    assert found_by(lambda narrow: Answer.GOOD, 0) == Found("none")


@pytest.mark.parametrize(
    ("name", "median", "worst"),
    [("8, ranking useless", 76, 80), ("8, ranking useful", 23, 25), ("8, ranking right", 22, 22)],
)
def test_the_builds_that_eight_culprits_in_a_thousand_nodes_cost(name: str, median: float, worst: int) -> None:
    (case,) = [case for case in CASES if case.name == name]
    row = measure(case, 8)
    assert row.exact == 8
    assert row.median <= median
    assert row.worst <= worst


def test_builds_do_not_depend_on_how_culprits_are_spread() -> None:
    for culprits in (range(0, 1000, 125), range(124, 1000, 125), range(992, 1000)):
        builds, found = builds_of(1000, frozenset(culprits))
        assert found.culprits == tuple(culprits)
        assert builds <= 80


def test_a_row_counts_only_exact_answers() -> None:
    row = measure(Case("two", 20, lambda rng: frozenset(rng.sample(range(20), 2))), 5)
    assert (row.case, row.nodes, row.seeds, row.exact) == ("two", 20, 5, 5)


def test_belief_follows_the_answers() -> None:
    """What was cleared makes culprits look rarer, what was convicted makes them look more common."""
    group = list(range(100, 140))
    belief = Belief.before(1000)
    before = belief.clean(group, False)[-1]
    calm = belief.clearing(list(range(500, 1000)))
    alarmed = belief.convicting(700).convicting(701)
    assert alarmed.clean(group, False)[-1] < before < calm.clean(group, False)[-1]
    tainted = calm.clean(group, True)
    assert tainted[-1] == pytest.approx(0.0)
    assert all(0.0 <= chance <= 1.0 for chance in tainted)


def test_a_seed_gives_the_same_builds_again() -> None:
    culprits = frozenset(random.Random(1).sample(range(300), 5))
    assert builds_of(300, culprits) == builds_of(300, culprits)
