"""Exact repairs: rewrites that leave the FP32 answer as it is and let a node run in FP16."""

from halfwise.repair.apply import repaired
from halfwise.repair.rule import Ranges, Repair, Rule
from halfwise.repair.table import RULES, rules_named

__all__ = ["RULES", "Ranges", "Repair", "Rule", "repaired", "rules_named"]
