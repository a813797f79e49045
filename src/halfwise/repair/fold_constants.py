"""HW408: what depends on constants alone is computed once in FP32; what a difference cancels is not added before.

Precondition. (1) A float tensor that only constants and known shapes lead to: tables of sines, grids, anchors, scaled
or reshaped weights. (2) A difference of sums in which a term much larger than the result cancels, or constants combine:
(u + v) - (u - w), (x + 4000) - 3990.

Proof. (1) The same runtime computes the same nodes, once instead of in every run; FP16 then rounds the result and no
step on the way. (2) Addition is associative: (u + v) - (u - w) = v + w. In FP32 the shorter sum differs by the rounding
of the large term that it no longer holds, which the bound names.

What it buys. Phases, exponents and coordinates beyond 2048 keep their bits, at no cost at run time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from halfwise.model.model import Model
from halfwise.model.moving import only_moves
from halfwise.model.patterns.view import View
from halfwise.repair.constant_regions import LARGEST, Steady, computed, region_of, steady_nodes
from halfwise.repair.graph_edit import GraphEdit, node_named, view_of
from halfwise.repair.place import value_named
from halfwise.repair.recentre import Recentred, recentred, write_recentred
from halfwise.repair.rule import Ranges, Repair

__all__ = ["FOLD_CONSTANTS", "FoldConstants"]


class FoldConstants:
    """Constants folded in FP32, and sums without what they cancel."""

    id = "HW408"
    name = "fold-constants"
    bound = 1e-3
    lossy = False

    def find(self, model: Model, ranges: Ranges) -> Sequence[Repair]:
        steady = steady_nodes(model.ir)
        found = []
        for value in _ends(steady):
            region = region_of(value, steady)
            if any(not only_moves(node) and _is_float(node.outputs[0]) for node in region):
                says = f"{value.name} depends on constants alone: computed once in FP32"
                names = tuple(node.name or "" for node in region)
                found.append(Repair(self.id, names, says, {"kind": "fold", "value": value.name}))
        view, covered = View(model), set[str]()
        for node in reversed(model.nodes):
            shorter = recentred(view, node, ranges) if node.name not in covered else None
            if shorter is not None:
                covered.update(shorter.names)  # the longest sums first: they hold the shorter ones
                told = {"kind": "recentre", "gone": [value.name for value in shorter.gone]}
                found.append(Repair(self.id, (*shorter.names, node.name or ""), shorter.says, told))
        return tuple(found)

    def apply(self, model: ir.Model, repair: Repair) -> bool:
        node = node_named(model, repair.nodes[-1])
        if node is None:
            return False
        if repair.parameters["kind"] == "recentre":
            shorter: Recentred | None = recentred(view_of(model), node, Ranges())
            if shorter is None or [value.name for value in shorter.gone] != repair.parameters["gone"]:
                return False
            edit = GraphEdit(model, node, "recentred")
            edit.replace(node.outputs[0], write_recentred(edit, shorter))
            return True
        value = value_named([node], repair.parameters["value"])
        steady = steady_nodes(model)
        if value is None or value.producer() not in steady:
            return False
        array = computed(model, value, region_of(value, steady))
        if array is None:
            return False
        edit = GraphEdit(model, node, "folded")
        ir.convenience.replace_all_uses_with(value, edit.constant(array, array.dtype))
        return True


FOLD_CONSTANTS = FoldConstants()


def _is_float(value: ir.Value) -> bool:
    return value.dtype is ir.DataType.FLOAT


def _size(value: ir.Value) -> int:
    """How many elements there are at least."""
    return math.prod(dim for dim in value.shape or () if isinstance(dim, int))


def _ends(steady: Steady) -> list[ir.Value]:
    """The float tensors made of constants that something else reads, small enough to store."""
    found = []
    for node in steady:
        for value in node.outputs:
            read = any(reader not in steady for reader, _ in value.uses())
            if read and _is_float(value) and not value.is_graph_output() and _size(value) <= LARGEST:
                found.append(value)
    return found
