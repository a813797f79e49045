"""The way back: random probes of the outputs are followed to every tensor, and say what its rounding does to them.

A probe is a vector of random signs at each output, scaled by the output's norm; its gradient g at a tensor holds, on
average over the probes, in g_j^2 the squared error at the outputs per squared error of element j. Roundings of
different elements are independent, so a rounding d of the tensor leaves sum_j g_j^2 d_j^2. Elements that move many
others together (a coordinate behind a table of sines) and sums that cancel (a mean taken off) come out right, because
the gradient passes through each operator exactly; operators without a rule (`vjp`) get a gradient of random signs
with the size that a trial perturbation shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from halfwise.core.errors import InputError
from halfwise.core.formats import Format, round_to
from halfwise.core.output_kinds import OutputKind, Reading
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.weights import held_in_fp32
from halfwise.model.ops import CLOSED
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Site, Sites
from halfwise.search.body_noise import body_parts
from halfwise.search.effects import Sensitivity
from halfwise.search.large_weights import is_large_constant, same_values, taken_rows
from halfwise.search.rounding import Rounding, energy, finite
from halfwise.search.tape import Tape
from halfwise.search.vjp import ELEMENTWISE, Array, Local, NoRule, pull_back, unbroadcast

__all__ = ["Adjoint"]

PROBES = 4  # eight change little: most tensors have many elements to average over (benchmarks/ranking.py)
INTEGER_WEIGHT = 0.1  # one wrong integer in a thousand weighs as much as a relative error of 1%

# Elementwise operators whose response to a rounding is taken as it is, not by its slope: it may bend, or break.
_LINEAR = frozenset("Add Sub Mul Sum Mean PRelu LeakyRelu Clip Dropout".split())
_CURVED = frozenset(ELEMENTWISE) - CLOSED - _LINEAR

# Operators that compute with quantised values.
_COUNTS = frozenset("DequantizeLinear QLinearConv QLinearMatMul ConvInteger MatMulInteger".split())

# Operators that make a sequence or an optional of values, and how many of their inputs it holds.
_HOLDERS = {"SequenceConstruct": None, "SequenceInsert": 2, "SplitToSequence": 1, "Optional": 1, "Identity": 1}

# Where a product's weight has its outputs: roundings of different channels are independent.
_CHANNELS = {"Conv": 1, "ConvTranspose": 1, "MatMul": -1, "Gemm": -1}


class Adjoint:
    """One sample's way back over its tape; the gradients of the tensors alive take `PROBES` times their size."""

    def __init__(
        self,
        stepper: Stepper,
        sites: Sites,
        fp32: Assignment,
        tape: Tape,
        into: Sensitivity,
        seed: int,
        weights: Mapping[str, float],
        kinds: Sequence[OutputKind] = (),
    ) -> None:
        self.weights = weights
        self.kinds = {kind.output: kind for kind in kinds}
        self.stepper = stepper
        self.sites = sites
        self.fp32 = fp32
        self.tape = tape
        self.store = tape.store
        self.into = into
        self.rng = np.random.default_rng([seed, into.samples])
        self.gradients: dict[ir.Value, Array] = {}
        self.flips: dict[ir.Value, float] = {}  # of integers: squared error at the outputs per wrong element
        self.roundings: dict[ir.Value, Rounding | None] = {}

    def run(self) -> None:
        held: dict[ir.Value, ir.Value] = {}  # sequences and optionals, and the output that is made of them
        for value in self.sites.model.judged_values:
            if value in self.store and (value.is_graph_output() or value.name in self.kinds):
                if not isinstance(value.type, ir.TensorType):
                    held[value] = value
                self._seed(value, value)
        for node in self.tape.rewind():
            if node.op_type in _HOLDERS and not node.domain and node.outputs[0] in held:
                for value in (each for each in node.inputs[: _HOLDERS[node.op_type]] if each is not None):
                    if value in self.store and not isinstance(value.type, ir.TensorType):
                        held[value] = held[node.outputs[0]]
                    elif value in self.store:
                        self._seed(value, held[node.outputs[0]])
            gradients = tuple(self.gradients.pop(value, None) for value in node.outputs)
            flips = [self.flips.pop(value, 0.0) for value in node.outputs]
            if any(g is not None for g in gradients) or any(flips):
                with np.errstate(all="ignore"):
                    _NodeBack(self, node, gradients, flips).run()
            for done in (*node.outputs, *node.inputs):
                if done is not None and (done.producer() is node or done.is_initializer()):
                    self.roundings.pop(done, None)

    def _seed(self, value: ir.Value, output: ir.Value) -> None:
        """A tensor that is an output, or of which one is made."""
        array = self.store.read(value, None)
        if not isinstance(array, np.ndarray) or not array.size:
            return
        weight = self.weights.get(output.name or "", 1.0)
        if array.dtype.kind != "f":
            self.flips[value] = self.flips.get(value, 0.0) + weight**2 * INTEGER_WEIGHT / array.size
            return
        known = np.isfinite(array)
        kind = self.kinds.get(value.name or "", OutputKind(value.name or "", Reading.VALUES))
        size = np.asarray(kind.sizes(array))
        scale = (weight / np.where(size == 0, 1.0, size)).astype(np.float32)
        seed = self.signs(array.shape) * np.where(known, scale, np.float32(0))
        self.gradients[value] = self.gradients[value] + seed if value in self.gradients else seed
        rounding = self.rounding(value)
        if rounding is not None and value.is_graph_output():
            self.into.add_handed_out(value, energy(self.gradients[value], rounding.error))

    def signs(self, shape: tuple[int, ...]) -> Array:
        return (2 * self.rng.integers(0, 2, (PROBES, *shape), dtype=np.int8) - 1).astype(np.float32)

    def rounding(self, value: ir.Value) -> Rounding | None:
        """The rounding error of a tensor or weight, where it is finite; None where there is none."""
        if value not in self.roundings:
            self.roundings[value] = self._rounding(value)
        return self.roundings[value]

    def _rounding(self, value: ir.Value) -> Rounding | None:
        if value.dtype is not ir.DataType.FLOAT:
            return None
        if value.is_initializer():
            return self.rounding_of(self.store.read(value, Format.FP32))
        return Rounding.to(self.store.read(value, None), self.sites.fmt)

    def rounding_of(self, weights: Array) -> Rounding | None:
        """Of weights: where one is clamped that is no small change, and followed on the way forwards."""
        fmt = self.sites.fmt
        return Rounding.of(weights, held_in_fp32(weights, fmt), clamp=fmt.max)

    def rounded(self, value: ir.Value) -> Array:
        """A weight as the narrow format holds it; what is clamped there stays, which is no small change."""
        fmt = self.sites.fmt
        if not value.is_initializer():
            return round_to(self.store.read(value, None), fmt)
        wide, narrow = self.store.read(value, Format.FP32), self.store.read(value, fmt)
        if not max(float(np.max(wide, initial=0.0)), -float(np.min(wide, initial=0.0))) <= fmt.max:
            return np.where(np.abs(wide) > fmt.max, wide, narrow)
        return narrow


