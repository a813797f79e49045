"""HW409 (lossy, only when asked for): tiny weights are flushed and huge ones clipped into FP16's normal range.

Precondition. A weight or bias of a linear operator, a normalisation, a recurrence or a look-up that holds numbers below
2^-14 or above 65504. Epsilons, masks and other constants of pointwise steps are left alone.

What it does. |w| > 65504 becomes 65504, 0 < |w| < 2^-14 becomes 0 or 2^-14, whichever is nearer; signs stay. This is no
equivalence: the FP32 answer changes, by how much the verification says. It is what is done by hand today.

What it buys. A compiler has no subnormal or overflowing weight to warn of. `rescale` (HW401) does it without loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.wording import counted
from halfwise.model.families import RECURRENT
from halfwise.model.model import Model
from halfwise.repair.graph_edit import GraphEdit, is_constant, node_named, whole
from halfwise.repair.rule import Ranges, Repair

__all__ = ["CLIP_WEIGHTS", "ClipWeights"]

_LARGEST = np.float32(65504.0)
_NORMAL = np.float32(2.0**-14)
_SLOTS = {
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm"), (1, 2)),
    **dict.fromkeys(RECURRENT, (1, 2, 3)),
    **dict.fromkeys(("LayerNormalization", "InstanceNormalization", "GroupNormalization"), (1, 2)),
    "BatchNormalization": (1, 2),
    "RMSNormalization": (1,),
    "MatMul": (0, 1),
    "Gather": (0,),
}


class ClipWeights:
    """Weights clipped and flushed into FP16's normal range."""

    id = "HW409"
    name = "clip-weights"
    bound = math.inf
    lossy = True

    def find(self, model: Model, ranges: Ranges) -> Sequence[Repair]:
        return tuple(repair for node in model.graph for slot in _slots(node) if (repair := _found(node, slot)))

    def apply(self, model: ir.Model, repair: Repair) -> bool:
        node = node_named(model, repair.nodes[0])
        slot = repair.parameters["slot"]
        array = whole(node.inputs[slot]) if node is not None and slot in _slots(node) else None
        if node is None or array is None:
            return False
        node.replace_input_with(slot, GraphEdit(model, node, "clipped").constant(_clipped(array)))
        return True


CLIP_WEIGHTS = ClipWeights()


def _slots(node: ir.Node) -> tuple[int, ...]:
    slots = () if node.domain else _SLOTS.get(node.op_type, ())
    return tuple(slot for slot in slots if slot < len(node.inputs) and is_constant(node.inputs[slot]))


def _found(node: ir.Node, slot: int) -> Repair | None:
    array = whole(node.inputs[slot])
    if array is None or array.dtype != np.float32 or not np.isfinite(array).all():
        return None
    sizes = np.abs(array)
    tiny, huge = int(((sizes > 0) & (sizes < _NORMAL)).sum()), int((sizes > _LARGEST).sum())
    if not tiny and not huge:
        return None
    change = np.linalg.norm(array.astype(np.float64) - _clipped(array))
    numbers = {"slot": slot, "flushed": tiny, "clipped": huge, "change": float(change)}
    flushed = f"{counted(tiny, 'weight')} below 2^-14 flushed"
    says = f"{node.name}: input {slot}: {flushed}, {huge} clipped to 65504; not the same in FP32"
    return Repair("HW409", (node.name or "",), says, numbers)


def _clipped(array: NDArray[Any]) -> NDArray[Any]:
    sizes = np.abs(array)
    flushed = np.where(sizes < _NORMAL, np.where(sizes < _NORMAL / 2, np.float32(0), _NORMAL), sizes)
    clipped: NDArray[Any] = np.copysign(np.minimum(flushed, _LARGEST), array)
    return clipped
