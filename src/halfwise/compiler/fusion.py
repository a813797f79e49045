"""What repairs do to the compiler's fusion: kernels of the plain FP16 model, and of the repaired one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halfwise.compiler.compiled import TIME_LIMIT_S, Compiled, Compiler
from halfwise.compiler.kernel_names import cast_count, hides_steps, steps
from halfwise.core.errors import HalfwiseError
from halfwise.core.notes import Note, NoteKind
from halfwise.core.whole_files import scratch_folder
from halfwise.model.families import NORMS
from halfwise.precision.decision import Decision
from halfwise.precision.sites import Sites

if TYPE_CHECKING:
    from halfwise.compiler.audit import Audit

__all__ = ["fusion_notes", "with_fusion"]

_STATISTICS = frozenset({"Mean", "Mea"})


def with_fusion(
    compiled: Compiled,
    plain: Sites,
    samples: Sequence[Mapping[str, Any]],
    folder: Path | None,
    notify: Callable[[str], None],
    time_limit_s: float = TIME_LIMIT_S,
) -> Compiled:
    """Compile the model as given, all in FP16, too, and note the comparison; as it is where nothing was compiled."""
    from halfwise.compiler.build import profiles_from_samples

    if compiled.audit is None:
        return compiled
    notify("compiling the model without its repairs, to compare the kernels")
    with scratch_folder(folder) as scratch:
        compiler = Compiler(scratch, profiles_from_samples(samples), time_limit_s)
        try:
            before = compiler(Decision(plain, {}, compiled.decision.io_types))
            notes = tuple(fusion_notes(before, compiled.audit, frozenset(site.name for site in plain.all)))
        except HalfwiseError as error:
            said = str(error).replace(str(scratch / "typed.onnx"), "it")
            notes = (Note.of(NoteKind.FUSION_UNKNOWN, error=said),)
    builds, seconds = compiled.builds + compiler.builds, compiled.seconds + compiler.seconds
    return replace(compiled.noting(*notes), builds=builds, seconds=seconds)


def fusion_notes(before: Audit, after: Audit, given: frozenset[str]) -> Iterator[Note]:
    """`given` are the nodes that the model had before it was repaired."""
    yield Note.of(
        NoteKind.FUSION,
        before=before.cost.kernels,
        casts_before=before.cost.casts,
        after=after.cost.kernels,
        casts_after=after.cost.casts,
    )
    yield from _norms(after, given)
    lost = set(before.attention_kernels) - set(after.attention_kernels)
    if lost:
        yield Note.of(NoteKind.ATTENTION_UNFUSED, kernels=sorted(lost))
    elif before.attention_kernels:
        yield Note.of(NoteKind.ATTENTION_STAYS_FUSED, kernels=list(after.attention_kernels))


def _norms(audit: Audit, given: frozenset[str]) -> Iterator[Note]:
    """The norms that repairs wrote as one operator, and where their statistics are taken."""
    for op in NORMS:
        norms = [node for node in audit.nodes if node.op == op and node.node not in given]
        fused = [node for node in norms if len(node.kernels) == 1]
        wide = [node for node in fused if _wide(node.kernels[0])]
        if norms:
            yield Note.of(NoteKind.NORMS_FUSED, op, fused=len(fused), norms=len(norms), wide=len(wide))


def _wide(kernel: str) -> bool:
    """Whether a kernel's name has a cast in front of its mean, and one back behind it, if it shows that."""
    spelled = steps(kernel)
    means = [index for index, step in enumerate(spelled) if step in _STATISTICS]
    if not means or not cast_count(kernel):
        return False
    casts = [index for index, step in enumerate(spelled) if step in ("Cast", "Cas")]
    return casts[0] < means[0] and (casts[-1] > means[-1] or hides_steps(kernel))
