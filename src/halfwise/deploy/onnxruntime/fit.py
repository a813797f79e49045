"""What a decision has to look like for ONNX Runtime to load it, and to run its norms in one kernel each."""

from __future__ import annotations

from collections.abc import Callable, Collection

from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.deploy.onnxruntime.adjustable import Adjustable
from halfwise.deploy.onnxruntime.cpu_kernels import adjust_refused, cpu_refusal_note
from halfwise.deploy.onnxruntime.cuda_kernels import adjust_kernels
from halfwise.deploy.onnxruntime.norm_kernels import adjust_norms, refusal_note
from halfwise.deploy.onnxruntime.quantised_biases import adjust_biases
from halfwise.deploy.onnxruntime.quantised_joins import adjust_joins
from halfwise.deploy.onnxruntime.transposed_products import adjust_transposes, cpu_crash_note, crash_note
from halfwise.deploy.onnxruntime.turned_products import adjust_for_cpu, products_first
from halfwise.model.contrib.kernels import only_narrow_on_cuda
from halfwise.model.contrib.schemas import DOMAIN
from halfwise.precision.assignment import Assignment
from halfwise.precision.decision import Adjustment, Decision

__all__ = ["adjust_for"]


def adjust_for(
    decision: Decision,
    ratio: Callable[[Assignment], float],
    *,
    stated: Collection[str] = (),
    given: bool = False,
    fused: bool,
    on_cpu: bool,
) -> Adjustment:
    """What suits ONNX Runtime; of a decision that is `given`, only what there is to say.

    `ratio` measures: what is changed may not come out worse than before, or than what is allowed. Nodes that are
    `stated` by the user stay as they are. `fused`: its norms run in one kernel each; `on_cpu`: it may be the CPU's.
    """
    found = Adjustment(decision)
    if not given:

        def holds(other: Assignment) -> bool:
            return ratio(other) <= max(1.0, ratio(decision.assignment))

        may = Adjustable(decision.sites, decision.io_types, frozenset(stated), holds)
        found = adjust_norms(may, found, fused=fused)
        found = adjust_biases(may, adjust_transposes(may, found))
        found = adjust_joins(may, found, on_cpu=on_cpu)
        found = adjust_refused(may, found, on_cpu=on_cpu)
        found = adjust_for_cpu(may, found) if on_cpu else adjust_kernels(may, found)
    assignment = found.decision.assignment
    crash = crash_note(assignment) or (cpu_crash_note(products_first(assignment)) if on_cpu else None)
    refused = cpu_refusal_note(assignment) if on_cpu else None
    slow = None if on_cpu else _left_to_the_cpu(assignment)
    return found.noting(*(note for note in (refusal_note(assignment), crash, refused, slow) if note))


def _left_to_the_cpu(assignment: Assignment) -> Note | None:
    """What to say of operators in FP32 that the CUDA provider computes in narrow formats only."""
    nodes = (node for node in assignment.sites.model.nodes if node.domain == DOMAIN)
    left = [node for node in nodes if only_narrow_on_cuda(node.op_type) and assignment.of(node) is Format.FP32]
    return Note.of(NoteKind.OWN_WIDE_ON_CPU, left[0].name, op=left[0].op_type) if left else None
