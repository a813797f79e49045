"""What a decision has to look like for ONNX Runtime to load it, and to run its norms in one kernel each."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from halfwise.compiler.compiled import Decision
from halfwise.deploy.onnxruntime.norm_kernels import refusal_note, settle_norms
from halfwise.deploy.onnxruntime.settling import About, Settled
from halfwise.deploy.onnxruntime.transposed_products import cpu_crash_note, crash_note, settle_transposes
from halfwise.precision.assignment import Assignment

__all__ = ["settle_for"]


def settle_for(
    decision: Decision,
    aim: Callable[[Assignment], float],
    *,
    stated: Collection[str] = (),
    given: bool = False,
    fused: bool,
    on_cpu: bool,
) -> Settled:
    """What suits ONNX Runtime; of a decision that is `given`, only what there is to say.

    `aim` measures: what is changed may not come out worse than before, or than what is allowed. Nodes that are
    `stated` by the user stay as they are. `fused`: its norms run in one kernel each; `on_cpu`: it may be the CPU's.
    """
    found = Settled(dict(decision.formats))
    if not given:

        def holds(other: Assignment) -> bool:
            return aim(other) <= max(1.0, aim(decision.assignment))

        about = About(decision.sites, decision.io_types, frozenset(stated), holds)
        found = settle_norms(about, found, fused=fused)
        found = settle_transposes(about, found)
    assignment = Assignment.excepting(decision.sites, found.formats, decision.io_types)
    crash = crash_note(assignment) or (cpu_crash_note(assignment) if on_cpu else None)
    notes = (refusal_note(assignment), crash)
    return replace(found, notes=(*found.notes, *(note for note in notes if note)))
