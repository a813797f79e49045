"""The repairs for people: alike ones together, their algebra as it is written by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from halfwise.report.html.names import Names

__all__ = ["RepairCard", "algebra_lines", "repair_cards"]

_RAISED = str.maketrans("0123456789-+kn", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ᵏⁿ")
_PLAIN = re.compile(r"[A-Za-z0-9_ .,:;()|*/+\-=^<>]*")


@dataclass(frozen=True)
class RepairCard:
    """One rewrite wherever it was made. `becomes` is empty where the algebra is no equation."""

    rule: str
    name: str
    was: str
    becomes: str
    where: str  # the algebra's part that names nodes
    saved: int
    places: tuple[tuple[int, ...], ...]


def repair_cards(repairs: Sequence[Mapping[str, Any]], names: Names) -> list[RepairCard]:
    from halfwise.repair import RULES

    titles = {rule.id: rule.name.replace("-", " ") for rule in RULES}
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for repair in repairs:
        groups.setdefault((str(repair.get("rule", "")), str(repair.get("algebra", ""))), []).append(repair)
    cards = []
    for (rule, algebra), made in groups.items():
        was, becomes, where = algebra_lines(algebra)
        places = tuple(tuple(names(str(name)) for name in repair.get("nodes", ())) for repair in made)
        saved = sum(_count(repair.get("saved_fp32_nodes")) for repair in made)
        cards.append(RepairCard(rule, titles.get(rule, ""), was, becomes, where, saved, places))
    return cards


def algebra_lines(algebra: str) -> tuple[str, str, str]:
    """What stood there, what stands there now, and which nodes that is said of. Names of nodes are left as they are."""
    formula, _, where = algebra.partition(": ")
    if not _PLAIN.fullmatch(formula):
        return algebra, "", ""
    was, equals, becomes = formula.partition(" = ")
    return _written(was), _written(becomes) if equals else "", where


def _written(formula: str) -> str:
    formula = re.sub(r"\^(-?\d+|[kn]|\(-?[kn0-9]+\))", lambda m: m[1].strip("()").translate(_RAISED), formula)
    formula = formula.replace("sqrt(", "√(").replace(" * ", " · ")
    return re.sub(r"(?<=[\s(])-(?=[\s\w(])", "−", formula)


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
