"""L2 normalisation: x / |x|, with the guard that keeps it from dividing by zero."""

from __future__ import annotations

from collections.abc import Iterator

from halfwise.model.patterns.pattern import Pattern
from halfwise.model.patterns.roots import Guarded, Quotient, Root, quotients, roots
from halfwise.model.patterns.statistics import Reduced, sum_square_of
from halfwise.model.patterns.view import View

__all__ = ["find_l2norms"]


def find_l2norms(view: View) -> Iterator[Pattern]:
    """x / sqrt(sum(x^2) + epsilon), x / max(|x|, epsilon), x / (|x| + epsilon), x / |x|.

    Details: `input`, `output`, `axes`, `epsilon`, and `guard`: where the epsilon works, on the "square", the "length",
    or "none"; `whole`: the length comes from ReduceL2, its squares are no tensor of their own.
    """
    for root in roots(view):
        total = sum_square_of(view, root.inside.value)
        if total is not None:
            yield from _divided(view, root, total)
    for node in view.of("ReduceL2"):
        if node.inputs[0] is not None:
            length = Root(Guarded(node.inputs[0], 0.0, ()), node.outputs[0], (), False)
            yield from _divided(view, length, Reduced(node.inputs[0], view.axes(node), (node,), node))


def _divided(view: View, root: Root, total: Reduced) -> Iterator[Pattern]:
    found: dict[str, tuple[Root, Quotient]] = {}
    for behind, quotient in quotients(view, root):
        if view.alike(quotient.numerator, total.base):
            found[quotient.output.name or ""] = (behind, quotient)
    for behind, quotient in found.values():
        details = {
            "input": total.base.name,
            "output": quotient.output.name,
            "axes": total.axes,
            "epsilon": behind.epsilon,
            "whole": total.nodes[0].op_type == "ReduceL2",
            "guard": "square" if behind.inside.epsilon else "length" if behind.outside else "none",
        }
        nodes = (*total.nodes, *behind.nodes, *quotient.nodes)
        yield view.pattern("l2norm", total.square or total.nodes[0], nodes, details)
