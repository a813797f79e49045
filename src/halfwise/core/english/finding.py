"""Makes a finding: the rule's severity and remedy, the message as data, and the sentence for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halfwise.core.english import say
from halfwise.core.finding import Finding, Severity, Where
from halfwise.core.notes import Note
from halfwise.core.rules import RULES

__all__ = ["finding"]


def finding(
    rule: str, where: Where, note: Note, numbers: Mapping[str, Any], severity: Severity | None = None
) -> Finding:
    """A finding of a rule of the table; its note is said in the language of messages, and stays in it as data."""
    found = RULES[rule]
    return Finding(rule, severity or found.severity, where, numbers, say(note), found.remedy, note)
