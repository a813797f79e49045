"""HW412: a phase is wrapped to a period before it is scaled, and its sine or cosine taken.

Precondition. All ways from a value lead through constant factors, sums with other values, negations, and what moves or
repeats values, to Sin or Cos; the factors on these ways are whole multiples of one of them; and the phase reached
several periods. Vocoders sum frequencies so (CumSum), and scale the sum by 2 pi and the numbers of the harmonics.

Proof. sin(c (y - n P)) = sin(c y) for whole n, where c P is a multiple of 2 pi. The remainder of fmod is exact; where
y counts periods, P = 1 is exact, too. Else P is rounded, by as much of the phase as FP32 rounds it in c y.

What it buys. Beyond 2^11 FP16's numbers are 2 apart, a third of a period. A phase has to be summed in FP32 (so does
what is summed, of which errors add up); behind the remainder, which stays in FP32 as well, harmonics, sines and all
that follows need not be.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from halfwise.model.model import Model
from halfwise.model.moving import only_moves
from halfwise.model.patterns.phases import WAVES, PhaseWays
from halfwise.model.patterns.view import View
from halfwise.repair.graph_edit import GraphEdit, node_named, view_of
from halfwise.repair.rule import Ranges, Repair

__all__ = ["WRAP_PHASE", "WrapPhase"]

_FIRST_OPSET = 10  # of Mod
_LEAST = 64.0  # FP16 steps by 1/16 from here on
_ALGEBRA = ("sin(c y)", "sin(c (y mod P)), where c P = 2 pi n")


class WrapPhase:
    """Remainders of phases that are summed up."""

    id = "HW412"
    name = "wrap-phase"
    bound = 1e-3
    lossy = False

    def find(self, model: Model, ranges: Ranges) -> Sequence[Repair]:
        if model.opset() < _FIRST_OPSET:
            return ()
        view = View(model)
        ways = PhaseWays(view)
        found: dict[ir.Value, Repair] = {}
        for wave in view.of(*WAVES):
            value = wave.inputs[0]
            if value is None or ranges.high.get(value.name or "", 0.0) < _LEAST:
                continue
            start, between = ways.start(value, ranges.high)
            period, uses = ways.period(start), ways.uses(start)
            # A remainder in front of a single sine is one node instead of another.
            pays = len(uses) > 1 or not all(map(only_moves, between))
            wrapped = any(node.op_type == "Mod" for node, _ in uses) or view.maker(start, "Mod") is not None
            if start not in found and period is not None and pays and not wrapped:
                made_by = [node.name or "" for node in (start.producer(),) if node is not None]
                nodes = (*made_by, *dict.fromkeys(node.name or "" for node, _ in uses))
                place = {"value": start.name or "", "period": float(np.float32(period))}
                found[start] = Repair.equation(self.id, nodes, _ALGEBRA, place, wide=True)
        return tuple(found.values())

    def apply(self, model: ir.Model, repair: Repair) -> bool:
        node = node_named(model, repair.nodes[-1])
        name = repair.parameters["value"]
        start = next((v for v in node.inputs if v is not None and v.name == name), None) if node is not None else None
        if start is None:
            return False
        view = view_of(model)
        ways = PhaseWays(view)
        uses = ways.uses(start)
        period = repair.parameters["period"]
        if not uses or np.float32(ways.period(start) or 0.0) != np.float32(period):
            return False
        first = min((reader for reader, _ in uses), key=view.order.__getitem__)
        edit = GraphEdit(model, first, "wrapped")
        wrapped = edit.op("Mod", [start, edit.constant(period)], {"fmod": 1})
        wrapped.shape = start.shape
        for reader, slot in uses:
            reader.replace_input_with(slot, wrapped)
        return True


WRAP_PHASE = WrapPhase()
