"""The rules there are, in the order in which they are tried, and what of them a target can read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from halfwise.core.errors import InputError
from halfwise.core.targets import Target
from halfwise.precision.plan_document import RepairRecord
from halfwise.repair.activation_steps import ACTIVATION_STEPS
from halfwise.repair.attention_scale import AttentionScale
from halfwise.repair.attention_steps import ATTENTION_STEPS
from halfwise.repair.clip_weights import CLIP_WEIGHTS
from halfwise.repair.epsilons import EPSILONS
from halfwise.repair.finite_constants import FINITE_CONSTANTS
from halfwise.repair.fold_constants import FOLD_CONSTANTS
from halfwise.repair.masks import Masks
from halfwise.repair.norm_operator import NormOperator
from halfwise.repair.reductions import REDUCTIONS
from halfwise.repair.rescale import RESCALE
from halfwise.repair.rule import Rule
from halfwise.repair.scale_logs import SCALE_LOGS
from halfwise.repair.stable_logs import STABLE_LOGS, StableLogs
from halfwise.repair.wrap_phase import WRAP_PHASE

__all__ = ["PLANNED", "RULES", "check_repairs", "rules_for", "rules_named"]

RULES: tuple[Rule, ...] = (
    FOLD_CONSTANTS,
    NormOperator(),
    STABLE_LOGS,
    Masks(),
    AttentionScale(),
    EPSILONS,
    REDUCTIONS,
    FINITE_CONSTANTS,
    ACTIVATION_STEPS,
    RESCALE,
    SCALE_LOGS,
    WRAP_PHASE,
    CLIP_WEIGHTS,
)
PLANNED: tuple[Rule, ...] = (*RULES, ATTENTION_STEPS)  # that a plan may hold


def rules_named(words: Iterable[str]) -> tuple[Rule, ...]:
    """The rules for `--repairs none|all|RULE,...`; `all` leaves out the lossy ones, which have to be named."""
    chosen: dict[str, Rule] = {}
    for word in (part.strip() for text in words for part in text.split(",")):
        if word == "none":
            continue
        matching = [rule for rule in RULES if word in (rule.id, rule.name) or (word == "all" and not rule.lossy)]
        if not matching and word != "all":
            known = ", ".join(rule.name for rule in RULES)
            raise InputError(f"--repairs: there is no rule {word!r}; there are {known}, and all, none")
        chosen.update((rule.id, rule) for rule in matching)
    return tuple(chosen.values())


def rules_for(target: Target, rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The rules as they suit a target: no operator that its parser does not know or overflows in, no norm taken out of
    one kernel."""
    unread, fused, unstable = frozenset(target.unread_operators), target.runtime.fuses_norms, target.runtime.unstable

    def suited(rule: Rule) -> Rule:
        if isinstance(rule, NormOperator):
            return replace(rule, unread=unread, fused=fused)
        return replace(rule, unstable=unstable) if isinstance(rule, StableLogs) else rule

    return tuple(suited(rule) for rule in rules)


def check_repairs(repairs: Sequence[RepairRecord], target: Target) -> None:
    """Refuse a plan's repairs that this version does not know, or whose result the target does not read."""
    known, unread = {rule.id for rule in PLANNED}, target.unread_operators
    for entry in repairs:
        if entry.rule not in known:
            told = f"the plan holds the repair {entry.rule!r}, which this version does not know"
            raise InputError(f"{told}: use the version that wrote it, or run `halfwise fix` again")
        written = entry.parameters.get("way")
        if isinstance(written, str) and written in unread:
            raise InputError(
                f"the plan's repair {entry.rule} writes a {written}, which {target.title} does not read "
                f"(from {unread[written]} on); run fix without --plan"
            )
