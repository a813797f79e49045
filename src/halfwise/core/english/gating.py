"""What the gate says of each of its checks, and what `compare` says of a difference."""

from __future__ import annotations

from halfwise.core.notes import NoteKind

__all__ = ["GATING"]

GATING = {
    NoteKind.OPERATOR_KEPT: "{subject}; {why}: {reason}",
    NoteKind.NODE_KEPT: "{why}: {reason}",
    NoteKind.KERNELS_RAN: "{kernels:commas}",
    NoteKind.NOW_BEYOND: "now beyond {format}'s largest value",
    NoteKind.PLAN_OF_ANY: "the plan was made for no model in particular",
    NoteKind.PLAN_OF_THIS: "the model that the plan was made for",
    NoteKind.PLAN_OF_OTHER_WEIGHTS: "the graph that the plan was made for, with other weights",
    NoteKind.PLAN_OF_OTHER_SIZE: ("another graph: the plan was made for {planned:many node}, this graph has {nodes:,}"),
    NoteKind.PLAN_OF_OTHER_GRAPH: "another graph with as many nodes: names, wiring, attributes or shapes differ",
    NoteKind.PLAN_OF_OTHER_FILE: (
        "another file with as many nodes; the plan holds no fingerprint of its graph to compare with"
    ),
    NoteKind.PLAN_REFUSED: "{why}",
    NoteKind.NODE_MISSING: "{subject}",
    NoteKind.NODES_MISSING: "the model lacks {missing:,} of the plan's {planned:many node}",
    NoteKind.NODES_CHANGED: "the model has other operators at {changed:,} of the plan's {planned:many node}",
    NoteKind.OPERATOR_CHANGED: "{subject}: was {was}, is {now}",
    NoteKind.NODES_FIT: "the plan's {count:many node is/nodes are} in the model",
    NoteKind.REPAIRS_FIT: "the plan's {count:many repair fits/repairs fit}",
    NoteKind.PLAN_EMPTY: "the plan asks for nothing: all of the model is FP16",
    NoteKind.JOB_NOT_GOOD: "{job}: {told}",
    NoteKind.GATE_MEASURED: "{told}, on {count:many input}",
    NoteKind.GATE_MEASURED_SYNTHETIC: "{told}, on {count:many synthetic input}",
    NoteKind.NOT_MEASURED: "not measured: {why}",
    NoteKind.PLAN_NOT_APPLIED: "the plan cannot be applied",
    NoteKind.COMPILER_REFUSES: "the compiler of {target} refuses the model: {why}",
    NoteKind.NOT_AUDITED: "not audited: {why}",
    NoteKind.NO_ENGINE_GIVEN: "no engine was given to audit",
    NoteKind.PLAN_BROKEN: "{source} breaks the plan at {count:many node}",
    NoteKind.PLAN_NOT_SHOWN: "{source} does not show {count:many node} of the plan",
    NoteKind.PLAN_UPDATED: (
        "{subject} was written anew, with {now:many node} out of FP16; before, {was:,}. "
        "Look at the change and commit it."
    ),
    NoteKind.PLAN_STAYS: "No plan that keeps the tolerance was found: {subject} stays as it was.",
    NoteKind.BASELINE_UPDATED: "{subject} was written anew, with {count:many finding}.",
    NoteKind.PLAN_KEPT: "{source} keeps the plan",
    NoteKind.NODES_UNVERIFIED: "{count:many node} cannot be verified",
    NoteKind.NO_BASELINE: "not compared: no baseline was given (`halfwise scan MODEL --json` makes it)",
    NoteKind.NO_NEW_FINDINGS: "no finding that {baseline} lacks",
    NoteKind.NEW_FINDINGS: "{count:many finding} that {baseline} lacks",
    NoteKind.FINDINGS_FOR_INFORMATION: "{count:,} for information",
    NoteKind.FINDINGS_GONE: "gone since the baseline: {count:,}",
    NoteKind.AT_NODE: "{subject}: {what}",
    NoteKind.FINDING_OF: "{severity} {rule} {subject}: {what}",
}
