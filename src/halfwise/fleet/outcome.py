"""What a job came to: its state, and the numbers of its document that are worth keeping beside it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Literal

from halfwise.core.child.process import log_tail
from halfwise.core.notes import CAUTIONS
from halfwise.core.wording import counted, listed

__all__ = ["ANSWER", "LOG", "NO_FOLDER", "Outcome", "State", "ended"]

State = Literal["good", "bad", "refused", "unavailable", "failed", "died", "over time", "over memory", "interrupted"]

NO_FOLDER = 5  # exit code of a job that cannot write into its folder
ANSWER = "answer.json"
LOG = "log.txt"
_BY_CODE: dict[int, State] = {0: "good", 1: "bad", 2: "refused", 3: "unavailable", 130: "interrupted"}
_LONGEST = 1_000
_CAUTIONS = frozenset(kind.value for kind in CAUTIONS)
_TOLD = 3  # stages that are not good


@dataclass(frozen=True)
class Outcome:
    """`why` is the one line of a job without an answer, of a bad one, or of a good one with a caution."""

    state: State
    why: str
    started: float
    seconds: float
    peak_bytes: int
    document: Mapping[str, Any] | None = None
    nodes: int | None = None
    fp32_nodes: int | None = None
    fp32_share: float | None = None
    error: float | None = None
    model_runs: float | None = None
    culprits: tuple[tuple[str, int], ...] = ()
    report: str = ""  # beside the answer


def ended(folder: Path, code: int, started: float, seconds: float, peak_bytes: int) -> Outcome:
    """Of a job whose verb ended with this exit code, by what it left in its folder."""
    if code == NO_FOLDER:  # what lies there is of another run
        return Outcome("failed", f"{folder} cannot be written to", started, seconds, peak_bytes)
    state = _BY_CODE.get(code, "failed")
    document = _document(folder / ANSWER) if state in ("good", "bad") else None
    told = _last_line(folder / LOG)
    if state in ("good", "bad") and document is None:
        return Outcome("failed", "it left no answer", started, seconds, peak_bytes)
    if document is None:
        state = "failed" if "internal error" in told else state
        return Outcome(state, told or f"exit code {code}", started, seconds, peak_bytes)
    why = _caution(document) if state == "good" else _why(document)
    return Outcome(state, why, started, seconds, peak_bytes, document, **_numbers(document))


def _numbers(document: Mapping[str, Any]) -> dict[str, Any]:
    schema = str(document.get("schema", ""))
    if schema.startswith("halfwise.fix/"):
        model, cost = document["model"], document["cost"]
        report = (document.get("artifacts") or {}).get("report") or ""
        return {
            "nodes": model["nodes"],
            "fp32_nodes": len(document["fp32_nodes"]),
            "fp32_share": cost["fp32_flops_share"],
            "error": _worst(document["error"]["fixed"]),
            "model_runs": cost["model_runs"],
            "culprits": _culprits(document),
            "report": Path(report).name if report else "",
        }
    if schema.startswith("halfwise.gate/"):
        return {"nodes": document["model"]["nodes"], "error": _worst(document.get("error") or {})}
    if schema.startswith("halfwise.scan/"):
        found = Counter(finding["rule"] for finding in document.get("findings", []) if finding["severity"] != "info")
        return {"culprits": tuple(found.most_common())}
    return {}


def _culprits(document: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """What stays in FP32 and why, and the repairs taken, each with its count: nodes that are one thing count once."""
    why = {node["name"]: node.get("why") for node in document.get("nodes", ()) if node.get("format") != "fp16"}
    kept: Counter[str] = Counter()
    for thing in document.get("things", ()):
        reasons = Counter(why.pop(name) for name in thing["nodes"] if name in why)
        kept.update(f"{thing['what']}: {reason}" for reason, _ in reasons.most_common(1))
    kept.update(f"{n.get('op') or 'node'}: {n['why']}" for n in document.get("nodes", ()) if n["name"] in why)
    repaired = Counter(f"repaired by {repair['rule']}" for repair in document.get("repairs", ()))
    return tuple((kept + repaired).most_common())


def _worst(outputs: Mapping[str, Any]) -> float | None:
    """The largest relative error of all outputs; None where there is none."""
    found = [float(each["rel_l2"]) for each in outputs.values() if isinstance(each, Mapping) and "rel_l2" in each]
    worst = max(found, default=None)
    return worst if worst is None or isfinite(worst) else float("inf")


def _why(document: Mapping[str, Any]) -> str:
    for check in document.get("checks", ()):
        if check.get("status") == "fail":
            return str(check.get("message") or check.get("id"))[:_LONGEST]
    wrong = [
        f"{stage['name']} {stage['finding']}" for stage in document.get("stages", ()) if stage["finding"] != "good"
    ]
    if wrong:
        return listed(wrong, _TOLD, quote=str)
    if str(document.get("schema", "")).startswith("halfwise.audit/"):
        for key, became in (("violations", "ran otherwise than planned"), ("unproven", "cannot be verified")):
            if lost := [str(each["node"]) for each in document.get(key, ())]:
                return f"{counted(len(lost), 'node')} {became}: {listed(lost, _TOLD)}"[:_LONGEST]
    return str(document.get("status", "the answer is no"))


def _caution(document: Mapping[str, Any]) -> str:
    """Why a yes is one for these inputs alone, or for made-up ones; empty where it is more."""
    told = zip(document.get("messages", ()), document.get("notes", ()), strict=False)
    return next((str(note)[:_LONGEST] for message, note in told if message.get("kind") in _CAUTIONS), "")


def _document(path: Path) -> Mapping[str, Any] | None:
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return read if isinstance(read, dict) else None


def _last_line(path: Path) -> str:
    tail = log_tail(path, 1)
    return tail[0].removeprefix("halfwise: ")[:_LONGEST] if tail else ""
