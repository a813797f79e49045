"""What a job that ended with "no" says of itself, in one line."""

from __future__ import annotations

import json
from pathlib import Path

from halfwise.fleet.outcome import ANSWER, ended


def test_of_many_stages_that_are_not_good_a_few_are_named(tmp_path: Path) -> None:
    stages = [{"name": name, "finding": "wrong" if name != "neck" else "good"} for name in ("neck", *"abcde")]
    (tmp_path / ANSWER).write_text(json.dumps({"schema": "halfwise.stages/1", "stages": stages}), encoding="utf-8")
    told = ended(tmp_path, 1, started=0.0, seconds=1.0, peak_bytes=1)
    assert (told.state, told.why.split(", ")) == ("bad", ["a wrong", "b wrong", "c wrong and 2 more"])


def test_an_audit_that_says_no_names_the_nodes(tmp_path: Path) -> None:
    nodes = [{"node": name} for name in "abcd"]
    for violations, unproven, why in (
        (nodes, nodes, "4 nodes ran otherwise than planned: 'a', 'b', 'c' and 1 more"),
        ([], nodes[:1], "1 node cannot be verified: 'a'"),
    ):
        document = {"schema": "halfwise.audit/1", "violations": violations, "unproven": unproven}
        (tmp_path / ANSWER).write_text(json.dumps(document), encoding="utf-8")
        assert ended(tmp_path, 1, started=0.0, seconds=1.0, peak_bytes=1).why == why
