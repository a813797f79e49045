"""How a gradient passes backwards through one node: one rule per operator, in NumPy.

Gradients carry a leading axis of probes: an array of shape (probes, *tensor). A rule gives the gradient of one input
slot; `has_rule` says for which operators there is one, and a rule raises `NoRule` for variants that it does not know.
A rule that throws has met such a variant, too: what the node answers is then measured instead.
"""

from __future__ import annotations

from contextlib import suppress

from halfwise.search.vjp.elementwise import ELEMENTWISE, unbroadcast
from halfwise.search.vjp.linear import LINEAR
from halfwise.search.vjp.local import Array, Local, NoRule, Rule
from halfwise.search.vjp.movement import MOVEMENT
from halfwise.search.vjp.normalisations import NORMALISATIONS
from halfwise.search.vjp.own_operators import has_steps, through_steps
from halfwise.search.vjp.packed import packed_product
from halfwise.search.vjp.recurrent import RECURRENT
from halfwise.search.vjp.reductions import REDUCTIONS
from halfwise.search.vjp.resize import RESIZE
from halfwise.search.vjp.windows import WINDOWS

__all__ = ["ELEMENTWISE", "Array", "Local", "NoRule", "pull_back", "unbroadcast"]

_RULES: dict[str, Rule] = {
    **ELEMENTWISE,
    **LINEAR,
    **MOVEMENT,
    **NORMALISATIONS,
    **RECURRENT,
    **REDUCTIONS,
    **RESIZE,
    **WINDOWS,
}


def pull_back(local: Local, slot: int) -> Array | None:
    """The gradient of one input from those of the outputs; None where the input hands on no small change."""
    rule = None if local.node.domain else _RULES.get(local.node.op_type)
    if rule is not None:
        try:
            return rule(local, slot)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise NoRule from error
    if local.node.op_type == "MatMulNBits":
        with suppress(NoRule):
            return packed_product(local, slot)
    if not has_steps(local.node):
        raise NoRule
    if not local.shared:
        through_steps(local, pull_back)
    if slot not in local.shared:
        raise NoRule
    return local.shared[slot]
