"""Exact repairs: rewrites that leave the FP32 answer as it is and let a node run in FP16."""

from halfwise.repair.apply import found_by, repaired
from halfwise.repair.planned import reapplied
from halfwise.repair.rule import Ranges, Repair, Rule
from halfwise.repair.table import PLANNED, RULES, check_repairs, rules_for, rules_named

__all__ = [
    "PLANNED",
    "RULES",
    "Ranges",
    "Repair",
    "Rule",
    "check_repairs",
    "found_by",
    "reapplied",
    "repaired",
    "rules_for",
    "rules_named",
]
