"""What was measured of a model's roundings: the squared error that each leaves at the outputs."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from halfwise.search.body_noise import Part

__all__ = ["Sensitivity"]

Energies = dict[ir.Value, float]


@dataclass
class Sensitivity:
    """Squared errors at the outputs, relative to each output's norm, summed over outputs and over the samples walked.

    `reads` holds what rounding a tensor does through one reader alone. An output's own rounding is in `handed_out`.
    """

    reads: dict[ir.Node, Energies] = field(default_factory=dict)
    handed_out: Energies = field(default_factory=dict)
    weights: dict[ir.Node, float] = field(default_factory=dict)  # all weights that a node reads, rounded
    breaks: set[tuple[ir.Node, ir.Value]] = field(default_factory=set)  # rounded there, a finite result is not
    overflows: set[ir.Value] = field(default_factory=set)  # rounding makes a finite value infinite, and it matters
    size: dict[ir.Value, int] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)  # of nodes that hold others: what is in them
    samples: int = 0

    def copy(self) -> Sensitivity:
        return Sensitivity(
            {node: dict(effects) for node, effects in self.reads.items()},
            dict(self.handed_out),
            dict(self.weights),
            set(self.breaks),
            set(self.overflows),
            dict(self.size),
            list(self.parts),
            self.samples,
        )

    def back_to(self, earlier: Sensitivity) -> None:
        """What was added since then is taken out."""
        vars(self).update(vars(earlier))

    def take(self, other: Sensitivity, share: float) -> None:
        """What part of the probes told of one sample: of the energies its share, all that breaks; no sample more."""
        for node, effects in other.reads.items():
            for value, energy in effects.items():
                self.add_read(node, value, share * energy)
        for value, energy in other.handed_out.items():
            self.add_handed_out(value, share * energy)
        for node, energy in other.weights.items():
            self.add_weights(node, share * energy)
        self.breaks.update(other.breaks)
        self.parts.extend((nodes, share * energy, broken) for nodes, energy, broken in other.parts)

    def add_read(self, node: ir.Node, value: ir.Value, energy: float) -> None:
        effects = self.reads.setdefault(node, {})
        effects[value] = effects.get(value, 0.0) + energy

    def add_handed_out(self, value: ir.Value, energy: float) -> None:
        self.handed_out[value] = self.handed_out.get(value, 0.0) + energy

    def add_weights(self, node: ir.Node, energy: float) -> None:
        self.weights[node] = self.weights.get(node, 0.0) + energy
