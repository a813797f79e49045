"""Notes on how outputs are judged, and why."""

from __future__ import annotations

from halfwise.core.notes import NoteKind

__all__ = ["OUTPUTS"]

OUTPUTS = {
    NoteKind.OUTPUT_IN_PARTS: (
        "Output {subject!r} mixes units: its slices {spans:names} of axis {axis} are judged apart, and the worst "
        "counts."
    ),
    NoteKind.OUTPUT_FILLED: (
        "Places of output {subject!r} hold {filler:number}, far more than all others: the others are judged by "
        "themselves."
    ),
    NoteKind.OUTPUT_CHOICES: (
        "Output {subject!r} is chosen by comparing {tensors:list}: a difference counts where FP32 chose by more than "
        "its own rounding."
    ),
    NoteKind.OUTPUT_ROWS: (
        "A selection feeds {outputs:list}. Judged are {tensors:list}, from which it selects, and its rows, matched "
        "before they are compared: 95% must be found again."
    ),
    NoteKind.OUTPUT_MATCHED: (
        "A selection feeds {outputs:list}. Their rows are matched before they are compared: 95% must be found again."
    ),
    NoteKind.SAVED_IN_OTHER_ORDER: (
        "The saved outputs are in another order than the samples: number {output} belongs to sample {sample}. "
        "Samples are read by number, 2.npz before 10.npz; save the outputs in that order."
    ),
    NoteKind.OUTPUT_FLOOR: (
        "Output {subject!r} is near zero on some inputs and is judged there by its usual size; relative to itself its "
        "error is {error:.3g}."
    ),
    NoteKind.METRIC_BLIND: (
        "{subject} tells nothing here: on no input does it find anything to count, or to tell apart. Give inputs with "
        "what it looks for."
    ),
    NoteKind.METRIC_TOO_COARSE: (
        "{subject} tells nothing here: on no input does it find anything to count, or to tell apart. Give inputs with "
        "what it looks for, or an option such as {option}."
    ),
    NoteKind.METRIC_BLIND_IN_PART: (
        "{subject} tells nothing on {count} of {total:many input}: it finds nothing there to count, or to tell apart."
    ),
    NoteKind.MOST_FOR_MEASURE: (
        "{share:.0%} of the arithmetic stays in FP32 for the error of {subject!r}. A measure of what this output is "
        "for may need less: --metric {advice:names}."
    ),
    NoteKind.MOST_FOR_NEAR: (
        "Plain FP16 keeps the tolerance on all inputs given; {share:.0%} of the arithmetic stays in FP32 for inputs "
        'near them. To take plain FP16, write {{"schema": "halfwise.plan/1", "fp32_nodes": []}} to a file for --plan.'
    ),
    NoteKind.CHOICE_TURNS: (
        "In plain FP16, {op} {subject!r} takes another entry in {changed} of {total:many place}, on {count} of "
        "{inputs:many input}. In FP32, the two entries differ by at most {apart:.3g}."
    ),
    NoteKind.MOST_FOR_COMPILER: (
        "{share:.0%} of the arithmetic stays in FP32, as the target does not build these nodes in FP16. Most of it is "
        "in node {subject!r} ({op})."
    ),
    NoteKind.MOST_PINNED: (
        "{share:.0%} of the arithmetic cannot be FP16 in any plan. Most of it is in node {subject!r} ({what})."
    ),
}
