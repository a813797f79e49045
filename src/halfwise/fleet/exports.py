"""A run for CI systems: JUnit XML, SARIF and Markdown of all its jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from halfwise.core.document import read
from halfwise.core.english.finding import finding
from halfwise.core.finding import Finding, Where
from halfwise.core.notes import Note, NoteKind
from halfwise.core.wording import and_more, counted, number
from halfwise.fleet.run import FleetRun
from halfwise.fleet.show import culprits_of, title, told, what_changed
from halfwise.fleet.store import Result, Store
from halfwise.report import sarif
from halfwise.report.junit import xml_text
from halfwise.report.markdown import code, prose

__all__ = ["junit_text", "markdown_text", "sarif_text"]

_ROWS = 30


def junit_text(run: FleetRun) -> str:
    """A suite for each model, a case for each job; no answer is an error, a bad one a failure."""
    root = ET.Element("testsuites", {"name": "halfwise fleet", **_counts(run.results)})
    models: dict[str, list[Result]] = {}
    for result in run.results:
        models.setdefault(result.model, []).append(result)
    for model, results in models.items():
        suite = ET.SubElement(root, "testsuite", {"name": xml_text(model), **_counts(results)})
        for result in results:
            name = {"classname": xml_text(f"halfwise.fleet.{model}"), "name": xml_text(title(result))}
            case = ET.SubElement(suite, "testcase", {**name, "time": f"{result.seconds:.3f}"})
            if not result.good:
                kind = "failure" if result.state == "bad" else "error"
                bad = ET.SubElement(case, kind, {"message": xml_text(told(result)), "type": result.state})
                bad.text = xml_text(result.why or result.state)
            elif result.wary:
                ET.SubElement(case, "system-out").text = xml_text(f"caution: {result.why}")
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _counts(results: Sequence[Result]) -> dict[str, str]:
    bad = sum(result.state == "bad" for result in results)
    wrong = sum(not result.good for result in results) - bad
    return {"tests": str(len(results)), "failures": str(bad), "errors": str(wrong), "skipped": "0"}


def sarif_text(run: FleetRun) -> str:
    """One run of SARIF for each model's file: the findings of its scan and of its gate, and jobs that are not good."""
    runs: list[Any] = []
    with Store(run.folder, write=False) as store:
        paths = dict.fromkeys(result.path for result in run.results)
        for path in paths:
            found = [f for result in run.results if result.path == path for f in _findings(result, store)]
            runs += json.loads(sarif.sarif_text(found, Path(path)))["runs"]
    whole = json.loads(sarif.sarif_text((), run.folder)) | {"runs": runs}
    return json.dumps(whole, indent=2, allow_nan=False) + "\n"


def _findings(result: Result, store: Store) -> Iterator[Finding]:
    document = store.document(result.id) or {}
    if result.action in ("scan", "gate"):
        yield from (read(each, Finding, title(result)) for each in document.get("findings", ()))
    if not result.good:
        note = Note.of(NoteKind.JOB_NOT_GOOD, job=title(result), told=told(result))
        yield finding("HW905", Where("model", result.path), note, {})


def markdown_text(run: FleetRun) -> str:
    """What got worse and better, what is not good, and the culprits that many models share."""
    bad = [result for result in run.results if not result.good]
    wary = [result for result in run.results if result.wary]
    mark = "❌" if bad else "⚠️" if wary else "✅"
    lines = [f"## {mark} halfwise fleet: {run.told}", ""]
    for direction in ("worse", "better"):
        found = [change for change in run.changes if change.direction == direction]
        if found:
            lines += [f"**{direction.capitalize()} than in the run before**", ""]
            lines += [f"- {code(title(each.now))}: {prose(what_changed(each))}" for each in found[:_ROWS]]
            lines += [f"- ...{and_more(len(found), _ROWS)}"] * (len(found) > _ROWS) + [""]
    told_of = [*bad, *wary]
    if told_of:
        lines += ["| job | state | why |", "|---|---|---|"]
        lines += [f"| {code(title(r))} | {r.state} | {prose(r.why[:300])} |" for r in told_of[:_ROWS]]
        lines += [f"| ...{and_more(len(told_of), _ROWS)} | | |"] * (len(told_of) > _ROWS) + [""]
    shared = culprits_of([result for result in run.results if result.action == "fix"])
    if shared:
        lines += ["| in FP32 or repaired | times | models |", "|---|---:|---:|"]
        lines += [f"| {prose(what)} | {count:,} | {models:,} |" for what, count, models in shared[:_ROWS]] + [""]
    fixed = [result for result in run.results if result.fp32_share is not None]
    if fixed:
        mean = sum(result.fp32_share or 0.0 for result in fixed) / len(fixed)
        lines += [
            f"Mean share of the arithmetic in FP32: {number(100 * mean)}% over {counted(len(fixed), 'fix', 'fixes')}."
        ]
    return "\n".join(lines).rstrip() + "\n"
