"""What a decision has to look like for ONNX Runtime to load it, and to run its norms in one kernel each."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from halfwise.compiler.compiled import Decision
from halfwise.core.targets import Runtime, Target
from halfwise.deploy.onnxruntime.norm_kernels import refusal_note, settle_norms
from halfwise.deploy.onnxruntime.settling import About, Settled
from halfwise.deploy.onnxruntime.transposed_products import cpu_crash_note, crash_note, settle_transposes
from halfwise.precision.assignment import Assignment

__all__ = ["settle_for"]


def settle_for(
    target: Target,
    decision: Decision,
    aim: Callable[[Assignment], float],
    *,
    stated: Collection[str] = (),
    given: bool = False,
) -> Settled:
    """What suits a target that may be ONNX Runtime; of a decision that is `given`, only what there is to say.

    `aim` measures: what is changed may not come out worse than before, or than what is allowed. Nodes that are
    `stated` by the user stay as they are.
    """
    if target.runtime not in (Runtime.ONNX, Runtime.ORT_CUDA):
        return Settled(dict(decision.formats))
    found = Settled(dict(decision.formats))
    if not given:

        def holds(other: Assignment) -> bool:
            return aim(other) <= max(1.0, aim(decision.assignment))

        about = About(decision.sites, decision.io_types, frozenset(stated), holds)
        found = settle_norms(about, found, fused=target.runtime is Runtime.ORT_CUDA)
        found = settle_transposes(about, found)
    assignment = Assignment.excepting(decision.sites, found.formats, decision.io_types)
    on_cpu = cpu_crash_note(assignment) if target.runtime is Runtime.ONNX else None
    notes = (refusal_note(assignment), crash_note(assignment) or on_cpu)
    return replace(found, notes=(*found.notes, *(note for note in notes if note)))
