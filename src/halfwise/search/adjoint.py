"""The way back: random probes of the outputs are followed to every tensor, and say what its rounding does to them.

A probe is a vector of random signs at each output, scaled by the output's norm; its gradient g at a tensor holds, on
average over the probes, in g_j^2 the squared error at the outputs per squared error of element j. Roundings of
different elements are independent, so a rounding d of the tensor leaves sum_j g_j^2 d_j^2. Elements that move many
others together (a coordinate behind a table of sines) and sums that cancel (a mean taken off) come out right, because
the gradient passes through each operator exactly; operators without a rule (`vjp`) get a gradient of random signs
with the size that a trial perturbation shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.formats import Format, round_to
from halfwise.core.output_kinds import OutputKind, Reading
from halfwise.search.gradients import Gradients
from halfwise.search.node_adjoint import NodeAdjoint
from halfwise.search.rounding import finite

__all__ = ["Adjoint"]

Array = NDArray[Any]

INTEGER_WEIGHT = 0.1  # one wrong integer in a thousand weighs as much as a relative error of 1%

# Operators that make a sequence or an optional of values, and how many of their inputs it holds.
_HOLDERS = {"SequenceConstruct": None, "SequenceInsert": 2, "SplitToSequence": 1, "Optional": 1, "Identity": 1}


@dataclass(frozen=True)
class Adjoint:
    """One sample's way back over its tape."""

    known: Gradients
    weights: Mapping[str, float]  # of the outputs
    kinds: Mapping[str, OutputKind]  # what an error is relative to, where it is not the norm
    outputs: frozenset[str] | None = None  # those to begin from, where not from all

    def run(self, again: bool = False) -> None:
        """`again`: the same tape is followed once more."""
        held: dict[ir.Value, ir.Value] = {}  # sequences and optionals, and the output that is made of them
        for value in self.known.sites.model.judged_values:
            if value in self.known.store and (value.is_graph_output() or value.name in self.kinds):
                if not isinstance(value.type, ir.TensorType):
                    held[value] = value
                self._seed(value, value)
        for node in self.known.tape.rewind(again):
            if node.op_type in _HOLDERS and not node.domain and node.outputs[0] in held:
                for value in (each for each in node.inputs[: _HOLDERS[node.op_type]] if each is not None):
                    if value in self.known.store and not isinstance(value.type, ir.TensorType):
                        held[value] = held[node.outputs[0]]
                    elif value in self.known.store:
                        self._seed(value, held[node.outputs[0]])
            gradients = tuple(self.known.of.pop(value, None) for value in node.outputs)
            flips = [self.known.flips.pop(value, 0.0) for value in node.outputs]
            if any(g is not None for g in gradients) or any(flips):
                with np.errstate(all="ignore"):
                    NodeAdjoint(self.known, node, gradients, flips).run()
            for done in (*node.outputs, *node.inputs):
                if done is not None and (done.producer() is node or done.is_initializer()):
                    self.known.roundings.pop(done, None)
        self.known.finish()

    def _seed(self, value: ir.Value, output: ir.Value) -> None:
        """A tensor that is an output, or of which one is made."""
        if self.outputs is not None and output.name not in self.outputs:
            return
        array = self.known.store.read(value, None)
        if not isinstance(array, np.ndarray) or not array.size:
            return
        weight = self.weights.get(output.name or "", 1.0)
        if array.dtype.kind != "f":
            self.known.flips[value] = self.known.flips.get(value, 0.0) + weight**2 * INTEGER_WEIGHT / array.size
            return
        kind = self.kinds.get(value.name or "", OutputKind(value.name or "", Reading.VALUES))
        size = np.asarray(kind.sizes(array))
        scale = (weight / np.where(size == 0, 1.0, size)).astype(np.float32)
        if value.is_graph_output() and value.dtype is ir.DataType.FLOAT:
            self.known.into.add_handed_out(value, _rounded(array, scale, self.known.sites.fmt))
        seed = self.known.signs(array.shape)
        seed *= scale
        if not (known := np.isfinite(array)).all():
            seed[:, ~known] = 0
        self.known.add(value, seed)


def _rounded(array: Array, scale: Array, fmt: Format) -> float:
    """The squared error of an output's own rounding, which no probe need tell."""
    total = 0.0
    both = np.nditer([array, np.broadcast_to(scale, array.shape)], flags=["external_loop", "buffered"], order="C")
    for values, weights in both:
        with np.errstate(invalid="ignore", over="ignore"):
            error = finite(round_to(values, fmt) - values) * weights
            total += float(np.sum(np.square(error, dtype=np.float64)))
    return total
