"""The edits that scale what hangs together, as a plan tells them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from halfwise.repair.scale_atoms import Ints, Weights
from halfwise.repair.scale_blocks import LARGE
from halfwise.repair.scale_walk import LOUD

__all__ = ["Edits", "told_once", "written"]


@dataclass(frozen=True, eq=False)
class Edits:
    """The edits for one group, as a plan tells them."""

    graph: ir.Graph
    constants: list[dict[str, Any]] = field(default_factory=list)
    after: list[dict[str, Any]] = field(default_factory=list)
    fronts: list[dict[str, Any]] = field(default_factory=list)
    entries: list[dict[str, Any]] = field(default_factory=list)
    behind: list[dict[str, Any]] = field(default_factory=list)
    gates: list[dict[str, Any]] = field(default_factory=list)

    def scale(self, weights: Weights, powers: Ints, shape: tuple[int, ...]) -> None:
        node = weights.node
        if not powers.any():
            return
        if node is None:
            maker = None if weights.read is None else weights.read.producer()
            if maker is not None:
                self.behind.append({"node": maker.name or "", "power": int(powers[0])})
            elif weights.read is not None:
                reader = next(reader.name for reader, _ in weights.read.uses() if reader.graph is self.graph)
                narrow = not weights.row_shape and float(weights.peak.max()) <= LOUD  # may read it in FP16
                power = {"power": int(powers[0])} if narrow else written(powers, shape)
                self.entries.append({"input": weights.read.name or "", "node": reader, **power})
        elif weights.front and weights.columns is not None and weights.read is not None:
            read = weights.read.name or ""
            self.gates.append({"node": node.name or "", "input": read, **told_once(powers, shape)})
        elif weights.front:
            self.fronts.append({"node": node.name or "", "power": int(powers[0])})
        elif not shape and _picks_of_shared(node, weights.slot):
            self.behind.append({"node": node.name or "", "power": int(powers[0])})
        else:
            self.constants.append({"node": node.name or "", "slot": weights.slot, **written(powers, shape)})

    def scale_back(self, node: ir.Node, powers: Ints, shape: tuple[int, ...]) -> None:
        self.after.append({"node": node.name or "", **written(powers, shape)})


def told_once(powers: Ints, shape: tuple[int, ...]) -> dict[str, Any]:
    """As a single power where all are the same."""
    found = written(powers, shape)
    return found if found["shape"] else {"power": found["powers"]}


def written(powers: Ints, shape: tuple[int, ...]) -> dict[str, Any]:
    powers = powers.reshape(-1)
    if (powers == powers[0]).all():
        return {"shape": [], "powers": int(powers[0])}
    return {"shape": list(shape), "powers": [int(power) for power in powers]}


def _picks_of_shared(node: ir.Node, slot: int) -> bool:
    """Whether it picks entries of a large table that others read, too, or turns it: scaled, it would be there twice."""
    table = node.inputs[slot]
    reads = node.op_type in ("Gather", "Transpose") and slot == 0
    return reads and table is not None and len(table.uses()) > 1 and _is_large(table)


def _is_large(value: ir.Value) -> bool:
    return value.const_value is not None and value.const_value.size > LARGE
