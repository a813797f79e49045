"""HW414: an Attention operator that the target's compiler does not build is written in single operators.

Precondition. Its compiler does not build the model with the operator, and does with its steps. The steps are those of
the operator's definition, for the inputs and attributes that are there.

Proof. The operator is defined as these steps: scaled operands, scores, mask, softmax, values. Only rounding differs.

What it buys. An engine at all: a fused kernel exists for some shapes and types only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import onnx_ir as ir

from halfwise.model.model import Model
from halfwise.model.normal_form import normalise
from halfwise.repair.lower import Steps, steps_known
from halfwise.repair.rule import Ranges, Repair

__all__ = ["ATTENTION_STEPS", "AttentionSteps", "steps_of"]


class AttentionSteps:
    """All nodes in one repair, after which the model is in normal form. No search tries it: a compiler asks for it."""

    id = "HW414"
    name = "attention-steps"
    bound = 1e-3
    lossy = False

    def find(self, model: Model, ranges: Ranges) -> Sequence[Repair]:
        names = [node.name or "" for node in model.graph if _has_steps(node, model.opset())]
        return (self.at(names),) if names else ()

    def at(self, names: Collection[str]) -> Repair:
        return Repair(self.id, tuple(names), "Attention = softmax(scale Q K^T + mask) V, in single operators")

    def apply(self, model: ir.Model, repair: Repair) -> bool:
        opset, names = model.opset_imports.get("", 1), set(repair.nodes)
        nodes = [node for node in model.graph if node.name in names and _has_steps(node, opset)]
        if len(nodes) != len(names):
            return False
        steps = Steps(model)
        for node in nodes:
            steps.write(node)
        normalise(model)  # as other repairs of the same plan found it
        return True


ATTENTION_STEPS = AttentionSteps()


def steps_of(model: Model, names: Sequence[str]) -> dict[str, str]:
    """In a model where these nodes are written out: each step, and the node that it is of."""
    made = ((node.name or "").rpartition("/") for node in model.nodes)
    wanted = set(names)
    return {f"{of}/{step}": of for of, _, step in made if of in wanted}


def _has_steps(node: ir.Node, opset: int) -> bool:
    return node.op_type == "Attention" and not node.domain and steps_known(node, opset)
