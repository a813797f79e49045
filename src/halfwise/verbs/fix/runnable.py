"""Where ONNX Runtime does not run what was written, or runs it wrong: the nodes in FP32 with which it runs right.

The runtime rewrites a model before it runs it, and crashes or refuses where types meet that a rewrite did not foresee.
An operator without a kernel in FP16 becomes steps that may overflow where a kernel would not.
What it computes otherwise in FP32, too, no node of these mends.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import onnx_ir as ir

from halfwise.backends.as_written import NoKernel, run_as_written
from halfwise.backends.backend import BackendFailure
from halfwise.core.fewest import fewest
from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.core.tolerance import Verdict
from halfwise.core.whole_files import WholeFiles, scratch_folder
from halfwise.deploy.targets import kind_of
from halfwise.model.contrib.steps_grouped import slides_cache
from halfwise.model.inputs.rollout import executions
from halfwise.model.model import Model
from halfwise.precision.plan import PlannedNode
from halfwise.precision.typed_onnx import write_typed
from halfwise.search.run_counter import Untried
from halfwise.verbs.fix.candidate import Candidate
from halfwise.verbs.fix.delivered import Delivered, few, judged_as_written, limit_s
from halfwise.verbs.fix.feedback import Feedback
from halfwise.verbs.fix.prepare import Prepared

__all__ = ["known_kernels", "runnable"]

TIME_LIMIT_S = 120.0  # for all tries together
INT8_LEVEL = 4  # of a product's accuracy, as ONNX Runtime numbers them


def runnable(prepared: Prepared, found: Feedback, delivered: Delivered) -> Feedback | Note | None:
    """What was found with as many nodes more in FP32 as it takes; None where that is no help, or not needed. A note
    where it is the runtime's own doing."""
    request, decision = prepared.request, found.candidate.adjustment.decision
    stated = {*request.choices.kept, *request.choices.forced}
    may = [
        site.node
        for site in decision.sites.free
        if site.node not in decision.formats and site.node not in decision.sites.forced and site.name not in stated
    ]
    feeds = few(found.candidate.decided.samples)[: None if delivered.refutes else 1]
    until = time.monotonic() + TIME_LIMIT_S
    misses = list[Verdict]()
    counter, judges = prepared.context.counter, 1 + len(found.context.also)
    emulated = executions(found.candidate.decided.samples.all) * judges if delivered.refutes else 0

    def may_ask() -> bool:
        """What is found is judged again, whose runs are kept back."""
        return time.monotonic() <= until and counter.free(emulated, Untried.RUNTIME)

    def runs(nodes: Sequence[ir.Node]) -> bool:
        if delivered.refutes and not _with(found, nodes).holds(found.context):
            return False
        with scratch_folder(request.out) as folder:
            path = folder / "model.onnx"
            written = kind_of(request.target).as_written(decision.with_fp32(nodes).assignment)
            with WholeFiles(path.parent) as files:
                write_typed(written, path, files)
            prepared.context.stepper.rest()
            try:
                seconds = max(1.0, min(until - time.monotonic(), limit_s(written)))
                outputs = run_as_written(path, feeds, seconds, decision.sites)
            except NoKernel:
                return not delivered.refutes
            except BackendFailure:
                return False
            if not delivered.refutes:
                return True
            verdict = judged_as_written(prepared, found.candidate, feeds, outputs).verdict
            misses.extend([] if verdict.met else [verdict])
            return verdict.met

    does = "misses the tolerance" if delivered.refutes else "does not run"
    if not may_ask():
        return None
    request.notify(f"looking for the nodes with which ONNX Runtime {does} in FP16")
    if not runs(may):
        return _own_doing(decision.sites.model, misses[0]) if misses and not stated else None
    wanted = fewest(may, runs, may_ask)
    if not wanted:
        return None
    added = [
        PlannedNode(n.name or "", n.op_type, Format.FP32, Reason.COMPILER, (_because(n, delivered),)) for n in wanted
    ]
    return replace(found, candidate=_with(found, wanted, added))


def _own_doing(model: Model, miss: Verdict) -> Note:
    """Why what has no node in FP16 misses."""
    return Note.of(NoteKind.DELIVERED_MISSES_IN_FP32, error=miss.because, why=known_kernels(model))


def known_kernels(model: Model) -> Note:
    """What ONNX Runtime's CPU provider computes otherwise than the model says, whatever the formats."""
    levels = [node.attributes.get_int("accuracy_level", 0) for node in model.nodes if node.op_type == "MatMulNBits"]
    if any(map(slides_cache, model.nodes)):
        return Note.of(NoteKind.UNWRITTEN_ROWS)
    if INT8_LEVEL in levels:
        return Note.of(NoteKind.INT8_PRODUCTS)
    if any(map(_dequantises_a_table, model.nodes)):
        return Note.of(NoteKind.INT8_FUSED)
    return Note.of(NoteKind.KERNELS_DECIDE)


def _dequantises_a_table(node: ir.Node) -> bool:
    """Whether it is a product that ONNX Runtime joins with the DequantizeLinear of its weight."""
    made = node.inputs[1].producer() if node.op_type == "MatMul" and node.inputs[1] is not None else None
    table = made.inputs[0] if made is not None and made.op_type == "DequantizeLinear" else None
    return table is not None and table.is_initializer()


def _with(found: Feedback, nodes: Sequence[ir.Node], added: Sequence[PlannedNode] = ()) -> Candidate:
    """With these nodes in FP32, too."""
    adjustment = found.candidate.adjustment
    return replace(found.candidate, adjustment=adjustment.to(adjustment.decision.with_fp32(nodes), added))


def _because(node: ir.Node, delivered: Delivered) -> Note:
    if delivered.refutes:
        return Note.of(NoteKind.KEEPS_CPU_RIGHT, node.op_type)
    return Note.of(NoteKind.KEEPS_RUNNABLE, node.op_type)
