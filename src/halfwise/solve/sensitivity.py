"""Measures, in one walk over the FP32 model, what rounding each tensor does one node further on, and what overflows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.engine.stepper import Step, Stepper, Store
from halfwise.formats import Format, round_to
from halfwise.precision import Assignment
from halfwise.sites import Sites

__all__ = ["Effect", "Sensitivity", "measure_sensitivity"]

Array = NDArray[Any]

# Operators that reorder values: the energy of a perturbation passes unchanged, so nothing has to be run.
_REORDERS = frozenset("Identity Reshape Transpose Squeeze Unsqueeze Flatten DepthToSpace SpaceToDepth".split())

ABSORPTION_DEPTH = 8  # nodes behind an overflow in which it may vanish again, as a mask does in a softmax
ABSORBED = 1e-3  # relative difference at which it counts as vanished


@dataclass
class Effect:
    """What a perturbation of one input of a node does to the node's outputs: squared norms."""

    at: dict[ir.Value, float]
    noise: float  # of the input itself
    breaks: bool = False  # rounding it makes a finite result non-finite, or overflows and is not absorbed


@dataclass
class Sensitivity:
    """Summed over the samples walked: per node the effect of rounding each input, and of rounding its weights."""

    inputs: dict[ir.Node, dict[ir.Value, Effect]] = field(default_factory=dict)
    weights: dict[ir.Node, Effect] = field(default_factory=dict)
    rounding: dict[ir.Value, float] = field(default_factory=dict)  # squared norm of a tensor's own rounding error
    energy: dict[ir.Value, float] = field(default_factory=dict)  # squared norm of the tensor
    size: dict[ir.Value, int] = field(default_factory=dict)
    overflows: set[ir.Value] = field(default_factory=set)  # rounding makes a finite value infinite, and it matters
    samples: int = 0


def measure_sensitivity(
    stepper: Stepper, sites: Sites, feeds: Mapping[str, Array], into: Sensitivity, seed: int = 0
) -> None:
    """Walk one sample. Every node runs once, and once more for each input whose rounding changes it."""
    _Walk(stepper, sites, into, seed).run(feeds)


