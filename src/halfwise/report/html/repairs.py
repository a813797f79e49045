"""The repairs for people: alike ones together, their algebra as it is written by hand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from halfwise.precision.plan_document import RepairRecord
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


def repair_cards(repairs: Sequence[RepairRecord], names: Names) -> list[RepairCard]:
    from halfwise.repair import RULES

    titles = {rule.id: rule.name.replace("-", " ") for rule in RULES}
    groups: dict[tuple[str, str], list[RepairRecord]] = {}
    for repair in repairs:
        groups.setdefault((repair.rule, repair.algebra), []).append(repair)
    cards = []
    for (rule, algebra), made in groups.items():
        was, becomes, where = algebra_lines(algebra)
        places = tuple(tuple(names(name) for name in repair.nodes) for repair in made)
        saved = sum(repair.saved_fp32_nodes for repair in made)
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
