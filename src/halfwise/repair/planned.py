"""Makes the repairs of a plan again."""

from __future__ import annotations

from collections.abc import Sequence

from halfwise.core.errors import InputError
from halfwise.model.model import Model
from halfwise.precision.plan_document import RepairRecord
from halfwise.repair.apply import repaired
from halfwise.repair.rule import Repair, Rule
from halfwise.repair.table import PLANNED

__all__ = ["reapplied"]


def reapplied(model: Model, repairs: Sequence[RepairRecord]) -> Model:
    """The model with a plan's repairs, in the plan's order; raises InputError where one no longer fits."""
    if not repairs:
        return model
    rules = {rule.id: rule for rule in PLANNED}
    planned = [(rules[entry.rule], Repair.planned(entry)) for entry in repairs]
    result, done = _applied(model, planned)
    if len(done) != len(planned):
        missing = next((repair for _, repair in planned if repair not in done), planned[len(done)][1])
        raise InputError(
            f"the plan's repair {missing.rule} no longer fits at node {missing.nodes[0]!r}; run fix without --plan"
        )
    return result


def _applied(model: Model, planned: Sequence[tuple[Rule, Repair]]) -> tuple[Model, tuple[Repair, ...]]:
    """As `repaired`; a rule that cannot work with what a plan holds for it names the repair: plans are edited by hand,
    and what a rule raises over parameters that are not its own can be anything."""
    try:
        return repaired(model, planned)
    except Exception as error:
        culprit = next((repair for count, (_, repair) in enumerate(planned) if not _works(model, planned[: count + 1])))
        raise InputError(
            f"the plan's repair {culprit.rule} at node {culprit.nodes[0]!r} has parameters that do not fit the rule; "
            "run fix without --plan"
        ) from error


def _works(model: Model, planned: Sequence[tuple[Rule, Repair]]) -> bool:
    try:
        repaired(model, planned)
    except Exception:
        return False
    return True
