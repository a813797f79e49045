"""What a set of FP32 nodes that was not run would leave: the noise model, corrected by the sets that were.

How far the model is off, as the logarithm of the squared error, is interpolated between the sets that were run
(kriging): the less the nodes count in which two sets differ, the more the one tells of the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.float_sum import float_sum
from halfwise.search.noise_model import NoiseModel

__all__ = ["Run", "Surrogate"]

Array = NDArray[np.float64]
Nodes = frozenset[ir.Node]

FLOOR = 0.1  # of the mean piece of noise: what any piece may be besides
SHARED = 0.3  # standard deviation of the logarithm of the squared error: of what the model is off by for all sets,
OWN = 0.6  # and for one set alone
REACH = 2.0  # nodes of usual weight, over which the latter fades
DOUBT = 2.0  # standard deviation of a piece's energy, of itself
RELATIVE = 0.08  # of a squared error, by which sums of energies miss it
LEAST_PART = 0.04  # of the least squared error that was run: none is told less
SINGULAR = 1e-9  # of the variance of a run, so that runs that differ in nothing can be told apart
NOISE = 0.4  # the same of one sample's ratio against that of all
LEAST_WEIGHT = 0.02  # of a node, however little noise it removes


@dataclass(frozen=True)
class Run:
    """A set that was run: the mean of its squared ratios over so many samples."""

    keep: Nodes
    squared: float
    samples: int


class Surrogate:
    """Predicts sets of some `nodes`, told as rows of a table: a column for each node, and whether it is in FP32.

    What is in FP32 of the other nodes is as in `base`.
    """

    def __init__(self, noise: NoiseModel, nodes: Sequence[ir.Node], base: Nodes, runs: Sequence[Run]) -> None:
        self.nodes = tuple(nodes)
        place = {node: index for index, node in enumerate(self.nodes)}
        pieces = [piece for piece in noise.pieces if not piece.fatal]
        floor = FLOOR * float_sum(piece.energy for piece in pieces) / max(len(pieces), 1)
        usable = [run for run in runs if 0.0 < run.squared < np.inf]
        squared = np.array([run.squared for run in usable])
        stays = np.array(
            [[not piece.needs <= run.keep for piece in pieces] for run in (*usable, Run(base, 0.0, 1))], float
        )
        energies = _corrected(np.array([piece.energy + floor for piece in pieces]), stays[:-1], usable)
        least = LEAST_PART * float(squared.min(initial=np.inf)) if usable else 0.0
        self._weight = _weights([piece.needs for piece in pieces], energies, base)
        self._own = np.array([self._weight.get(node, LEAST_WEIGHT) for node in self.nodes])
        local = [index for index, piece in enumerate(pieces) if piece.needs <= place.keys()]
        self._needs = np.zeros((len(local), len(self.nodes)), np.float32)
        for row, index in enumerate(local):
            self._needs[row, [place[node] for node in pieces[index].needs]] = 1.0
        self._energies, self._least = energies[local], least
        self._rest = float(stays[-1] @ energies) - float(self._active(self.rows([base]))[0])
        self._seen = self.rows([run.keep for run in usable])
        outside = [run.keep.symmetric_difference(base) - place.keys() for run in usable]
        self._apart = np.array([self._weigh(others) for others in outside])
        apart = np.array([[self._weigh(one ^ other) for other in outside] for one in outside])
        between = _fading(self._apart_inside(self._seen) + apart.reshape(len(usable), len(usable)))
        noises = np.diag([NOISE**2 / run.samples for run in usable])
        self._inverse = np.linalg.inv(between + noises + 1e-9 * np.eye(len(usable)))
        self._off = self._inverse @ np.log(squared / np.maximum(stays[:-1] @ energies, least))

    def rows(self, sets: Sequence[Nodes]) -> Array:
        return np.array([[node in keep for node in self.nodes] for keep in sets], float).reshape(-1, len(self.nodes))

    def predict(self, rows: Array) -> tuple[Array, Array]:
        """The squared error of each set, and the standard deviation of its logarithm."""
        near = self._kernel(rows)
        prior = np.maximum(self._active(rows) + self._rest, self._least)
        unknown = SHARED**2 + OWN**2 - ((near @ self._inverse) * near).sum(1)
        found: Array = prior * np.exp(near @ self._off)
        return found, np.sqrt(np.maximum(unknown, 0.0))

    def _kernel(self, rows: Array) -> Array:
        return _fading(self._apart_inside(rows) + self._apart)

    def _apart_inside(self, rows: Array) -> Array:
        """The weight of the nodes in which each differs from each set that was run."""
        found: Array = (rows @ self._own)[:, None] + self._seen @ self._own - 2 * (rows * self._own) @ self._seen.T
        return np.maximum(found, 0.0)

    def _active(self, rows: Array) -> Array:
        """The noise that stays, of the pieces that these nodes alone can remove."""
        open_ = (1.0 - rows).astype(np.float32) @ self._needs.T > 0
        found: Array = open_ @ self._energies
        return found

    def _weigh(self, nodes: Nodes) -> float:
        return math.fsum(self._weight.get(node, LEAST_WEIGHT) for node in nodes)


def _fading(apart: Array) -> Array:
    found: Array = SHARED**2 + OWN**2 * np.exp(-apart / REACH)
    return found


def _corrected(energies: Array, stays: Array, runs: Sequence[Run]) -> Array:
    """Each piece's energy as the runs tell it: the likeliest, where each may be off by `DOUBT` times itself.

    A run in which none of it stays, as behind a choice that flips, tells nothing of it.
    """
    telling = stays @ energies > 0.0
    if not telling.any():
        return energies
    stays, runs = stays[telling], list(compress(runs, telling))
    squared = np.array([run.squared for run in runs])
    energies = energies * np.median(squared / (stays @ energies))
    spread = (DOUBT * energies) ** 2
    told = stays / squared[:, None]  # errors of very different sizes: each counts in units of its own
    between = (told * spread) @ told.T
    noises = np.array([NOISE**2 / run.samples + RELATIVE**2 for run in runs]) + SINGULAR * np.diag(between)
    found: Array = energies + spread * (told.T @ np.linalg.solve(between + np.diag(noises), 1.0 - told @ energies))
    return found


def _weights(needs: Sequence[Nodes], energies: Array, base: Nodes) -> Mapping[ir.Node, float]:
    """How much noise each node has a part in, of what is usual in `base`; at most 1."""
    total: dict[ir.Node, float] = {}
    for nodes, energy in zip(needs, np.maximum(energies, 0.0), strict=True):
        for node in nodes:
            total[node] = total.get(node, 0.0) + float(energy)
    usual = float(np.median([total.get(node, 0.0) for node in base])) if base else 0.0
    return {node: min(max(each / max(usual, 1e-300), LEAST_WEIGHT), 1.0) for node, each in total.items()}
