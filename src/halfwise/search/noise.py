"""The noise model: which nodes, all in FP32, remove which part of the error at the outputs.

Roundings of different tensors are independent, so their squared errors add; so do, nearly, what one rounding leaves
through different readers. It is gone for a reader only when the node that makes the tensor and the node that reads it
are both FP32. Operators that only hand values on pass the rounding to their own readers, and have to be FP32, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from halfwise.core.float_sum import float_sum
from halfwise.model.bodies import bodies_of
from halfwise.model.ops import CLOSED
from halfwise.precision.sites import Sites
from halfwise.search.effects import Sensitivity

__all__ = ["Noise", "noise_pieces"]

Nodes = frozenset[ir.Node]

MOST_ORIGINS = 48  # of the noise in one tensor; beyond that they are treated as one


@dataclass(frozen=True)
class Noise:
    """A piece of noise: the squared error it leaves at the outputs (relative to their norms), and the nodes that,
    all in FP32, remove it. `fatal` noise makes an overflow or a non-finite value."""

    needs: Nodes
    energy: float
    fatal: bool


def noise_pieces(sites: Sites, measured: Sensitivity) -> tuple[Noise, ...]:
    """Every piece of noise in the model when all of it is narrow; energies are means over the samples."""
    return _Sharing(sites, measured).run()


class _Sharing:
    def __init__(self, sites: Sites, measured: Sensitivity) -> None:
        self.sites = sites
        self.measured = measured
        self.pieces: list[Noise] = []
        self.origins: dict[ir.Value, dict[Nodes, float]] = {}  # shares of a tensor's noise by the nodes that remove it

    def run(self) -> tuple[Noise, ...]:
        graph = self.sites.model.graph
        for value in graph.inputs:
            self.origins[value] = {frozenset(): 1.0}
        for node in graph:
            self._node(node)
        for nodes, energy, breaks in self.measured.parts:
            self._piece(frozenset(nodes), energy, breaks)
        for value in dict.fromkeys(graph.outputs):
            if value in self.origins:
                self._read(value, None, self.measured.handed_out.get(value, 0.0))
        return tuple(self.pieces)

    def _node(self, node: ir.Node) -> None:
        branches = list(bodies_of(node)) if node.op_type == "If" and not node.domain else []
        for inner in (each for branch in branches for each in branch):
            self._node(inner)
        self._weights(node)
        self._reads(node)
        for value in node.outputs if branches else ():
            effects, place = self.measured.reads.get(node, {}), value.index() or 0
            made = [branch.outputs[place] for branch in branches]
            sources = {each: effects.get(each, 0.0) for each in made if each in self.origins}
            if sources:
                self.origins[value] = self._handed_on(node, sources)

    def _weights(self, node: ir.Node) -> None:
        """What a node adds by itself: its rounded weights."""
        own = (v for v in (*node.inputs, *node.outputs) if v is not None and (v.is_initializer() or v in node.outputs))
        fatal = any((node, value) in self.measured.breaks for value in own)
        self._piece(frozenset({node}), self.measured.weights.get(node, 0.0), fatal)

    def _reads(self, node: ir.Node) -> None:
        site = self.sites.of[node]
        hands_on = site.free and node.op_type in CLOSED and not node.domain
        effects = self.measured.reads.get(node, {})
        sources: dict[ir.Value, float] = {}
        for value in dict.fromkeys(v for v in node.inputs if v in self.origins):
            assert value is not None
            narrows = site.free and any(site.inputs[s] for s, v in enumerate(node.inputs) if v is value)
            if hands_on and narrows:
                sources[value] = effects.get(value, 0.0)
            else:
                self._read(value, node if narrows else None, effects.get(value, 0.0))
        made = self._handed_on(node, sources) if sources else {frozenset({node} if site.free else ()): 1.0}
        self.origins.update(dict.fromkeys(node.outputs, made))

    def _handed_on(self, node: ir.Node, sources: dict[ir.Value, float]) -> dict[Nodes, float]:
        """The origins of what is handed on: those of each source, by what its rounding leaves."""
        whole = float_sum(sources.values())
        merged: dict[Nodes, float] = {}
        for value, energy in sources.items():
            part = energy / whole if whole > 0 else 1 / len(sources)
            for needs, share in self.origins[value].items():
                merged[needs | {node}] = merged.get(needs | {node}, 0.0) + part * share
        return merged if len(merged) <= MOST_ORIGINS else {frozenset().union(*merged): 1.0}

    def _read(self, value: ir.Value, reader: ir.Node | None, energy: float) -> None:
        fatal = value in self.measured.overflows or (reader is not None and (reader, value) in self.measured.breaks)
        for needs, share in self.origins[value].items():
            self._piece(needs if reader is None else needs | {reader}, energy * share, fatal)

    def _piece(self, needs: Nodes, energy: float, fatal: bool) -> None:
        if needs and (energy > 0 or fatal):
            self.pieces.append(Noise(needs, energy / max(self.measured.samples, 1), fatal))
