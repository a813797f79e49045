"""What a set of FP32 nodes that was not run would leave: the noise model, corrected by the sets that were.

How far the model is off, as the logarithm of the squared error, is interpolated between the sets that were run
(kriging): the less the nodes count in which two sets differ, the more the one tells of the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

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
import os
CROSS = float(os.environ.get('CROSS','0.5'))
MAKER = int(os.environ.get('MAKER','0'))
LINEAR = float(os.environ.get('LINEAR','0.25'))
DOUBT = float(os.environ.get('DOUBT','2'))
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
        floor = FLOOR * sum(piece.energy for piece in pieces) / max(len(pieces), 1)
        usable = [run for run in runs if 0.0 < run.squared < np.inf]
        squared = np.array([run.squared for run in usable])
        needs = [piece.needs for piece in pieces]
        self._pairs = _pairs(needs)
        self._needs = np.zeros((len(needs), len(self.nodes)), np.float32)
        for row, each in enumerate(needs):
            self._needs[row, [place[node] for node in each if node in place]] = 1.0
        self._blocked = np.array([not each - place.keys() <= base for each in needs], bool)
        stays = self._with_pairs(np.array([[not each <= run.keep for each in needs] for run in usable], float).reshape(-1, len(needs)))
        energies = np.array([piece.energy + floor for piece in pieces])
        if usable:
            energies = energies * np.median(squared / np.maximum(stays[:, : len(needs)] @ energies, 1e-300))
        spread = DOUBT * energies
        first, second = self._pairs
        spread = np.concatenate([spread, CROSS * 2 * np.sqrt(energies[first] * energies[second])])
        prior = np.concatenate([energies, np.zeros(len(first))])
        self._told = stays / squared[:, None]
        self._variance = spread**2
        between = (self._told * self._variance) @ self._told.T
        noises = np.array([NOISE**2 / run.samples + RELATIVE**2 for run in usable]) + SINGULAR * np.diag(between)
        self._solve = np.linalg.inv(between + np.diag(noises)) if usable else np.zeros((0, 0))
        self._energies = prior + self._variance * (self._told.T @ (self._solve @ (1.0 - self._told @ prior)))
        self._least = least = LEAST_PART * float(squared.min(initial=np.inf)) if usable else 0.0
        self._weight = _weights(needs, self._energies[: len(needs)], base)
        self._own = np.array([self._weight.get(node, LEAST_WEIGHT) for node in self.nodes])
        self._seen = self.rows([run.keep for run in usable])
        outside = [run.keep.symmetric_difference(base) - place.keys() for run in usable]
        self._apart = np.array([self._weigh(others) for others in outside])
        apart = np.array([[self._weigh(one ^ other) for other in outside] for one in outside])
        between = _fading(self._apart_inside(self._seen) + apart.reshape(len(usable), len(usable)))
        noises = np.diag([NOISE**2 / run.samples for run in usable])
        self._inverse = np.linalg.inv(between + noises + 1e-9 * np.eye(len(usable)))
        self._off = self._inverse @ np.log(squared / np.maximum(stays @ self._energies, least))
        self._scale = float(np.sqrt(np.mean(self._off**2 / np.diag(self._inverse)))) if len(usable) else 1.0

    def _with_pairs(self, stays: Array) -> Array:
        first, second = self._pairs
        return np.concatenate([stays, stays[:, first] * stays[:, second]], axis=1)

    def rows(self, sets: Sequence[Nodes]) -> Array:
        return np.array([[node in keep for node in self.nodes] for keep in sets], float).reshape(-1, len(self.nodes))

    def predict(self, rows: Array) -> tuple[Array, Array]:
        """The squared error of each set, and the standard deviation of its logarithm."""
        near = self._kernel(rows)
        stays = self._with_pairs(self._open(rows))
        prior = np.maximum(stays @ self._energies, self._least)
        told = (stays * self._variance) @ self._told.T
        varies = np.maximum((stays**2) @ self._variance - ((told @ self._solve) * told).sum(1), 0.0)
        unknown = SHARED**2 + OWN**2 - ((near @ self._inverse) * near).sum(1)
        found: Array = prior * np.exp(near @ self._off)
        return found, np.sqrt(np.maximum(unknown, 0.0) * self._scale**2 + LINEAR * varies / prior**2)

    def _open(self, rows: Array) -> Array:
        found: Array = self._blocked | ((1.0 - rows).astype(np.float32) @ self._needs.T > 0)
        return found.astype(float)

    def _kernel(self, rows: Array) -> Array:
        return _fading(self._apart_inside(rows) + self._apart)

    def _apart_inside(self, rows: Array) -> Array:
        """The weight of the nodes in which each differs from each set that was run."""
        found: Array = (rows @ self._own)[:, None] + self._seen @ self._own - 2 * (rows * self._own) @ self._seen.T
        return np.maximum(found, 0.0)

    def _weigh(self, nodes: Nodes) -> float:
        return sum(self._weight.get(node, LEAST_WEIGHT) for node in nodes)


def _fading(apart: Array) -> Array:
    found: Array = SHARED**2 + OWN**2 * np.exp(-apart / REACH)
    return found


def _pairs(needs: Sequence[Nodes]) -> tuple[list[int], list[int]]:
    """Pieces that may add up in phase or cancel: of one tensor's rounding, for two readers."""
    first, second = [], []
    touch = {}
    for index, each in enumerate(needs):
        for node in each:
            touch.setdefault(node, []).append(index)
    near = set()
    nodes = set().union(*needs) if needs else set()
    for node in nodes:
        for value in node.inputs:
            if value is None or value.is_initializer():
                continue
            mates = [user for user, _ in value.uses() if user in nodes]
            maker = value.producer()
            for mate in mates:
                if mate is not node:
                    near.add(frozenset((node, mate)))
            if MAKER and maker in nodes:
                near.add(frozenset((node, maker)))
    for one, other in combinations(range(len(needs)), 2):
        a, b = needs[one] - needs[other], needs[other] - needs[one]
        if any(frozenset((x, y)) in near for x in (a or needs[one]) for y in (b or needs[other])):
            first.append(one)
            second.append(other)
    return first, second


def _weights(needs: Sequence[Nodes], energies: Array, base: Nodes) -> Mapping[ir.Node, float]:
    """How much noise each node has a part in, of what is usual in `base`; at most 1."""
    total: dict[ir.Node, float] = {}
    for nodes, energy in zip(needs, np.maximum(energies, 0.0), strict=True):
        for node in nodes:
            total[node] = total.get(node, 0.0) + float(energy)
    usual = float(np.median([total.get(node, 0.0) for node in base])) if base else 0.0
    return {node: min(max(each / max(usual, 1e-300), LEAST_WEIGHT), 1.0) for node, each in total.items()}