class _NodeBack:
    """One node on the way back."""

    def __init__(
        self, adjoint: Adjoint, node: ir.Node, gradients: tuple[Array | None, ...], flips: list[float]
    ) -> None:
        self.adjoint = adjoint
        self.into = adjoint.into
        self.stepper = adjoint.stepper
        self.node = node
        self.site: Site = adjoint.sites.of[node]
        self.flips = flips
        self.inner = self.stepper.inner(node)
        self.local = Local(
            node,
            node.version or adjoint.sites.model.opset(node.domain),
            tuple(self._peek(value) for value in node.inputs),
            tuple(self._peek(value) for value in node.outputs),
            gradients,
            self._run_slots,
        )

    def run(self) -> None:
        self.stepper.account(PROBES * (1 + len(self.inner)))
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
        if any(self.adjoint.sites.of[n].free for n in self.inner):
            self._inside()
        if self.local.inside and self.site.free and self.stepper.emulator.profile.apart:
            self._between_steps()

    def _values(self) -> list[ir.Value]:
        taken = [value for value in self.node.inputs if value is not None]
        if self.inner:
            taken += [value for _, value, _ in self.stepper.reads(self.node, self.adjoint.fp32)]
        return list(dict.fromkeys(taken))

    # -- float tensors ----------------------------------------------------------------------------------------------

    def _float(self, value: ir.Value) -> None:
        slots = [slot for slot, taken in enumerate(self.node.inputs) if taken is value]
        narrows = self.site.free and any(self.site.inputs[slot] for slot in slots)
        if value.is_initializer():
            if narrows:
                self.into.add_weights(self.node, self._weight(value, slots))
            return
        if self._channels(slots) is not None and is_large_constant(value, self._peek(value)):
            self.into.add_read(self.node, value, self._weight(value, slots))
            return
        rounding = self.adjoint.rounding(value)
        gradient = self._gradient(value, slots)
        if gradient is None:
            return
        if rounding is not None:
            left = rounding.energy(gradient)
            if narrows and self._bends(slots):
                left = self._response(value, rounding)
            self.into.add_read(self.node, value, left)
        known = self.adjoint.gradients.get(value)
        self.adjoint.gradients[value] = gradient if known is None else known + gradient

    def _weight(self, value: ir.Value, slots: list[int]) -> float:
        """The squared error that rounding a weight leaves."""
        channels = self._channels(slots)
        if channels is not None:
            moved = self.adjoint.rounded(value)
            base = self._peek(value)
            return 0.0 if base is None or same_values(moved, base) else energy(self._seen(value, moved, channels))
        if self.node.op_type == "Gather" and not self.node.domain and slots == [0]:
            if self.local.gradients[0] is None:
                return 0.0
            rows, summed = taken_rows(self.local, self.local.gradients[0])
            rounding = self.adjoint.rounding_of(rows)
            return 0.0 if rounding is None else rounding.energy(finite(summed))
        rounding = self.adjoint.rounding(value)
        if rounding is None:
            return 0.0
        if self._bends(slots):
            return self._response(value, rounding)
        gradient = self._gradient(value, slots)
        return 0.0 if gradient is None else rounding.energy(gradient)

    def _channels(self, slots: list[int]) -> int | None:
        """The axis of the outputs' channels, where this node multiplies by the value as by a weight."""
        return _CHANNELS.get(self.node.op_type) if not self.node.domain and slots == [1] else None

    def _gradient(self, value: ir.Value, slots: list[int]) -> Array | None:
        """The gradient of a tensor through this node alone."""
        smooth = bool(slots) and any(g is not None for g in self.local.gradients)
        parts: list[Array] = []
        if smooth:
            try:
                parts = [part for slot in slots if (part := pull_back(self.local, slot)) is not None]
            except NoRule:
                smooth = False
        if not smooth or any(self.flips):
            trial = self._isotropic(value, floats=not smooth)
            parts += [] if trial is None else [trial]
        return finite(np.asarray(sum(parts[1:], parts[0]), dtype=np.float32)) if parts else None

    def _bends(self, slots: list[int]) -> bool:
        op = self.node.op_type
        return op in _CURVED and not self.node.domain and (op != "Div" or 1 in slots)

    def _response(self, value: ir.Value, rounding: Rounding) -> float:
        """The squared error seen at the node's output with the rounding in its input.

        What one rounding moves moves together: all places that an element was broadcast to.
        """
        moved = self._seen(value, self._moved(value, rounding.error))
        return rounding.energy_of(unbroadcast(moved, rounding.error.shape))

    def _seen(self, value: ir.Value, array: Array, channels: int | None = None) -> Array:
        """What another input moves at the output, weighed by the gradients; summed over each channel if asked."""
        base, gradient = self.local.output(), self.local.gradient()
        changed = self._run({value: array})[0]
        self._check(value, changed, base)
        moved = gradient * finite(changed - base)
        if channels is None:
            return moved
        kept = channels % base.ndim + 1
        return np.asarray(moved.sum(axis=tuple(a for a in range(1, moved.ndim) if a != kept)))

    def _isotropic(self, value: ir.Value, floats: bool) -> Array | None:
        """No rule: a trial perturbation shows how much arrives, and every element gets the same share of it.

        What arrives through integer outputs has no other way; through `floats`, only where there is no rule.
        """
        array = self._peek(value)
        assert array is not None
        rounding = self.adjoint.rounding(value)
        unit = self.adjoint.sites.fmt.unit_roundoff
        noise = (array * (unit * self.adjoint.rng.uniform(-1, 1, array.shape))).astype(np.float32)
        if rounding is not None:
            noise = np.where(rounding.error != 0, rounding.error, noise)
        noise = finite(noise)
        strength = float(np.sum(np.square(noise, dtype=np.float64)))
        if strength == 0:
            return None
        arriving = 0.0
        for slot, changed in enumerate(self._run({value: self._moved(value, noise)})):
            base, gradient, flips = self.local.outputs[slot], self.local.gradients[slot], self.flips[slot]
            if base is None or changed.shape != base.shape:
                if rounding is not None:
                    self.into.breaks.add((self.node, value))
                continue
            if gradient is not None and floats:
                self._check(value, changed, base)
                arriving += energy(gradient, finite(changed - base))
            elif flips:
                arriving += flips * float(np.count_nonzero(changed != base))
        return np.asarray(self.adjoint.signs(array.shape) * np.float32(np.sqrt(arriving / strength)))

    def _check(self, value: ir.Value, changed: Array, base: Array) -> None:
        if not np.isfinite(changed).all() and (np.isfinite(base) & ~np.isfinite(changed)).any():
            self.into.breaks.add((self.node, value))

    def _inside(self) -> None:
        """The node's own narrow border, and what is in its subgraphs."""
        sites = self.adjoint.sites
        self.into.parts += body_parts([n for n in (*self.inner, self.node) if sites.of[n].free], self._narrowed)

    def _narrowed(self, nodes: tuple[ir.Node, ...]) -> tuple[float, bool]:
        """The squared error that these nodes leave in the narrow format, and whether something breaks."""
        narrow = Assignment(self.adjoint.sites, dict.fromkeys(nodes, self.adjoint.sites.fmt))
        try:
            outputs = self.stepper.run(self.node, narrow, self.adjoint.store)
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
        fmt = self.adjoint.sites.fmt
        known = [(Rounding.to(array, fmt), gradient) for array, gradient in self.local.inside]
        left = [rounding.energy(finite(gradient)) for rounding, gradient in known if rounding is not None]
        self.into.add_weights(self.node, sum(left))
        if any(not np.isfinite(round_to(array, fmt)).all() for array, _ in self.local.inside):
            narrow = Assignment(self.adjoint.sites, {self.node: fmt})
            for value, changed in self.stepper.run(self.node, narrow, self.adjoint.store).items():
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
            self.adjoint.flips[value] = self.adjoint.flips.get(value, 0.0) + found

    def _counted(self, value: ir.Value, array: Array) -> float:
        """What one step of a quantised value costs: all of them take one, up or down, which adds as squares."""
        most = np.iinfo(array.dtype).max
        step = np.where(array == most, -1, self.adjoint.rng.choice([-1, 1], array.shape)).astype(array.dtype)
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
        if value is None or not (value.is_initializer() or value in self.adjoint.store):
            return None
        array = self.adjoint.store.read(value, None)
        if not isinstance(array, np.ndarray):
            return None
        return array if array.dtype.kind in "iub" or array.itemsize >= 4 else array.astype(np.float32)

    def _moved(self, value: ir.Value, by: Array) -> Array:
        array = self._peek(value)
        assert array is not None
        return np.asarray(array + by, dtype=array.dtype)

    def _run(self, changed: Mapping[ir.Value, Array]) -> tuple[Array, ...]:
        found = self.stepper.run(self.node, self.adjoint.fp32, self.adjoint.store, changed)
        return tuple(found[value] for value in self.node.outputs if value in found)

    def _run_slots(self, changed: Mapping[int, Array]) -> tuple[Array, ...]:
        values: dict[ir.Value, Array] = {}
        for slot, array in changed.items():
            value = self.node.inputs[slot]
            if value is None or sum(v is value for v in self.node.inputs) > 1:
                raise NoRule
            values[value] = np.asarray(array)
        return self._run(values)
