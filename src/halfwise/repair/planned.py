"""Makes the repairs of a plan again."""

from __future__ import annotations

from collections.abc import Sequence

from halfwise.core.errors import InputError
from halfwise.model.model import Model
from halfwise.precision.plan_document import RepairRecord
from halfwise.repair.apply import repaired
from halfwise.repair.rule import Repair
from halfwise.repair.table import RULES

__all__ = ["reapplied"]


def reapplied(model: Model, repairs: Sequence[RepairRecord]) -> Model:
    """The model with a plan's repairs, in the plan's order; raises InputError where one no longer fits."""
    if not repairs:
        return model
    rules = {rule.id: rule for rule in RULES}
    planned = [(rules[entry.rule], Repair.planned(entry)) for entry in repairs]
    result, done = repaired(model, planned)
    if len(done) != len(planned):
        missing = next(repair for _, repair in planned if repair not in done)
        raise InputError(
            f"the plan's repair {missing.rule} no longer fits at node {missing.nodes[0]!r}; run fix without --plan"
        )
    return result
