"""Why a known defect concerns a target and a model. Parts of a sentence: a report joins them."""

from __future__ import annotations

from halfwise.core.notes import NoteKind

__all__ = ["ADVISING"]

ADVISING = {
    NoteKind.OF_ALL_VERSIONS: "it holds for every version",
    NoteKind.OF_VERSIONS: "{subject} is among the versions concerned ({versions:commas})",
    NoteKind.MAYBE_OF_VERSIONS: "{subject} may be among the versions concerned ({versions:commas})",
    NoteKind.OF_TYPING: "the build is {typing}ly typed",
    NoteKind.ONLY_OF_TYPING: "only where the build is {typing}ly typed (target +{typing})",
    NoteKind.ON_GPU: "{subject} is {gpus:either}",
    NoteKind.MAYBE_ON_GPU: "{subject} is perhaps {gpus:either}",
    NoteKind.ONLY_ON_GPU: "only on {gpus:either}",
    NoteKind.SEEN_ON: "reported on {gpus:commas}",
    NoteKind.SEEN_ON_UNNAMED: "reported on {gpus:commas}; the target names no GPU",
    NoteKind.SEEN_ON_OTHER: "reported on {gpus:commas} only, not on {subject}",
    NoteKind.SEEN_ON_THIS: "reported on {gpus:commas}, the GPU of this target",
    NoteKind.SEEN_ON_MAYBE_THIS: "reported on {gpus:commas}, perhaps the GPU of this target",
    NoteKind.WITH_KERNELS: "the engine has {names:names}",
    NoteKind.ONLY_WITH_KERNELS: "only where the engine has a kernel {names:either}, which it does not tell",
    NoteKind.WITH_OPERATORS: "the model has {names:names}",
    NoteKind.ONLY_WITH_OPERATORS: "only where the model has {names:either}",
    NoteKind.SEEN_WITH: "reported with {what}",
    NoteKind.ONLY_WITH: "only with {what}",
}
