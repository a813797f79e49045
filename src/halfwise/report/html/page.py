"""Gathers everything that the page shows, from the result; what is shown where is the templates' affair."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from halfwise._version import __version__
from halfwise.core.english import said, say, say_all
from halfwise.core.wording import counted
from halfwise.deploy.advisories import Advisory
from halfwise.report.answer import inputs_told
from halfwise.report.axis import TICKS, ZONES
from halfwise.report.groups import kept_nodes
from halfwise.report.html.along import along
from halfwise.report.html.bars import columns
from halfwise.report.html.commands import next_steps
from halfwise.report.html.culprits import culprits
from halfwise.report.html.curve import curve
from halfwise.report.html.embed import digits
from halfwise.report.html.graph import STATES, graph_data, state_of
from halfwise.report.html.histogram import WeightHistogram
from halfwise.report.html.names import Names
from halfwise.report.html.panel import with_details
from halfwise.report.html.picture import picture_of
from halfwise.report.html.places import Places
from halfwise.report.html.repairs import repair_cards
from halfwise.report.html.rollout import rollout_picture
from halfwise.report.html.tables import audit_rows, finding_rows, kernel_rows, node_rows, tensor_rows, weight_rows
from halfwise.report.html.verdict import bound_text, error_rows, gap_rows, verdict_words
from halfwise.report.verdict import is_synthetic
from halfwise.verbs.fix.result import FixResult
from halfwise.verbs.scan import ScanResult
from halfwise.verbs.trace import Trace

__all__ = ["gather"]

CULPRITS = 12  # kinds told in full; the others stand in the table of the plan
_PACKAGES = ("onnx", "onnx-ir", "onnxruntime", "numpy", "ml_dtypes")


def gather(
    result: FixResult,
    scan: ScanResult | None,
    trace: Trace | None,
    command: str,
    when: datetime,
    by_output: Mapping[str, Mapping[str, float]],
    histogram: WeightHistogram,
) -> dict[str, Any]:
    """The template's words: facts for what stands on the page, and `data` for what the page builds by itself."""
    names = Names()
    kept, places = kept_nodes(result), Places(result)
    planned = {node.name: node for node in kept}
    states = Counter(state_of(site, planned, places.repaired) for site in result.sites.all)
    found = culprits(result, names, places)
    shares = along(result, names, places, planned, by_output)
    audit = result.deploy_files.compiled.audit if result.deploy_files.compiled is not None else None
    tensors = tensor_rows(result, names, trace)
    page = {
        "model": (model := result.model.path.name if result.model.path else "a model in memory"),
        "title": f"{model} in FP16",
        "kind": "FP16 report",
        "when": when.strftime("%Y-%m-%d %H:%M UTC"),
        "verdict": verdict_words(result),
        "inputs_told": inputs_told(result.samples),
        "steps": next_steps(result, command),
        "culprits": found[:CULPRITS],
        "untold": sum(culprit.count for culprit in found[CULPRITS:]),
        "healed": sum(culprit.count for culprit in found if culprit.rule),
        "along": shares,
        "kept": kept,
        "errors": error_rows(result, names),
        "confirmation": result.confirmation,
        "picture": picture_of(result),
        "confirmation_notes": say_all(result.confirmation.notes) if result.confirmation is not None else [],
        "gaps": gap_rows(result.confirmation, names),
        "curve": curve(result),
        "rollout": rollout_picture(result),
        "histogram": histogram,
        "columns": columns(histogram),
        "tensors": tensors,
        "zones": ZONES,
        "ticks": TICKS,
        "states": [(state, states[state.key]) for state in STATES],
        "repairs": repair_cards(result.plan.repairs, names),
        "pinned": _pinned(result),
        "notes": _notes(result),
        "synthetic_notes": [say(note) for note in result.notes if is_synthetic(note)],
        "synthetic": result.samples.origin == "synthetic",
        "audit": audit,
        "advisories": [_advisory(advisory) for advisory in result.deploy_files.advisories],
        "findings": scan.findings if scan is not None else None,
        "range_inputs": "one search input" if trace is None else counted(trace.samples, "input"),
        "result": result,
        "tolerance": bound_text(result.plan.tolerance),
        "versions": _versions(),
        "command": command,
    }
    page["data"] = {
        "graph": with_details(graph_data(result, names, places.repaired), result, histogram, names),
        "states": [[state.letter, state.key, state.title] for state in STATES],
        "zones": [[zone.key, zone.letter, zone.title, zone.start, zone.end] for zone in ZONES],
        "ticks": TICKS,
        "start": next((c.index for c in found if c.index is not None), len(result.sites.all) // 2),
        "shares": shares.rows if shares is not None else [],
        "by_output": shares.by_output if shares is not None else [],
        "given": shares.nodes if shares is not None else 0,
        "tensors": tensors,
        "nodes": node_rows(result, names),
        "weights": weight_rows(histogram, names),
        "findings": finding_rows(scan, names) if scan is not None else [],
        "audit": audit_rows(result, names),
        "kernels": kernel_rows(result, names),
        "errors": _local_errors(trace, result),
        "names": names.table,  # last: everything above has put its names there
    }
    return page


def _advisory(advisory: Advisory) -> dict[str, Any]:
    entry = advisory.entry
    return {
        "id": entry.id,
        "applies": advisory.applies.value,
        "why": said(advisory.because),
        "symptom": entry.symptom,
        "workaround": entry.workaround,
        "fixed_in": entry.fixed_in,
        "confidence": entry.confidence,
        "sources": [source for source in entry.source if source.startswith("https://")],
    }


def _pinned(result: FixResult) -> list[tuple[str, int]]:
    """Why nodes cannot narrow, and how many for each reason."""
    reasons = Counter(node.because for node in result.decision.pinned).most_common()
    return [(", ".join(say_all(because)), count) for because, count in reasons]


def _notes(result: FixResult) -> list[str]:
    notes = [say(note) for note in result.notes if not is_synthetic(note)]
    notes += [said(metrics.uncompared) for metrics in result.fixed.values() if metrics.uncompared]
    return list(dict.fromkeys(notes))


def _local_errors(trace: Trace | None, result: FixResult) -> list[list[Any]]:
    """Of each traced node, its place and its own relative error in FP16, where it makes any."""
    if trace is None:
        return []
    order = {site.name: site.index for site in result.sites.all}
    return [[order[n.name], digits(n.local_error)] for n in trace.nodes if n.local_error > 0 and n.name in order]


def _versions() -> list[tuple[str, str]]:
    found = [("halfwise", __version__), ("Python", platform.python_version())]
    for package in _PACKAGES:
        try:
            found.append((package, version(package)))
        except PackageNotFoundError:
            continue
    return [*found, ("system", f"{platform.system()} {platform.machine()}")]
