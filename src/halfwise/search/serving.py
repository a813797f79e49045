"""Of a model with several outputs: which are missed, and which nodes serve them, or a choice."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import onnx_ir as ir

from halfwise.core.tolerance import EVERY_OUTPUT
from halfwise.emulation.stepper import Stepper
from halfwise.model.model import Model
from halfwise.search.judge import Measured
from halfwise.search.jumps import jumping

__all__ = ["deciding", "missed", "serving"]


def missed(measured: Measured, floats: Collection[str], most: float) -> frozenset[str]:
    """The outputs whose own error is more than `most` times the allowed one; all, where a function judges.

    `floats` are the outputs that hold real numbers.
    """
    tolerance = measured.question.tolerance
    if tolerance.uses_user_metric:
        return frozenset(measured.outputs)
    lost = set()
    for name, metrics in measured.outputs.items():
        own = replace(tolerance, bounds=tuple(b for b in tolerance.bounds if b.output in (name, EVERY_OUTPUT)))
        if not own.ratio({name: metrics}, floats) <= most:
            lost.add(name)
    return frozenset(lost)


def serving(outputs: Collection[str], nodes: frozenset[ir.Node], model: Model, stepper: Stepper) -> frozenset[ir.Node]:
    """Those of the nodes that any of the outputs depends on; with a node that has a body, all of the body."""
    return nodes & _before([value for value in model.judged_values if value.name in outputs], stepper)


def deciding(nodes: frozenset[ir.Node], model: Model, stepper: Stepper) -> frozenset[ir.Node]:
    """Those of the nodes that a choice between computed numbers depends on, the choices among them, where numbers are
    computed from what is chosen. What is an output itself is judged as it is."""
    calculated = _calculated_with(model)
    return nodes & _before([v for node in jumping(model) if node in calculated for v in node.outputs], stepper)


def _calculated_with(model: Model) -> set[ir.Node]:
    """The nodes from whose results real numbers are computed."""
    found = set[ir.Node]()
    for node in reversed(model.nodes):
        if any(each in found or _gives_floats(each) for each in node.successors()):
            found.add(node)
    return found


def _gives_floats(node: ir.Node) -> bool:
    return any(value.dtype is not None and value.dtype.is_floating_point() for value in node.outputs)


def _before(values: Sequence[ir.Value], stepper: Stepper) -> set[ir.Node]:
    found, waiting = set[ir.Node](), list(values)
    while waiting:
        node = waiting.pop().producer()
        if node is not None and node not in found:
            found |= {node, *stepper.inner(node)}
            waiting += stepper.outside(node)
    return found
