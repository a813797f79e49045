"""HW411: powers of two pass logarithms, exponentials and powers.

Precondition. HW401's, where between what makes a tensor and what takes its scale back there is a Log, an Exp, or a Pow
by a constant: audio front ends (transform, square, filter bank, logarithm), power means, norms by x^-0.5.

Proof. log(2^k x) = log(x) + k log(2), which is taken off right behind it; exp(x + k log(2)) = 2^k exp(x), with the term
added in front; (2^k x)^p = 2^(p k) x^p, where p k is whole. Each rounds anew in FP32, by about 1e-7 of the largest of
its terms. All else is HW401's.

What it buys. The squares of a spectrum, sums of them, and what is raised to a power stay below 65504 and above 6e-8.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from halfwise.model.model import Model
from halfwise.model.patterns.view import View
from halfwise.repair.rescale import scale, scalings
from halfwise.repair.rule import Ranges, Repair
from halfwise.repair.scale_ends import flow_of
from halfwise.repair.scale_products import rounds_anew

__all__ = ["SCALE_LOGS", "ScaleLogs"]


class ScaleLogs:
    """Rescaling past what rounds anew."""

    id = "HW411"
    name = "scale-logs"
    bound = 1e-3
    lossy = False

    def find(self, model: Model, ranges: Ranges) -> Sequence[Repair]:
        view = View(model)
        if not ranges.high or not any(rounds_anew(view, node) for node in model.graph):
            return ()
        flow = flow_of(model, ranges, rounds=True)
        return tuple(repair for repair in scalings(self.id, flow) if not flow.rounded.isdisjoint(repair.nodes))

    def apply(self, model: ir.Model, repair: Repair) -> bool:
        return scale(model, repair)


SCALE_LOGS = ScaleLogs()
