"""`bisect` with the user's own judge."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from halfwise.core.notes import NoteKind
from halfwise.verbs.bisect.run import bisect
from tests.models.build import f32, model, node, value
from tests.support.bisections import INPUTS, JUDGE, chain, named


@pytest.fixture
def judge(tmp_path: Path) -> Callable[[str], str]:
    def write(code: str) -> str:
        path = tmp_path / "judge.py"
        path.write_text(JUDGE.replace("CODE", code))
        return f"{sys.executable} {path}"

    return write


@pytest.mark.parametrize("backend", [None, "ort-cpu"])
def test_the_users_program_judges(judge: Callable[[str], str], backend: str | None) -> None:
    result = bisect(chain(8), backend, INPUTS, check=judge("1"))
    assert named(result) == ("n_t7",)
    assert result.tolerance is None
    assert {step.ratio for step in result.steps} == {None}


def test_the_users_program_may_not_know(judge: Callable[[str], str]) -> None:
    result = bisect(chain(8), None, INPUTS, check=judge("125"))
    assert (result.ending, named(result), result.unbuildable) == ("found", (), ("n_t7",))


def test_where_fp32_itself_loses_every_value_the_places_are_compared() -> None:
    nodes = [node("Mul", "x x", "a", name="square"), node("Exp", "a", "y", name="beyond")]
    result = bisect(model(nodes, [value("x")], [value("y")]), "ort-cpu", [{"x": f32(200, 210, 300, 400)}])
    told = [note for note in result.notes if note.kind is NoteKind.NOTHING_FINITE_FROM]
    assert [(note.subject, note.values["op"]) for note in told] == [("beyond", "Exp")]
    assert named(result) == ()
