"""Documents that were written before still read: every one comes back with all that it held, in its order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from halfwise.cli.schemas import document_type
from halfwise.core.document import read
from halfwise.precision.plan import read_plan
from halfwise.verbs.compare import compare
from tests.support.documents import shared
from tests.support.paths import DATA

WRITTEN = sorted((DATA / "documents").glob("*.json"))
GONE = {"pessimistic"}  # keys that nothing writes any more


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.stem)
def test_what_was_written_before_comes_back_whole(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    held = {key: value for key, value in document.items() if key not in GONE}
    again = shared(read(document, document_type(path.stem), path.name).to_json(), held)
    assert json.dumps(again) == json.dumps(held)


@pytest.mark.parametrize("kind", ["audit", "fix", "plan", "scan", "trace"])
def test_two_of_before_compare(kind: str) -> None:
    path = DATA / "documents" / f"{kind}.json"
    assert compare(path, path).sections == ()


def test_a_plan_of_before_reads() -> None:
    plan = read_plan(DATA / "documents" / "plan.json")
    assert (plan.target, len(plan.nodes), plan.nodes[0].why.value) == ("trt-8.6@t4", 2, "overflow")
    assert plan.nodes[0].reason and plan.nodes[0].numbers
