"""Inputs of one session shared with helpers: the same answers, in their order, whatever the helpers do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from halfwise.core.errors import InputError
from halfwise.emulation import emulate, shared
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.ort import Answer
from halfwise.emulation.shared import Recipe, SharedSession, attach
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.verbs.fix.fix import fix
from tests.models.zoo import norm_log_head


@dataclass
class Helping:
    """Answers from a session of its own, made of what it is given; `lost` of its answers never come."""

    cores: int
    lost: set[int] = field(default_factory=set)
    asked: list[int] = field(default_factory=list)

    def saved(self, seconds: float) -> None:
        assert seconds > 0

    def idle(self) -> int:
        return self.cores

    def ask(self, recipe: Recipe, feeds: Sequence[Mapping[str, Any]]) -> Given:
        self.asked.append(len(feeds))
        if len(self.asked) in self.lost:
            return Given(None)
        return Given(list(recipe.session().answers(feeds)))


@dataclass
class Given:
    found: list[Answer] | None

    def answers(self, wait_s: float) -> Sequence[Answer] | None:
        return self.found


@pytest.fixture(autouse=True)
def alone_again(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(shared, "_WORTH_S", 0.0)
    yield
    shared._state.clear()


def same(one: Answer, other: Answer) -> bool:
    if isinstance(one, Exception) or isinstance(other, Exception):
        return repr(one) == repr(other)
    return one.keys() == other.keys() and all(one[n].tobytes() == other[n].tobytes() for n in one)


@pytest.mark.parametrize("large", [False, True])
def test_every_answer_is_the_same_to_the_bit_in_its_order(large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulate, "LARGE_BYTES", 0 if large else 1 << 40)
    case = norm_log_head()
    feeds = [dict(feed) for feed in case.inputs]
    feeds = [*feeds, {name: array[..., :0] for name, array in feeds[0].items()}, *feeds]  # one that has none
    narrow = Assignment.all_narrow(Sites(load(case.model)))
    alone = list(Emulator().session(narrow).answers(feeds))
    attach(helping := Helping(2, lost={2}))
    session = Emulator().session(narrow)
    assert isinstance(session, SharedSession)
    for share in ([1, *helping.asked], helping.asked):
        found = list(session.answers(feeds))
        assert len(found) == len(alone) and all(map(same, alone, found)), share
    assert any(isinstance(answer, InputError) for answer in alone)
    assert len(helping.asked) == 2 and sum(helping.asked) == 2 * ((len(feeds) - 1) // 3)  # nobody is asked for a while


def test_a_job_with_helpers_gives_the_same_document() -> None:
    case = norm_log_head()
    alone = fix(case.model, case.inputs, repairs=("none",)).to_json()
    attach(helping := Helping(3))
    helped = fix(case.model, case.inputs, repairs=("none",)).to_json()
    assert sum(helping.asked) > 10
    for document in (alone, helped):
        document["cost"]["seconds"] = document["cost"]["peak_rss_mb"] = 0
    assert alone == helped


def test_nobody_is_asked_for_what_is_soon_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_WORTH_S", 60.0)
    attach(helping := Helping(3))
    case = norm_log_head()
    session = Emulator().session(Assignment(Sites(load(case.model)), {}))
    answers = list(session.answers(list(case.inputs)))
    assert len(answers) == len(case.inputs) and not helping.asked
    assert np.isfinite(next(iter(session.run(dict(case.inputs[0])).values()))).all()
