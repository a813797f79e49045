"""Decisions about all nodes of a model."""

from __future__ import annotations

import random
import sys

from halfwise.core.formats import Format
from halfwise.core.tolerance import Bound, Tolerance
from halfwise.emulation.emulate import Emulator
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.judge import Judge, Question
from tests.models.zoo import detr_head


def test_decisions_with_the_same_formats_have_one_code() -> None:
    sites, rng = Sites(load(detr_head().model)), random.Random(1)
    nodes = [site.node for site in sites.all]
    seen: dict[frozenset[tuple[object, Format]], bytes] = {}
    for _ in range(200):
        chosen = {node: rng.choice([Format.FP16, Format.BF16]) for node in rng.sample(nodes, rng.choice([1, 2]))}
        code = Assignment(sites, chosen).code
        assert seen.setdefault(frozenset(chosen.items()), code) == code
        wide = dict.fromkeys(nodes, Format.FP32)
        assert Assignment(sites, {**wide, **chosen}).code == code
    assert len(set(seen.values())) == len(seen) < 200


def test_what_is_remembered_of_a_decision_takes_little_for_each_node() -> None:
    """An LSTM unrolled over 60 steps has 9,000 nodes: a set of their formats took a megabyte for each decision."""
    zoo = detr_head()
    sites = Sites(load(zoo.model))
    judge = Judge(sites, Emulator(), Question(Tolerance((Bound.of("*", "rel_l2", zoo.tolerance),))), zoo.inputs[:1])
    judge.measure(Assignment.all_narrow(sites))
    (key,) = judge.memory.errors
    assert isinstance(key, tuple)
    assert all(sys.getsizeof(each) < 64 + len(sites.all) for each in key if each is not judge.emulator)
