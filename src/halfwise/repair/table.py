"""The rules there are, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Iterable

from halfwise.errors import InputError
from halfwise.repair.attention_scale import AttentionScale
from halfwise.repair.clip_weights import CLIP_WEIGHTS
from halfwise.repair.epsilons import EPSILONS
from halfwise.repair.finite_constants import FINITE_CONSTANTS
from halfwise.repair.fold_constants import FOLD_CONSTANTS
from halfwise.repair.masks import Masks
from halfwise.repair.norm_operator import NormOperator
from halfwise.repair.reductions import REDUCTIONS
from halfwise.repair.rescale import RESCALE
from halfwise.repair.rule import Rule
from halfwise.repair.stable_logs import STABLE_LOGS

__all__ = ["RULES", "rules_named"]

RULES: tuple[Rule, ...] = (
    FOLD_CONSTANTS,
    NormOperator(),
    STABLE_LOGS,
    Masks(),
    AttentionScale(),
    EPSILONS,
    REDUCTIONS,
    FINITE_CONSTANTS,
    RESCALE,
    CLIP_WEIGHTS,
)


def rules_named(words: Iterable[str]) -> tuple[Rule, ...]:
    """The rules for `--repairs none|all|RULE,...`; `all` leaves out the lossy ones, which have to be named."""
    chosen: dict[str, Rule] = {}
    for word in words:
        if word == "none":
            continue
        matching = [rule for rule in RULES if word in (rule.id, rule.name) or (word == "all" and not rule.lossy)]
        if not matching and word != "all":
            known = ", ".join(rule.name for rule in RULES)
            raise InputError(f"--repairs: there is no rule {word!r}; there are {known}, and all, none")
        chosen.update((rule.id, rule) for rule in matching)
    return tuple(chosen.values())
