"""States the condition of a Loop that has none and whose body hands on the one that it is given: it is always true.

TensorRT does not read such a body: its parser knows a body's condition only where the Loop has one.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from halfwise.model.bodies import bodies_of, nodes_in

__all__ = ["state_conditions"]

_NAME = "loop_condition"


def state_conditions(graph: ir.Graph) -> None:
    """Of every Loop within, in place. A body that computes its condition is left alone: whether it counts where the
    Loop has none, runtimes see differently."""
    untold = [node for node in nodes_in(graph) if _lacks_condition(node)]
    if not untold:
        return
    taken = set(graph.initializers) | {
        value.name for node in nodes_in(graph) for value in (*node.inputs, *node.outputs) if value
    }
    taken |= {value.name for node in nodes_in(graph) for body in bodies_of(node) for value in body.inputs}
    taken |= {value.name for value in graph.inputs}
    name = _NAME
    while name in taken:
        name += "_"
    stated = ir.Value(name=name, const_value=ir.tensor(np.array(True), name=name))
    graph.register_initializer(stated)
    for node in untold:
        node.replace_input_with(1, stated)


def _lacks_condition(node: ir.Node) -> bool:
    if node.op_type != "Loop" or node.domain or len(node.inputs) < 2 or node.inputs[1] is not None:
        return False
    (body,) = bodies_of(node)
    handed: ir.Value | None = body.outputs[0]
    while handed is not None and (maker := handed.producer()) is not None:
        if maker.op_type != "Identity" or maker.domain:
            return False
        handed = maker.inputs[0]
    return handed is body.inputs[1]
