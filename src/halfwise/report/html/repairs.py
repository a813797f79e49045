"""The repairs for people: alike ones together, their algebra as it is written by hand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from halfwise.precision.plan_document import RepairRecord
from halfwise.report.html.names import Names
from halfwise.report.repairs import alike

__all__ = ["RepairCard", "repair_cards", "written"]

_RAISED = str.maketrans("0123456789-+kn", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ᵏⁿ")


@dataclass(frozen=True)
class RepairCard:
    """One rewrite wherever it was made. `algebra` is for where the two sides are not known."""

    rule: str
    name: str
    algebra: str
    was: str
    becomes: str
    saved: int
    places: tuple[tuple[int, ...], ...]


def repair_cards(repairs: Sequence[RepairRecord], names: Names) -> list[RepairCard]:
    from halfwise.repair import PLANNED

    titles = {rule.id: rule.name.replace("-", " ") for rule in PLANNED}
    cards = []
    for made in alike(repairs):
        rule, algebra = made[0].rule, made[0].algebra
        was, becomes = written(made[0].was or ""), written(made[0].becomes or "")
        places = tuple(tuple(names(name) for name in repair.nodes) for repair in made)
        saved = sum(repair.saved_fp32_nodes for repair in made)
        cards.append(RepairCard(rule, titles.get(rule, ""), algebra, was, becomes, saved, places))
    return cards


def written(formula: str) -> str:
    """With the signs that a person writes: raised powers, a root, a minus."""
    formula = re.sub(r"\^(-?\d+|[kn]|\(-?[kn0-9]+\))", lambda m: m[1].strip("()").translate(_RAISED), formula)
    formula = formula.replace("sqrt(", "√(").replace(" * ", " · ")
    return re.sub(r"(?<=[\s(])-(?=[\s\w(])", "−", formula)
