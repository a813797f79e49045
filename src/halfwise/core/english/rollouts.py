"""Notes on models that run many steps in a row."""

from __future__ import annotations

from halfwise.core.notes import NoteKind

__all__ = ["ROLLOUTS"]

ROLLOUTS = {
    NoteKind.ROLLOUT: (
        "Judged on {count:many trajectory/trajectories} of {steps} steps. Each step takes the state that the same "
        "model gave before it: {states:names}."
    ),
    NoteKind.ROLLOUT_AGAIN: (
        "{frames:many sample makes/samples make} no two trajectories of {steps} steps, so the stream is read again "
        "from its start. Give more samples."
    ),
    NoteKind.ROLLOUT_REUSED: (
        "The only held-out trajectory was borderline and is now used for the search; the same trajectories validate. "
        "Give more samples."
    ),
    NoteKind.ROLLOUT_GROWS: (
        "The error grows along the trajectory, by {growth:.1%} a step: from {first:.2g} to {last:.2g} times the "
        "allowed error over {steps} steps."
    ),
}
