"""A tolerance that is kept on the inputs given alone reads so wherever it is shown."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import halfwise
from halfwise import fix, gate
from halfwise.core.summary import Rank
from halfwise.fleet.exports import junit_text, markdown_text
from halfwise.fleet.jobs import Job, Need
from halfwise.fleet.outcome import ANSWER, LOG, ended
from halfwise.fleet.run import FleetRun
from halfwise.fleet.store import Store
from halfwise.fleet.write import page_text
from halfwise.pytest_plugin import halfwise_keeps
from halfwise.report.fix import show_fix
from halfwise.report.gate import show_gate
from halfwise.report.html.fix_report import with_report
from halfwise.report.junit import junit_xml
from halfwise.report.markdown import fix_markdown, gate_markdown
from halfwise.report.terminal import Terminal
from halfwise.verbs.fix.result import FixResult
from halfwise.verbs.gate import Gate
from tests.models.build import model, node, value, weight

FEEDS = [{"x": np.random.default_rng(seed).standard_normal(64).astype(np.float32)} for seed in range(4)]
NEAR, FAR = "y:rel_l2<=0.0006", "y:rel_l2<=0.02"  # plain FP16 is off by 0.00047
HERE = "on these inputs"


@dataclass(frozen=True)
class Shown:
    """One answer, as every medium has it."""

    tolerance: str
    model: Path
    samples: Path
    fixed: FixResult
    gated: Gate
    fleet: FleetRun


@pytest.fixture(scope="module", params=[NEAR, FAR], ids=["kept here", "carried"])
def shown(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    folder = tmp_path_factory.mktemp("standing")
    nodes = [node("Mul", "x c", "h"), node("Mul", "h d", "y")]
    weights = [weight("c", np.float32(1.1)), weight("d", np.float32(0.7))]
    path, samples = folder / "m.onnx", folder / "samples"
    onnx.save(model(nodes, [value("x", shape=(64,))], [value("y", shape=(64,))], weights), path)
    samples.mkdir()
    for index, feed in enumerate(FEEDS):
        np.savez(samples / f"{index}.npz", **feed)
    fixed = with_report(fix(path, samples, out=folder / "out", tolerance=request.param, force="op:*"))
    return Shown(
        request.param, path, samples, fixed, gate(fixed.plan, path, samples), fleet_of(fixed, folder / "fleet")
    )


def fleet_of(fixed: FixResult, folder: Path) -> FleetRun:
    """A fleet whose only job gave this answer."""
    (folder / "job").mkdir(parents=True)
    (folder / "job" / ANSWER).write_text(json.dumps(fixed.to_json()), encoding="utf-8")
    (folder / "job" / LOG).write_text("", encoding="utf-8")
    outcome = ended(folder / "job", 0, 0.0, 1.0, 10**6)
    with Store(folder, write=True) as store:
        run = store.begin("1.0", "")
        job = Job("m", "", fixed.model.path or Path(), "fix", "onnx", (), (), (), "", None, None, Need(1, 0))
        made = store.add(run, job, "key", outcome, "1.0", "m/fix", "here")
        store.end(run, "ended")
    return FleetRun(folder, run, (made,), 0, ())


@pytest.fixture
def rank(shown: Shown) -> Rank:
    return "caution" if shown.tolerance == NEAR else "met"


def test_the_verdict_is_the_same_to_programs_and_the_promise_tells(shown: Shown, rank: Rank) -> None:
    for document in (shown.fixed.to_json(), shown.gated.to_json()):
        assert document["status"] in ("met", "holds")
        assert document["promise"]["carried"] is (rank == "met")
    assert shown.gated.to_json()["promise"] == shown.fixed.to_json()["promise"]
    assert shown.fixed.standing.rank == shown.gated.rank == shown.fleet.summary().rank == rank
    assert shown.fleet.good and shown.fleet.to_json()["status"] == "good"


def test_words_are_of_one_kind_in_every_medium(shown: Shown, rank: Rank) -> None:
    assert shown.fixed.report is not None
    page = shown.fixed.report.read_text(encoding="utf-8")
    (headline,) = (line for line in page.splitlines() if 'id="headline"' in line)
    texts = {
        "page": headline,
        "notebook": shown.fixed.summary().headline,
        "markdown": fix_markdown(shown.fixed).splitlines()[0],
        "gate": shown.gated.summary().headline,
        "gate's markdown": gate_markdown(shown.gated).splitlines()[0],
    }
    assert {medium: HERE in text for medium, text in texts.items()} == dict.fromkeys(texts, rank == "caution")


def test_marks_and_colours_are_of_one_kind_in_every_medium(shown: Shown, rank: Rank) -> None:
    assert shown.fixed.report is not None
    wary = rank == "caution"
    page = shown.fixed.report.read_text(encoding="utf-8")
    assert f'class="verdict {"wary" if wary else "met"}"' in page
    assert f'class="verdict {"wary" if wary else "met"}"' in page_text(shown.fleet, shown.fleet.folder)
    for notebook in (shown.fixed, shown.gated, shown.fleet):
        assert ("⚠" if wary else "✓") in notebook._repr_html_()
    for text in (fix_markdown(shown.fixed), gate_markdown(shown.gated), markdown_text(shown.fleet)):
        assert text.startswith("## ⚠️" if wary else "## ✅") and ("⚠️" in text) is wary
    for xml in (junit_xml(shown.gated), junit_text(shown.fleet)):
        assert ("caution: " in xml) is wary and 'failures="0"' in xml
    assert shown.fleet.results[0].wary is wary


def test_the_screen_says_it_in_colour(
    shown: Shown, rank: Rank, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    for show, result in ((show_fix, shown.fixed), (show_gate, shown.gated)):
        terminal = Terminal()
        show(terminal, result)  # type: ignore[operator]
        terminal.flush()
        head = capsys.readouterr().out.splitlines()[0]
        assert (HERE in head) is (rank == "caution")
        assert head.startswith("\x1b[1;33m" if rank == "caution" else "\x1b[1;32m")


def test_a_conversion_and_a_test_warn(shown: Shown, rank: Rank) -> None:
    keeps: Any = halfwise_keeps.__wrapped__()  # type: ignore[attr-defined]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert keeps(shown.model, shown.fixed.plan, shown.samples).holds
        halfwise.convert(
            shown.model, inputs=FEEDS, tolerance=shown.tolerance, nodes_to_include=[".*"], keep_io_types=True
        )
    told = [type(each.message) for each in caught if issubclass(each.category, UserWarning)]
    assert told == ([UserWarning, halfwise.ConversionWarning] if rank == "caution" else [])


def test_how_many_inputs_would_carry_it_is_told(shown: Shown, rank: Rank) -> None:
    promise = shown.fixed.promise
    assert promise is not None
    if rank == "caution":
        assert promise.wanted > len(FEEDS) and f"about {promise.wanted} inputs" in shown.fixed.summary().headline
        assert f"About {promise.wanted} inputs" in shown.fleet.results[0].why
    else:
        assert promise.wanted == 0 and shown.fleet.results[0].why == ""