class _Walk:
    def __init__(self, stepper: Stepper, sites: Sites, into: Sensitivity, seed: int) -> None:
        self.stepper = stepper
        self.sites = sites
        self.into = into
        self.fp32 = Assignment(sites, {})
        self.rng = np.random.default_rng(seed)
        self.rounded: dict[ir.Value, tuple[Array, float] | None] = {}  # the sanitised rounding of a live tensor
        self.overflowing: dict[ir.Value, _Overflow] = {}
        self.judged: set[ir.Value] = set()

    def run(self, feeds: Mapping[str, Array]) -> None:
        store = Store(self.stepper.emulator, self.fp32, feeds)
        for value in self.sites.model.graph.inputs:
            if value in store:
                self._meet(value, store.read(value, None))
        for step in self.stepper.walk(store):
            for value, array in step.outputs.items():
                self._meet(value, array)
            self._inputs(step, store)
            self._weights(step, store)
            self._follow_overflows(step, store)
            self.rounded = {value: kept for value, kept in self.rounded.items() if value in store}
        for overflow in self.overflowing.values():
            if overflow.variant:
                self._condemn(overflow)
        self.into.samples += 1

    def _meet(self, value: ir.Value, array: Array) -> None:
        """A tensor has just been made: what rounding it would cost, and whether it would overflow."""
        if array.dtype != np.float32:
            return
        narrow = round_to(array, self.sites.fmt)
        finite = np.isfinite(narrow)
        if not finite.all():
            lost = np.isfinite(array) & ~finite
            if lost.any():
                self.overflowing[value] = _Overflow(value, {value: np.where(lost, narrow, array)})
            narrow = np.where(finite, narrow, array)
        noise = _energy(narrow, array)
        self.rounded[value] = (narrow, noise) if noise > 0 else None
        _add(self.into.rounding, value, noise)
        _add(self.into.energy, value, _norm(array))
        self.into.size[value] = array.size

    def _inputs(self, step: Step, store: Store) -> None:
        site = self.sites.of[step.node]
        effects = self.into.inputs.setdefault(step.node, {})
        for slot, value in enumerate(step.node.inputs):
            free = site.inputs[slot] if slot < len(site.inputs) else False
            if value is None or value.is_initializer() or (not free and site.free) or value not in store:
                continue
            if value in step.node.inputs[:slot]:
                continue
            kept = self.rounded.get(value)
            if kept is None:
                kept = self._jitter(value, store)
            if kept is None:
                continue
            narrow, noise = kept
            if step.node.op_type in _REORDERS and slot == 0:
                at = {step.node.outputs[0]: noise}
                breaks = False
            else:
                at, breaks = self._compare(step, self.stepper.run(step.node, self.fp32, store, {value: narrow}))
            effect = effects.setdefault(value, Effect({}, 0.0))
            effect.noise += noise
            effect.breaks |= breaks
            for out, energy in at.items():
                _add(effect.at, out, energy)

    def _jitter(self, value: ir.Value, store: Store) -> tuple[Array, float] | None:
        """A tensor that rounds exactly may still carry the noise of others: perturb it as rounding would."""
        producer = value.producer()
        if producer is None or value.dtype is not ir.DataType.FLOAT or not self._noisy(producer):
            return None
        array = store.read(value, None)
        step = self.sites.fmt.smallest_normal if not array.any() else 0.0
        unit = self.sites.fmt.unit_roundoff
        jittered = (array * (1 + unit * self.rng.uniform(-1, 1, array.shape)) + step).astype(np.float32)
        jittered = np.where(np.isfinite(jittered), jittered, array)
        kept = (jittered, _energy(jittered, array))
        self.rounded[value] = kept if kept[1] > 0 else None
        return self.rounded[value]

    def _noisy(self, node: ir.Node) -> bool:
        """Whether a node hands on noise: one of its own inputs was perturbed with some effect."""
        return any(
            energy > 0 for effect in self.into.inputs.get(node, {}).values() for energy in effect.at.values()
        )

    def _weights(self, step: Step, store: Store) -> None:
        """The weights of a node rounded, all together; for a node with subgraphs, everything inside it."""
        node, site = step.node, self.sites.of[step.node]
        inner = [n for n in self.stepper.inner(node) if self.sites.of[n].free]
        if inner:
            outputs = self.stepper.run(node, Assignment(self.sites, dict.fromkeys(inner, self.sites.fmt)), store)
        else:
            changed = {}
            for slot, value in enumerate(node.inputs):
                if value is not None and value.is_initializer() and site.free and site.inputs[slot]:
                    wide, narrow = store.read(value, Format.FP32), store.read(value, self.sites.fmt)
                    if not np.array_equal(wide, narrow, equal_nan=True):
                        changed[value] = narrow
            if not changed:
                return
            outputs = self.stepper.run(node, self.fp32, store, changed)
        at, breaks = self._compare(step, outputs)
        effect = self.into.weights.setdefault(node, Effect({}, 1.0))
        effect.breaks |= breaks
        for out, energy in at.items():
            _add(effect.at, out, energy)

    def _compare(self, step: Step, outputs: Mapping[ir.Value, Array]) -> tuple[dict[ir.Value, float], bool]:
        at: dict[ir.Value, float] = {}
        breaks = False
        for value, changed in outputs.items():
            base = step.outputs[value]
            if not isinstance(base, np.ndarray) or base.dtype.kind not in "fiub":
                continue
            if changed.shape != base.shape:
                breaks = True
                continue
            if base.dtype.kind == "f":
                finite = np.isfinite(changed)
                if not finite.all():
                    breaks |= bool((np.isfinite(base) & ~finite).any())
            at[value] = _energy(changed, base)
        return at, breaks

    # -- overflow ---------------------------------------------------------------------------------------------------

    def _follow_overflows(self, step: Step, store: Store) -> None:
        """Let each overflow run on for a few nodes: a mask's vanishes in the softmax, a norm's does not."""
        outside = {value for _, value, _ in self.stepper.reads(step.node, self.fp32)}
        for origin in list(self.overflowing):
            overflow = self.overflowing[origin]
            if overflow.variant.keys().isdisjoint(outside):
                overflow.forget(store)
                continue
            overflow.depth += 1
            outputs = self.stepper.run(step.node, self.fp32, store, overflow.variant)
            for value, changed in outputs.items():
                if not _alike(changed, step.outputs[value]):
                    overflow.variant[value] = changed
                    if value.is_graph_output():
                        overflow.depth = ABSORPTION_DEPTH
            overflow.forget(store)
            if overflow.depth >= ABSORPTION_DEPTH and overflow.variant:
                self._condemn(overflow)
                del self.overflowing[origin]

    def _condemn(self, overflow: _Overflow) -> None:
        self.into.overflows.add(overflow.origin)


@dataclass
class _Overflow:
    """An overflow on its way: the tensors that differ because of it and are still alive."""

    origin: ir.Value
    variant: dict[ir.Value, Array]
    depth: int = 0

    def forget(self, store: Store) -> None:
        for value in [v for v in self.variant if v not in store]:
            del self.variant[value]


def _alike(changed: Array, base: Array) -> bool:
    if not isinstance(base, np.ndarray) or changed.shape != base.shape:
        return False
    if base.dtype.kind != "f":
        return bool(np.array_equal(changed, base))
    if not np.array_equal(np.isfinite(changed), np.isfinite(base)):
        return False
    return _energy(changed, base) <= ABSORBED**2 * max(_norm(base), 1e-30)


def _energy(a: Array, b: Array) -> float:
    """Squared norm of the difference over the places where both are finite."""
    if a.dtype.kind == "b":
        return float(np.count_nonzero(a != b))
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.subtract(a, b, dtype=np.float64).reshape(-1)
    total = float(difference @ difference)
    if np.isfinite(total):
        return total
    difference = difference[np.isfinite(difference)]
    return float(difference @ difference)


def _norm(array: Array) -> float:
    flat = array.reshape(-1).astype(np.float64)
    total = float(flat @ flat)
    if np.isfinite(total):
        return total
    flat = flat[np.isfinite(flat)]
    return float(flat @ flat)


def _add(into: dict[ir.Value, float], key: ir.Value, amount: float) -> None:
    into[key] = into.get(key, 0.0) + amount
