"""One node on the way back: from the gradients of what it makes to those of what it reads, and what rounding costs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from string import ascii_letters

import numpy as np
import onnx_ir as ir

from halfwise.core.errors import InputError
from halfwise.core.float_sum import float_sum
from halfwise.core.formats import round_to
from halfwise.emulation.branches import branch_taken, is_walked
from halfwise.model.ops import CLOSED
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Site
from halfwise.search.body_noise import body_parts
from halfwise.search.gradients import Gradients
from halfwise.search.large_weights import channels, is_large_constant, same_values, taken_rows
from halfwise.search.rounding import Rounding, energy, finite
from halfwise.search.trial import Signs, noise_like, strength
from halfwise.search.vjp import ELEMENTWISE, Array, Local, NoRule, pull_back, unbroadcast

__all__ = ["NodeAdjoint"]

# Elementwise operators whose response to a rounding is taken as it is, not by its slope: it may bend, or break.
_LINEAR = frozenset("Add Sub Mul Sum Mean PRelu LeakyRelu Clip Dropout".split())
_CURVED = frozenset(ELEMENTWISE) - CLOSED - _LINEAR

# Operators that compute with quantised values.
_COUNTS = frozenset("DequantizeLinear QLinearConv QLinearMatMul ConvInteger MatMulInteger".split())


class NodeAdjoint:
    """One node on the way back."""

    def __init__(
        self, known: Gradients, node: ir.Node, gradients: tuple[Array | None, ...], flips: list[float]
    ) -> None:
        self.known = known
        self.into = known.into
        self.stepper = known.stepper
        self.node = node
        self.site: Site = known.sites.of[node]
        self.flips = flips
        self.inner = self.stepper.inner(node)
        self._read: dict[ir.Value | None, Array | None] = {}  # a weight in the model's own file is a copy each time
        self.local = Local(
            node,
            node.version or known.sites.model.opset(node.domain),
            tuple(self._peek(value) for value in node.inputs),
            tuple(self._peek(value) for value in node.outputs),
            gradients,
            partial(_run_slots, known, node),  # not of this object: a cycle would keep its arrays
        )

    def run(self) -> None:
        branch = branch_taken(self.node, self.known.store)
        if branch is not None and is_walked(branch, self.known.store):
            self._into(branch)
            return
        self.stepper.account(self.known.probes * (1 + len(self.inner)))
        for value in self._values():
            array = self._peek(value)
            if array is None or not array.size:
                continue
            if array.dtype.kind == "f":
                try:
                    self._float(value)
                except InputError:  # the node does not take the rounded value: an index beyond its table
                    self.into.breaks.add((self.node, value))
            elif not value.is_initializer():
                self._integer(value)
        if any(self.known.sites.of[n].free for n in self.inner):
            self._inside()
        if self.local.inside and self.site.free and self.stepper.emulator.profile.apart:
            self._between_steps()

    def _into(self, branch: ir.Graph) -> None:
        """What the If hands out is what the branch does, whose own nodes come next."""
        self.stepper.account(self.known.probes)
        for value, gradient, flips in zip(branch.outputs, self.local.gradients, self.flips, strict=True):
            if value.is_initializer():
                continue
            if gradient is not None:
                if self.site.free and value.dtype is ir.DataType.FLOAT:
                    self.known.read_later(self.node, value, gradient)
                self.known.add(value, gradient)
            if flips:
                self.known.flips[value] = self.known.flips.get(value, 0.0) + flips

    def _values(self) -> list[ir.Value]:
        taken = [value for value in self.node.inputs if value is not None]
        if self.inner:
            taken += [value for _, value, _ in self.stepper.reads(self.node, self.known.fp32)]
        return list(dict.fromkeys(taken))

    # -- float tensors ----------------------------------------------------------------------------------------------

    def _float(self, value: ir.Value) -> None:
        slots = [slot for slot, taken in enumerate(self.node.inputs) if taken is value]
        narrows = self.site.free and any(self.site.inputs[slot] for slot in slots)
        if value.is_initializer():
            if narrows:
                self.into.add_weights(self.node, self._weight(value, slots))
            return
        if channels(self.node, slots) is not None and is_large_constant(value, self._peek(value)):
            self.into.add_read(self.node, value, self._weight(value, slots))
            return
        gradient = self._gradient(value, slots)
        if gradient is None:
            return
        if not (narrows and self._bends(slots)):
            self.known.read_later(self.node, value, gradient)
        elif (rounding := self.known.rounding(value)) is not None:
            self.into.add_read(self.node, value, self._response(value, rounding))
        self.known.add(value, gradient)

    def _weight(self, value: ir.Value, slots: list[int]) -> float:
        """The squared error that rounding a weight leaves."""
        axis = channels(self.node, slots)
        if axis is not None:
            base, moved = self.local.input(1), self.known.rounded(value)
            return 0.0 if same_values(moved, base) else self._by_channel(value, moved, axis)
        if self.node.op_type == "Gather" and not self.node.domain and slots == [0]:
            if self.local.gradients[0] is None:
                return 0.0
            rows, summed = taken_rows(self.local, self.local.gradients[0])
            rounding = self.known.rounding_of(rows)
            return 0.0 if rounding is None else rounding.energy(finite(summed))
        rounding = self.known.rounding(value)
        if rounding is None:
            return 0.0
        if self._bends(slots):
            return self._response(value, rounding)
        parts, trial = self._traced(value, slots)
        if trial is not None and not parts:
            return trial.energy(rounding)
        gradient = _summed(parts, trial)
        return 0.0 if gradient is None else rounding.energy(gradient)

    def _gradient(self, value: ir.Value, slots: list[int]) -> Array | None:
        """The gradient of a tensor through this node alone."""
        return _summed(*self._traced(value, slots))

    def _traced(self, value: ir.Value, slots: list[int]) -> tuple[list[Array], Signs | None]:
        """Its parts, by rules and by a trial."""
        smooth = bool(slots) and any(g is not None for g in self.local.gradients)
        parts: list[Array] = []
        if smooth:
            try:
                parts = [part for slot in slots if (part := pull_back(self.local, slot)) is not None]
            except NoRule:
                smooth = False
        trial = self._isotropic(value, floats=not smooth) if not smooth or any(self.flips) else None
        return parts, trial

    def _bends(self, slots: list[int]) -> bool:
        op = self.node.op_type
        return op in _CURVED and not self.node.domain and (op != "Div" or 1 in slots)

    def _response(self, value: ir.Value, rounding: Rounding) -> float:
        """The squared error seen at the node's output with the rounding in its input.

        What one rounding moves moves together: all places that an element was broadcast to.
        """
        step = self._step(value, self._moved(value, rounding.error))
        shape = rounding.error.shape
        left = [rounding.energy_of(unbroadcast(each[None] * step, shape)) for each in self.local.gradient()]
        return float_sum(left) / len(left)

    def _by_channel(self, value: ir.Value, array: Array, axis: int) -> float:
        """The squared error of another weight: what it moves is summed over each channel."""
        step, gradient = self._step(value, array), self.local.gradient()
        at = ascii_letters[: step.ndim]
        return energy(np.stack([np.einsum(f"{at},{at}->{at[axis]}", each, step) for each in gradient]))

    def _step(self, value: ir.Value, array: Array) -> Array:
        """By how much another input moves the output."""
        base = self.local.output()
        changed = self._run({value: array})[0]
        self._check(value, changed, base)
        changed = changed - base
        return finite(changed)

    def _isotropic(self, value: ir.Value, floats: bool) -> Signs | None:
        """No rule: a trial perturbation shows how much arrives, and every element gets the same share of it.

        What arrives through integer outputs has no other way; through `floats`, only where there is no rule.
        """
        array = self._peek(value)
        assert array is not None
        rounding = self.known.rounding(value)
        noise = noise_like(array, self.known.sites.fmt.unit_roundoff, self.known.rng)
        if rounding is not None:
            np.copyto(noise, rounding.error, where=rounding.error != 0)
        given = strength(noise)
        if given == 0:
            return None
        moved = np.add(array, noise, out=noise if array.dtype == noise.dtype else None)
        shape = array.shape
        del array, noise
        arriving = self._arriving(value, moved, rounding is not None, floats)
        del moved
        return Signs(self.known.random_signs(shape), np.float32(np.sqrt(arriving / given)))

    def _arriving(self, value: ir.Value, moved: Array, rounds: bool, floats: bool) -> float:
        """The squared error at the outputs that a perturbed input leaves."""
        arriving = 0.0
        for slot, changed in enumerate(self._run({value: moved})):
            base, gradient, flips = self.local.outputs[slot], self.local.gradients[slot], self.flips[slot]
            if base is None or changed.shape != base.shape:
                if rounds:
                    self.into.breaks.add((self.node, value))
                continue
            if gradient is not None and floats:
                self._check(value, changed, base)
                arriving += energy(gradient, finite(changed - base))
            elif flips:
                arriving += flips * float(np.count_nonzero(changed != base))
        return arriving

    def _check(self, value: ir.Value, changed: Array, base: Array) -> None:
        if not np.isfinite(changed.sum()) and (np.isfinite(base) & ~np.isfinite(changed)).any():
            self.into.breaks.add((self.node, value))

    def _inside(self) -> None:
        """The node's own narrow border, and what is in its subgraphs."""
        sites = self.known.sites
        self.into.parts += body_parts([n for n in (*self.inner, self.node) if sites.of[n].free], self._narrowed)

    def _narrowed(self, nodes: tuple[ir.Node, ...]) -> tuple[float, bool]:
        """The squared error that these nodes leave in the narrow format, and whether something breaks."""
        narrow = Assignment(self.known.sites, dict.fromkeys(nodes, self.known.sites.fmt))
        try:
            outputs = self.stepper.run(self.node, narrow, self.known.store)
        except InputError:
            return 0.0, True
        left, broken = 0.0, False
        for value, changed in outputs.items():
            slot = value.index() or 0
            base, gradient = self.local.outputs[slot], self.local.gradients[slot]
            if base is None or gradient is None:
                continue
            if changed.shape != base.shape or (np.isfinite(base) & ~np.isfinite(changed)).any():
                broken = True
            if changed.shape == base.shape:
                left += energy(gradient, finite(changed - base))
        return left, broken

    def _between_steps(self) -> None:
        """What an operator stores between its steps, where they run apart."""
        fmt = self.known.sites.fmt
        known = [(Rounding.to(array, fmt), gradient) for array, gradient in self.local.inside]
        left = [rounding.energy(finite(gradient)) for rounding, gradient in known if rounding is not None]
        self.into.add_weights(self.node, float_sum(left))
        if any(not np.isfinite(round_to(array, fmt)).all() for array, _ in self.local.inside):
            narrow = Assignment(self.known.sites, {self.node: fmt})
            for value, changed in self.stepper.run(self.node, narrow, self.known.store).items():
                self._check(value, changed, self.local.output(value.index() or 0))

    # -- integers ---------------------------------------------------------------------------------------------------

    def _integer(self, value: ir.Value) -> None:
        """A wrong integer or truth value: what it costs at the outputs, on average over the tensor."""
        found = max(self.flips)
        array = self._peek(value)
        gradient = self.local.gradients[0]
        assert array is not None
        if gradient is not None and self.node.op_type == "Where" and value is self.node.inputs[0]:
            step = np.broadcast_to(finite(self.local.input(1) - self.local.input(2)), gradient.shape[1:])
            found += energy(gradient, step) / array.size
        elif gradient is not None and self.node.op_type == "Cast":
            found += energy(gradient) / array.size
        elif self.node.op_type in _COUNTS and not self.node.domain:
            found = self._counted(value, array)
        if found:
            self.known.flips[value] = self.known.flips.get(value, 0.0) + found

    def _counted(self, value: ir.Value, array: Array) -> float:
        """What one step of a quantised value costs: all of them take one, up or down, which adds as squares."""
        most = np.iinfo(array.dtype).max
        step = np.where(array == most, -1, self.known.rng.choice([-1, 1], array.shape)).astype(array.dtype)
        step[array == np.iinfo(array.dtype).min] = 1
        found = 0.0
        for slot, changed in enumerate(self._run({value: self._moved(value, step)})):
            base, gradient, flips = self.local.outputs[slot], self.local.gradients[slot], self.flips[slot]
            if base is None or changed.shape != base.shape:
                continue
            if gradient is not None:
                found += energy(gradient, finite(changed - base))
            elif flips:
                found += flips * float(np.sum(np.square(changed.astype(np.float64) - base)))
        return found / array.size

    # -- running ----------------------------------------------------------------------------------------------------

    def _peek(self, value: ir.Value | None) -> Array | None:
        if value not in self._read:
            self._read[value] = self._found(value)
        return self._read[value]

    def _found(self, value: ir.Value | None) -> Array | None:
        if value is None or not (value.is_initializer() or value in self.known.store):
            return None
        array = self.known.store.read(value, None)
        if not isinstance(array, np.ndarray):
            return None
        exact = array.dtype.kind in "iubOSU"  # whole numbers and texts
        return array if exact or array.itemsize >= 4 else array.astype(np.float32)

    def _moved(self, value: ir.Value, by: Array) -> Array:
        array = self._peek(value)
        assert array is not None
        return np.asarray(array + by, dtype=array.dtype)

    def _run(self, changed: Mapping[ir.Value, Array]) -> tuple[Array, ...]:
        return _run(self.known, self.node, changed)


def _summed(parts: list[Array], trial: Signs | None) -> Array | None:
    parts = [*parts, *([] if trial is None else [trial.whole()])]
    return finite(np.asarray(sum(parts[1:], parts[0]), dtype=np.float32)) if parts else None


def _run(known: Gradients, node: ir.Node, changed: Mapping[ir.Value, Array]) -> tuple[Array, ...]:
    found = known.stepper.run(node, known.fp32, known.store, changed)
    return tuple(found[value] for value in node.outputs if value in found)


def _run_slots(known: Gradients, node: ir.Node, changed: Mapping[int, Array]) -> tuple[Array, ...]:
    values: dict[ir.Value, Array] = {}
    for slot, array in changed.items():
        value = node.inputs[slot]
        if value is None or sum(v is value for v in node.inputs) > 1:
            raise NoRule
        values[value] = np.asarray(array)
    return _run(known, node, values)
