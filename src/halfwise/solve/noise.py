"""The noise model: from one-node effects to the error that each rounding leaves at the model's outputs.

Rounding errors add up like independent noise, so squared errors add. An error's way to the outputs is followed
backwards with one gain per tensor, measured on the way forwards. The noise of a tensor is gone only when the node
that makes it and the node that reads it are both FP32, so each piece of noise names the set of nodes that remove it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.ops import CLOSED
from halfwise.sites import Sites
from halfwise.solve.sensitivity import Effect, Sensitivity

__all__ = ["Noise", "noise_pieces"]

Vector = NDArray[np.float64]

MOST_ORIGINS = 48  # of the noise in one tensor; beyond that they are treated as one


@dataclass(frozen=True)
class Noise:
    """A piece of noise: the squared error it leaves at the outputs (relative to their norms), and the nodes that,
    all in FP32, remove it. `fatal` noise makes an overflow or a non-finite value."""

    needs: frozenset[ir.Node]
    energy: float
    fatal: bool


def noise_pieces(sites: Sites, measured: Sensitivity) -> tuple[Noise, ...]:
    """Every piece of noise in the model when all of it is narrow."""
    return _Backward(sites, measured).run()


class _Backward:
    def __init__(self, sites: Sites, measured: Sensitivity) -> None:
        self.sites = sites
        self.measured = measured
        self.outputs = [v for v in sites.model.graph.outputs]
        self.gain: dict[ir.Value, float] = {}
        self.pieces: list[Noise] = []
        self.origins: dict[ir.Value, list[tuple[frozenset[ir.Node], float]]] = {}

    def run(self) -> tuple[Noise, ...]:
        for value in self.outputs:
            norm = self.measured.energy.get(value, 0.0)
            self.gain[value] = self.gain.get(value, 0.0) + 1.0 / (norm if norm > 0 else 1.0)
            self._read(value, frozenset(), self.measured.rounding.get(value, 0.0) * self.gain[value], value.producer())
        for node in reversed(self.sites.model.graph):
            self._node(node)
        return tuple(self.pieces)

    def _node(self, node: ir.Node) -> None:
        site = self.sites.of[node]
        closed = node.op_type in CLOSED and not node.domain
        weights = self.measured.weights.get(node)
        if weights is not None:
            inner = frozenset(n for n in self._inner(node) if self.sites.of[n].free)
            needs = inner or frozenset({node})
            self._piece(needs, self._arriving(weights), weights.breaks)
        for value, effect in self.measured.inputs.get(node, {}).items():
            arriving = self._arriving(effect)
            if effect.noise > 0:
                self.gain[value] = self.gain.get(value, 0.0) + arriving / effect.noise
            if site.free and not closed:
                own = self.measured.rounding.get(value, 0.0)
                share = min(1.0, own / effect.noise) if effect.noise > 0 else 0.0
                self._read(value, frozenset({node}), arriving * share, node, effect.breaks)

    def _arriving(self, effect: Effect) -> float:
        return sum(energy * self.gain.get(out, 0.0) for out, energy in effect.at.items())

    def _read(
        self, value: ir.Value, reader: frozenset[ir.Node], energy: float, at: ir.Node | None, breaks: bool = False
    ) -> None:
        """A tensor is read in the narrow format: its noise comes from where it was made or last computed."""
        fatal = breaks or value in self.measured.overflows
        for needs, share in self._origins_of(value):
            self._piece(needs | reader, energy * share, fatal)

    def _piece(self, needs: frozenset[ir.Node], energy: float, fatal: bool) -> None:
        if needs and (energy > 0 or fatal):
            self.pieces.append(Noise(needs, energy, fatal))

    def _origins_of(self, value: ir.Value) -> list[tuple[frozenset[ir.Node], float]]:
        """Which nodes must be FP32 for this tensor to arrive unrounded, by shares of its noise."""
        if value in self.origins:
            return self.origins[value]
        stack = [value]
        while stack:  # depth first without recursion: chains of data movement can be long
            current = stack[-1]
            if current in self.origins:
                stack.pop()
                continue
            sources = self._sources(current)
            missing = [s for s in sources if s not in self.origins]
            if missing:
                stack += missing
                continue
            self.origins[current] = self._combine(current, sources)
            stack.pop()
        return self.origins[value]

    def _sources(self, value: ir.Value) -> list[ir.Value]:
        """The tensors whose noise a closed operator hands on."""
        node = value.producer()
        if node is None or node.op_type not in CLOSED or node.domain or not self.sites.of[node].free:
            return []
        site = self.sites.of[node]
        return list(
            dict.fromkeys(
                v for slot, v in enumerate(node.inputs) if v is not None and site.inputs[slot] and not v.is_initializer()
            )
        )

    def _combine(self, value: ir.Value, sources: list[ir.Value]) -> list[tuple[frozenset[ir.Node], float]]:
        node = value.producer()
        if node is None or not self.sites.of[node].free:
            return [(frozenset(), 1.0)]
        itself = frozenset({node})
        if not sources:
            return [(itself, 1.0)]
        noise = [self.measured.rounding.get(source, 0.0) for source in sources]
        total = sum(noise)
        shares = [n / total for n in noise] if total > 0 else [1 / len(sources)] * len(sources)
        merged: dict[frozenset[ir.Node], float] = {}
        for source, share in zip(sources, shares, strict=True):
            for needs, inner in self.origins[source]:
                merged[needs | itself] = merged.get(needs | itself, 0.0) + share * inner
        if len(merged) > MOST_ORIGINS:
            return [(frozenset().union(*merged), 1.0)]
        return list(merged.items())

    def _inner(self, node: ir.Node) -> tuple[ir.Node, ...]:
        own = self.sites.of[node].index
        found = []
        for site in self.sites.all[own + 1 :]:
            if not site.nested:
                break
            found.append(site.node)
        return tuple(found)
