"""What the input slots of operators state, where they hold no data: a shape, an axis, whether a part runs at all."""

from __future__ import annotations

from enum import Enum

from halfwise.model.families import REDUCTIONS

__all__ = ["INDEX_SLOTS", "SHAPE_READERS", "SLOTS", "States", "index_slots", "shape_slots", "states"]


class States(Enum):
    SHAPE = "shape"  # its value decides the shape of an output
    PLACE = "place"  # it names an axis or a diagonal, and leaves the shape as it is
    RUNS = "runs"  # whether, or how often, a part of the model runs


# Operators that look at a tensor's shape only.
SHAPE_READERS = frozenset({"Shape", "Size"})

_S, _P, _R = States.SHAPE, States.PLACE, States.RUNS

# The same slots in every opset that has them. Resize's roi and scales change places in opset 11; both are here.
SLOTS: dict[str, dict[int, States]] = {
    "AffineGrid": {1: _S},
    "BlackmanWindow": {0: _S},
    "CenterCropPad": {1: _S},
    "Col2Im": {1: _S, 2: _S},
    "ConstantOfShape": {0: _S},
    "CumProd": {1: _P},
    "CumSum": {1: _P},
    "DFT": {1: _S, 2: _S},  # a one-sided transform halves the axis
    "Expand": {1: _S},
    "HammingWindow": {0: _S},
    "HannWindow": {0: _S},
    "If": {0: _R},
    "Loop": {0: _S, 1: _R},  # as many passes, as long are the outputs that it gathers
    "MaxUnpool": {2: _S},
    "MelWeightMatrix": {0: _S, 1: _S},
    "NonMaxSuppression": {2: _S},
    "OneHot": {1: _S},
    "Pad": {1: _S, 3: _S},
    "Range": {0: _S, 1: _S, 2: _S},
    "Reshape": {1: _S},
    "Resize": {1: _S, 2: _S, 3: _S},
    "STFT": {1: _S, 3: _S},
    "Slice": {1: _S, 2: _S, 3: _S, 4: _S},
    "Split": {1: _S},
    "SplitToSequence": {1: _S},
    "Squeeze": {1: _S},
    "Tile": {1: _S, 2: _S},
    "TopK": {1: _S},
    "Trilu": {1: _P},
    "Unsqueeze": {1: _S},
    "Upsample": {1: _S},
    **{name: {1: _S} for name in REDUCTIONS},
}

# Slots of data that say where other data is: indices, labels, lengths.
INDEX_SLOTS: dict[str, tuple[int, ...]] = {
    "Attention": (6,),
    "GRU": (4,),
    "LSTM": (4,),
    "MaxUnpool": (1,),
    "NegativeLogLikelihoodLoss": (1,),
    "OneHot": (0,),
    "RNN": (4,),
    "ReverseSequence": (1,),
    "RoiAlign": (2,),
    "RotaryEmbedding": (3,),
    "SequenceAt": (1,),
    "SequenceErase": (1,),
    "SequenceInsert": (2,),
    "SoftmaxCrossEntropyLoss": (1,),
    "TensorScatter": (2,),
    **dict.fromkeys(("Gather", "GatherElements", "GatherND", "Scatter", "ScatterElements", "ScatterND"), (1,)),
}


def states(op: str, domain: str, slot: int) -> States | None:
    """What the slot states; None where it takes data."""
    return None if domain else SLOTS.get(op, {}).get(slot)


def shape_slots(op: str, domain: str = "") -> tuple[int, ...]:
    """All slots of the operator that state something."""
    return () if domain else tuple(SLOTS.get(op, ()))


def index_slots(op: str, domain: str = "") -> tuple[int, ...]:
    """All slots of the operator that say where data is."""
    return () if domain else INDEX_SLOTS.get(op, ())
