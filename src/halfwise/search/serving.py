"""Of a model with several outputs: which are missed, and which of the FP32 nodes serve them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import onnx_ir as ir

from halfwise.core.tolerance import EVERY_OUTPUT
from halfwise.emulation.stepper import Stepper
from halfwise.model.model import Model
from halfwise.search.judge import Measured

__all__ = ["missed", "serving"]


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
    found: set[ir.Node] = set()
    waiting = [value for value in model.judged_values if value.name in outputs]
    while waiting:
        node = waiting.pop().producer()
        if node is not None and node not in found:
            found |= {node, *stepper.inner(node)}
            waiting += stepper.outside(node)
    return nodes & found
