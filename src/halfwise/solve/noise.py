"""The noise model: which nodes, all in FP32, remove which part of the error at the outputs.

Roundings of different tensors are independent, so their squared errors add. The rounding of a tensor reaches the
outputs through all its readers together; what they leave is shared out by what each leaves alone. It is gone only when
the node that makes the tensor and the node that reads it are both FP32; operators that only hand values on pass the
rounding to their own readers, and have to be FP32, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from halfwise.ops import CLOSED
from halfwise.sites import Sites
from halfwise.solve.effects import Sensitivity

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
        self.arriving: dict[ir.Value, dict[Nodes, float]] = {}  # a tensor's noise by the nodes that keep it out
        self.readers: dict[ir.Value, float] = dict(measured.handed_out)
        for effects in measured.reads.values():
            for value, energy in effects.items():
                self.readers[value] = self.readers.get(value, 0.0) + energy

    def run(self) -> tuple[Noise, ...]:
        graph = self.sites.model.graph
        for value in graph.inputs:
            self.arriving[value] = {frozenset(): self.measured.total.get(value, 0.0)}
        for node in graph:
            self._node(node)
        for value in dict.fromkeys(graph.outputs):
            self._read(value, None, self.measured.handed_out.get(value, 0.0))
        return tuple(self.pieces)

    def _node(self, node: ir.Node) -> None:
        site = self.sites.of[node]
        passes = site.free and node.op_type in CLOSED and not node.domain
        inner = frozenset(n for n in self._inner(node) if self.sites.of[n].free)
        fatal = any((node, value) in self.measured.breaks for value in node.outputs) or any(
            (node, v) in self.measured.breaks for v in node.inputs if v is not None and v.is_initializer()
        )
        self._piece(inner or frozenset({node}), self.measured.weights.get(node, 0.0), fatal)
        effects = self.measured.reads.get(node, {})
        handed: dict[Nodes, float] = {}
        for slot, value in enumerate(node.inputs):
            if value is None or value not in self.arriving or value in node.inputs[:slot]:
                continue
            narrows = site.free and any(site.inputs[s] for s, v in enumerate(node.inputs) if v is value)
            if passes and narrows:
                for needs, energy in self._shares(value, effects.get(value, 0.0)):
                    key = needs | {node}
                    handed[key] = handed.get(key, 0.0) + energy
            else:
                self._read(value, node if narrows else None, effects.get(value, 0.0))
        self._outputs(node, handed if passes else None)

    def _outputs(self, node: ir.Node, handed: dict[Nodes, float] | None) -> None:
        itself = frozenset({node}) if self.sites.of[node].free else frozenset()
        totals = {value: self.measured.total.get(value, 0.0) for value in node.outputs}
        whole = sum(totals.values())
        for value, total in totals.items():
            if not handed:
                self.arriving[value] = {itself: total}
                continue
            part = total / whole if whole > 0 else 1 / len(totals)
            if len(handed) > MOST_ORIGINS:
                handed = {frozenset().union(*handed): sum(handed.values())}
            self.arriving[value] = {needs: energy * part for needs, energy in handed.items()}

    def _shares(self, value: ir.Value, through: float) -> list[tuple[Nodes, float]]:
        """The part of a tensor's noise that goes through one of its readers."""
        whole = self.readers.get(value, 0.0)
        share = through / whole if whole > 0 else 0.0
        return [(needs, energy * share) for needs, energy in self.arriving[value].items()]

    def _read(self, value: ir.Value, reader: ir.Node | None, through: float) -> None:
        if value not in self.arriving:
            return
        fatal = value in self.measured.overflows or (reader is not None and (reader, value) in self.measured.breaks)
        for needs, energy in self._shares(value, through):
            self._piece(needs | {reader} if reader is not None else needs, energy, fatal)

    def _piece(self, needs: Nodes, energy: float, fatal: bool) -> None:
        if needs and (energy > 0 or fatal):
            self.pieces.append(Noise(needs, energy / max(self.measured.samples, 1), fatal))

    def _inner(self, node: ir.Node) -> tuple[ir.Node, ...]:
        found = []
        index = self.sites.of[node].index + 1
        while index < len(self.sites.all) and self.sites.all[index].nested:
            found.append(self.sites.all[index].node)
            index += 1
        return tuple(found)
