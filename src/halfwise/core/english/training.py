"""What to change in training, in English."""

from __future__ import annotations

from halfwise.core.notes import NoteKind

__all__ = ["TRAINING"]

TRAINING = {
    NoteKind.TRAIN_NO_DECAY: (
        "weight decay: leave out {at:names}; the norm behind cancels their scale, so weight decay only "
        "drives them towards 0"
    ),
    NoteKind.TRAIN_LESS_DECAY: (
        "weight decay: lower it, or leave out {at:names}. Scale their inputs to about 1 (a norm in front): "
        "small weights there only compensate for large activations"
    ),
    NoteKind.TRAIN_MORE_DECAY: (
        "weight decay: put it on {at:names}, or clip them after each step: nothing keeps them below 65504"
    ),
    NoteKind.TRAIN_NORM_OPERATOR: (
        "norms: train with the framework's own operator in place of {at:names}; it computes its statistics in "
        "FP32 under autocast and exports as one node"
    ),
    NoteKind.TRAIN_NORM_PLACE: (
        "norm placement: {at:names} read a sum of branches, which grows with depth; norm or scale "
        "down each branch before the sum, so that the sum stays below 255, whose square FP16 holds"
    ),
    NoteKind.TRAIN_MASK_VALUE: "masks: at {at:names}, mask with -1e4 in training, too, or with booleans",
    NoteKind.TRAIN_MASK_JOIN: "masks: at {at:names}, join the masks by `and` before they become numbers",
    NoteKind.TRAIN_EPSILON: ("epsilons: at {at:names}, train with 1e-6 or more; FP16 has nothing between 0 and 6e-8"),
    NoteKind.TRAIN_LENGTH: (
        "lengths: at {at:names}, divide by the length plus 1e-6, and keep the normalised values near 1"
    ),
    NoteKind.TRAIN_SOFTMAX: (
        "softmax: at {at:names}, use the framework's softmax or log_softmax, and let the loss take logits"
    ),
    NoteKind.TRAIN_LOGIT: "inverse sigmoid: at {at:names}, pass the logit on; clip to 1e-3 if it must be computed",
    NoteKind.TRAIN_SUM: "sums: at {at:names}, train with means, or with sums divided by their count before",
    NoteKind.TRAIN_RUNNING_SUM: "running sums: at {at:names}, train with a running mean or with shorter ranges",
    NoteKind.TRAIN_COORDINATES: ("coordinates: at {at:names}, train in units of the image or of the cell, from 0 to 1"),
    NoteKind.TRAIN_POSITIONS: ("positions: at {at:names}, scale positions to about 1 before they meet the frequencies"),
    NoteKind.TRAIN_IDS: "ids: at {at:names}, pass ids as integers",
}
