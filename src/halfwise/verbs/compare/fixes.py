"""Two results of `fix`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halfwise.verbs.compare.audits import broken
from halfwise.verbs.compare.parts import kept_nodes, measured, repairs, settings
from halfwise.verbs.compare.result import Change, Section

__all__ = ["sections"]

Document = Mapping[str, Any]

_EFFORT = ("model_runs", "seconds")  # of the search, not of the model
_METRICS = ("rel_l2", "max_abs", "nonfinite")


def sections(a: Document, b: Document) -> list[Section]:
    cost = measured("", a["cost"], b["cost"], ("casts", "fp32_flops_share"))
    cost += measured("", a["cost"], b["cost"], _EFFORT, neutral=_EFFORT, least=0.2)
    known = ({str(each["id"]) for each in document.get("advisories", ())} for document in (a, b))
    old, new = known
    defects = [Change(each, "", None, "applies", "worse") for each in sorted(new - old)]
    defects += [Change(each, "", "applies", None, "better") for each in sorted(old - new)]
    return [
        Section.of("verdict", "Verdict", _verdict(a, b)),
        Section.of("error", "Error of the fixed model, by output", _errors(a["error"]["fixed"], b["error"]["fixed"])),
        Section.of("profiles", "Error over allowed error, by profile", _profiles(a, b)),
        Section.of("rollout", "Error over allowed error, along steps", _steps(a, b)),
        Section.of("fp16", "Error of plain FP16, by output", _errors(a["error"]["fp16"], b["error"]["fp16"])),
        Section.of("confirmed", "Error measured on a real backend, by output", _errors(_confirmed(a), _confirmed(b))),
        kept_nodes(a["nodes"], b["nodes"]),
        repairs(a["repairs"], b["repairs"]),
        broken(a.get("violations", ()), b.get("violations", ())),
        Section.of("cost", "Cost", cost),
        Section.of("advisories", "Known defects", defects),
        Section.of("asked", "What was asked", _asked(a, b)),
    ]


def _confirmed(document: Document) -> Document:
    outputs: Document = (document.get("confirmation") or {}).get("outputs", {})
    return outputs


def _verdict(a: Document, b: Document) -> list[Change]:
    if a["status"] == b["status"]:
        return []
    return [Change("", "status", a["status"], b["status"], "better" if b["status"] == "met" else "worse")]


def _errors(a: Document, b: Document) -> list[Change]:
    found = []
    for name in dict.fromkeys((*a, *b)):
        if name in a and name in b:
            found += measured(name, a[name], b[name], _METRICS)
        else:
            was, now = ("output" if name in side else None for side in (a, b))
            found.append(Change(name, "", was, now, "changed"))
    return found


def _profiles(a: Document, b: Document) -> list[Change]:
    """Under those that both results name."""
    was, now = a.get("profiles", {}), b.get("profiles", {})
    return [change for name in was if name in now for change in measured(name, {"": was[name]}, {"": now[name]}, ("",))]


def _steps(a: Document, b: Document) -> list[Change]:
    """The first and the last step, and the growth, where both were judged over as many."""
    was, now = a.get("rollout"), b.get("rollout")
    if not was or not now or was["steps"] != now["steps"]:
        return []
    ends = [{"first": each["fixed"][0], "last": each["fixed"][-1], "growth": each["growth"]} for each in (was, now)]
    return measured("", ends[0], ends[1], ("first", "last", "growth"))


def _asked(a: Document, b: Document) -> list[Change]:
    found = settings(a["model"], b["model"], ("path", "sha256", "nodes"))
    return found + settings(a, b, ("target", "profile", "tolerance", "inputs"))
