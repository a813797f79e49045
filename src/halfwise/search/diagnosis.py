"""What was wrong with the model as given: each node's share of plain FP16's error, and where it breaks outright."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from halfwise.core.counting import Counts
from halfwise.core.float_sum import float_sum
from halfwise.precision.sites import Sites
from halfwise.search.attempt import Attempt
from halfwise.search.noise import Noise

__all__ = ["Diagnosis", "diagnose", "diagnosis_of"]


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Of the model as given, all in FP16, as the search saw it on the worst inputs.

    `shares` is each node's part of the squared error at the outputs (all of them together, each weighed by its bound):
    what rounding its results and its weights leaves there; the parts sum to 1. `breaking` makes an infinity or a zero
    that is fatal, which is no matter of shares. `ranges` are of its FP32 tensors over one input, where it was repaired.
    """

    sites: Sites
    shares: Mapping[str, float]
    breaking: frozenset[str]
    ranges: Mapping[str, Counts] = field(default_factory=dict)


def diagnosis_of(plain: Attempt, ranges: Mapping[str, Counts]) -> Diagnosis | None:
    """What was wrong with the model as given; None where all of it may be in FP16."""
    noise = plain.solution.noise
    return diagnose(plain.search.sites, noise.pieces, ranges) if plain.solution.keep and noise is not None else None


def diagnose(sites: Sites, pieces: Sequence[Noise], ranges: Mapping[str, Counts]) -> Diagnosis:
    """Every piece of noise is laid to the node that makes it: the first, in execution order, of those it takes to
    remove it."""
    energies: dict[str, float] = {}
    breaking = set()
    for piece in pieces:
        maker = _first(sites, piece.needs)
        energies[maker] = energies.get(maker, 0.0) + piece.energy
        if piece.fatal:
            breaking.add(maker)
    total = float_sum(energies.values())
    shares = {name: energy / total for name, energy in energies.items()} if total > 0 else {}
    return Diagnosis(sites, shares, frozenset(breaking), ranges)


def _first(sites: Sites, nodes: frozenset[ir.Node]) -> str:
    return min((sites.of[node] for node in nodes), key=lambda site: site.index).name
