"""What an audit says of a node: parts of a sentence, joined by semicolons."""

from __future__ import annotations

from halfwise.core.notes import NoteKind

__all__ = ["AUDITING"]

_MODEL = "give the model that was built (--model)"

AUDITING = {
    NoteKind.RAN_OTHERWISE: "wanted {wanted}, got {got}; {why:said}",
    NoteKind.NOT_SHOWN: "wanted {wanted}, nothing shows it; {why:said}",
    # Nodes that are not in the engine by name
    NoteKind.NODE_NOT_IN_ENGINE: "the engine's model has no node of that name; is this the plan of another model?",
    NoteKind.NO_LAYER_NAMED: (
        "no layer has its name, and the engine lists only names: build with --profilingVerbosity=detailed"
    ),
    NoteKind.MAYBE_IN_REGION: (
        "no layer has its name; it may be inside one of {regions:many Myelin region}: " + _MODEL
    ),
    NoteKind.NO_LAYER_HAS_IT: "no layer names it: folded away, or of another model; " + _MODEL,
    NoteKind.MAYBE_IN_ANY_REGION: "no layer has its name; it may be inside a Myelin region",
    NoteKind.NO_KERNEL_NAMED: "no kernel has its name, and {count:many kernel names/kernels name} no node",
    NoteKind.LIST_NOT_WHOLE: "in no kernel, like most nodes: the list of layers may be incomplete",
    NoteKind.FOLDED_AWAY: "in no kernel: folded, merged or removed",
    NoteKind.LIST_NAMES_NO_NODES: "the layer list names no ONNX nodes",
    NoteKind.UNROLLED: "unrolled into kernels that do not have its name",
    NoteKind.UNROLLED_ONE_TYPE: (
        "unrolled into kernels that do not have its name; every kernel of the engine has that type"
    ),
    NoteKind.UNROLLED_AS_STATED: (
        "unrolled into kernels that do not have its name; as the model states it (strong typing)"
    ),
    # Regions
    NoteKind.ONLY_TYPE_ALLOWED: "the build allowed no other type",
    NoteKind.NORM_WARNED: "TensorRT's own warning names it among the LayerNorm layers in FP16",
    NoteKind.IN_REGION: (
        "inside a Myelin region, whose inputs and outputs are {types:plain}; types inside are not visible"
    ),
    NoteKind.IN_REGION_UNTYPED: (
        "inside a Myelin region, whose inputs and outputs state no type; types inside are not visible"
    ),
    NoteKind.IN_ATTENTION: ("inside {kernel}: only the types of Q, K, V and the result ({types:plain}) are visible"),
    # Kernels
    NoteKind.KERNELS_DIFFER: "its {count:many kernel differs/kernels differ}: {types:plain}",
    NoteKind.KERNEL_UNTYPED: "the engine does not list this kernel's types",
    NoteKind.KERNEL_PARTLY_TYPED: ("some inputs or outputs of its kernel state no type; those that do: {types:plain}"),
    NoteKind.NAME_HIDES_STEPS: (
        "its kernel reads and writes {types:plain}; its name is too long to show all casts inside"
    ),
    NoteKind.READS_AND_WRITES: "its kernel reads and writes {types:plain}",
    NoteKind.MULTIPLIES_NARROW: "reads and writes fp32, but its tactic multiplies in {operands} ({tactic})",
    NoteKind.STEP_NOT_SHOWN: "its kernel reads and writes {types:plain}; its name shows no step of this node",
    NoteKind.STEP_UNNAMED: "no kernel has its name; {count:many kernel shows/kernels show} a step of its operator",
    NoteKind.WEIGHT_NARROWED: "the model states {stated}, but its kernel reads its weight in {found}",
    NoteKind.STATED_OTHERWISE: "the model states {stated}, but all that its kernel reads and writes is {found}",
    NoteKind.TACTIC_MATH: "{operand} in, {accumulator} accumulated",
    NoteKind.BEFORE_CASTS: "before the first cast in its kernel",
    NoteKind.AFTER_CASTS: "after the last cast in its kernel",
    NoteKind.AS_MODEL_STATES: (
        "as the model states it (strong typing); its kernel reads {reads:plain} and writes {writes:plain}"
    ),
    NoteKind.AS_MODEL_STATES_CASTS: (
        "as the model states it (strong typing); its kernel reads {reads:plain}, writes {writes:plain}, "
        "and casts {casts:many time} inside"
    ),
    NoteKind.AS_MODEL_STATES_LONG: (
        "as the model states it (strong typing); its kernel reads {reads:plain}, writes {writes:plain}, and casts "
        "inside; its name is too long to show all casts"
    ),
    NoteKind.BETWEEN_CASTS: (
        "between two casts in its kernel, which reads {reads:plain} and writes {writes:plain}; "
        "by the kernel's name only"
    ),
    NoteKind.CASTS_UNPLACED: (
        "its kernel reads {reads:plain}, writes {writes:plain}, and casts {casts:many time} inside; "
        "on which side of this node is not visible"
    ),
    NoteKind.COMPUTES_UNSEEN: (
        "its kernel reads {reads:plain} and writes {writes:plain}; what it computes in is not visible"
    ),
}
