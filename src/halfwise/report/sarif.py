"""Findings as SARIF 2.1.0, the format in which code hosts and editors take them."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from halfwise._version import __version__
from halfwise.core.finding import Finding, Severity
from halfwise.core.real_path import real_path
from halfwise.core.rules import RULES
from halfwise.report.text import safe

__all__ = ["sarif_text"]

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_KINDS = {"node": "function", "tensor": "variable", "initializer": "variable", "layer": "function"}
_ROOT = "%SRCROOT%"  # code hosts know it as the root of the repository
_SHOWN = 160  # columns of a name within a message; the logical location has it whole
_LONGEST = 12_000  # characters of a name in a logical location
_MOST = 5_000  # results; code hosts show no more of one run


def sarif_text(findings: Sequence[Finding], artifact: Path) -> str:
    """One run over `artifact`, the file that all findings are about; the most severe first where there are too many."""
    ranked = sorted(findings, key=lambda finding: list(_LEVELS).index(finding.severity))
    kept = ranked[:_MOST]
    rules = list(dict.fromkeys(finding.rule for finding in kept))
    first = {rule: next(finding for finding in kept if finding.rule == rule) for rule in rules}
    driver = {
        "name": "halfwise",
        "semanticVersion": __version__,
        "rules": [_rule(first[rule]) for rule in rules],
    }
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {_ROOT: {"description": {"text": "the folder that the command ran in"}}},
        "artifacts": [{"location": _artifact(artifact)}],
        "results": _results(kept, rules, artifact),
    }
    if len(ranked) > len(kept):
        run["properties"] = {"omittedResults": len(ranked) - len(kept)}
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, allow_nan=False) + "\n"


def _rule(finding: Finding) -> dict[str, Any]:
    title, severity = _known(finding)
    title = f"{title[:1].upper()}{title[1:]}"
    return {
        "id": finding.rule,
        "name": "".join(word.capitalize() for word in re.findall(r"\w+", title))[:255],
        "shortDescription": {"text": _message(title)},
        "fullDescription": {"text": _message(f"{title}. What to do: {finding.remedy}.")},
        "help": {"text": _message(f"{title}.\n\nWhat to do: {finding.remedy}.")},
        "defaultConfiguration": {"level": _LEVELS[severity]},
    }


def _known(finding: Finding) -> tuple[str, Severity]:
    """What the rule is called, and how severe it is; those of build logs state a severity in each finding."""
    from halfwise.compiler.buildlog import catalogue

    if rule := RULES.get(finding.rule):
        return rule.title, rule.severity
    told = catalogue.RULES.get(finding.rule)
    return told.description if told else finding.message, finding.severity


def _results(findings: Sequence[Finding], rules: Sequence[str], artifact: Path) -> list[dict[str, Any]]:
    """Code hosts tell alerts apart by `primaryLocationLineHash`; by the line, all of a model's would be one."""
    results = []
    seen: Counter[str] = Counter()
    for finding in findings:
        identity = "\0".join((finding.rule, finding.where.kind, finding.where.name))
        digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        seen[digest] += 1
        result = _result(finding, rules.index(finding.rule), artifact)
        results.append({**result, "partialFingerprints": {"primaryLocationLineHash": f"{digest}:{seen[digest]}"}})
    return results


def _result(finding: Finding, rule_index: int, artifact: Path) -> dict[str, Any]:
    where = finding.where
    place = f"{safe(where.name, _SHOWN)}: " if where.name and where.kind not in ("model", "build", "option") else ""
    location: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": {**_artifact(artifact), "index": 0},
            "region": {"startLine": _line(finding)},
        }
    }
    if where.name and where.kind not in ("model", "build"):
        name = where.name[:_LONGEST]
        location["logicalLocations"] = [
            {"name": name, "fullyQualifiedName": name, "kind": _KINDS.get(where.kind, where.kind)}
        ]
    return {
        "ruleId": finding.rule,
        "ruleIndex": rule_index,
        "level": _LEVELS[finding.severity],
        "message": {"text": _message(f"{place}{finding.message}. What to do: {finding.remedy}.")},
        "locations": [location],
        "properties": {"numbers": _plain(finding.numbers)},
    }


def _line(finding: Finding) -> int:
    """A model is no text: everything in it is on line 1, where code hosts want some line. A log has lines."""
    line = finding.numbers.get("line")
    return line if isinstance(line, int) and line > 0 else 1


def _artifact(path: Path) -> dict[str, Any]:
    """As seen from the folder of the command, since code hosts look it up in the repository; else where it is."""
    try:
        relative = os.path.relpath(path)
    except ValueError:  # another drive of Windows
        relative = os.pardir
    if Path(relative).parts[:1] == (os.pardir,):
        return {"uri": real_path(path).as_uri()}
    return {"uri": quote(Path(relative).as_posix(), errors="surrogateescape"), "uriBaseId": _ROOT}


def _message(text: str) -> str:
    """Plain text; in a message braces are placeholders unless doubled, and brackets before a parenthesis a link."""
    shown = "\n".join(safe(line) for line in text.split("\n")).replace("{", "{{").replace("}", "}}")
    return re.sub(r"[\[\]]", r"\\\g<0>", shown) if "](" in shown else shown


def _plain(value: Any) -> Any:
    """JSON has no infinity; a long list is cut, since the document of --json has it."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in _first(value, 20)]
    return value


def _first(values: Iterable[Any], most: int) -> list[Any]:
    return [value for _, value in zip(range(most), values, strict=False)]
