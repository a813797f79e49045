"""What repairs do to the compiler's fusion: kernels of the plain FP16 model, and of the repaired one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from halfwise.compiler.compiled import TIME_LIMIT_S, Compiled, Compiler, Decision
from halfwise.compiler.kernel_names import cast_count, steps
from halfwise.core.errors import HalfwiseError
from halfwise.precision.sites import Sites

if TYPE_CHECKING:
    from halfwise.compiler.audit import Audit

__all__ = ["fusion_words", "with_fusion"]

_STATISTICS = frozenset({"Mean", "Mea"})
_NORMS = ("LayerNormalization", "RMSNormalization", "InstanceNormalization", "GroupNormalization")


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
    with TemporaryDirectory(prefix=".halfwise-", dir=folder if folder and folder.is_dir() else None) as scratch:
        compiler = Compiler(Path(scratch), profiles_from_samples(samples), time_limit_s)
        try:
            before = compiler(Decision(plain, {}, compiled.decision.io_types))
            note = fusion_words(before, compiled.audit, frozenset(site.name for site in plain.all))
        except HalfwiseError as error:
            said = str(error).replace(str(Path(scratch) / "typed.onnx"), "it")
            note = f"fusion before the repairs is not known: the model without them was not compiled: {said}"
    return replace(
        compiled,
        builds=compiled.builds + compiler.builds,
        seconds=compiled.seconds + compiler.seconds,
        notes=(*compiled.notes, note),
    )


def fusion_words(before: Audit, after: Audit, given: frozenset[str]) -> str:
    """`given` are the nodes that the model had before it was repaired."""
    parts = [f"{_kernels(before)} in plain FP16 before the repairs, {_kernels(after)} after", *_norms(after, given)]
    lost = set(before.attention_kernels) - set(after.attention_kernels)
    if before.attention_kernels and not lost:
        parts.append(f"attention stays fused ({', '.join(after.attention_kernels)})")
    elif lost:
        parts.append(f"the fused attention kernel {', '.join(sorted(lost))} is gone")
    return "fusion: " + "; ".join(parts)


def _kernels(audit: Audit) -> str:
    return f"{audit.cost.kernels} kernels with {audit.cost.casts} casts"


def _norms(audit: Audit, given: frozenset[str]) -> Iterator[str]:
    """The norms that repairs wrote as one operator, and where their statistics are taken."""
    for op in _NORMS:
        norms = [node for node in audit.nodes if node.op == op and node.node not in given]
        fused = [node for node in norms if len(node.kernels) == 1]
        wide = [node for node in fused if _wide(node.kernels[0])]
        if norms:
            words = f"{len(fused)} of {len(norms)} {op} in one kernel"
            yield f"{words} each, {len(wide)} with FP32 statistics" if wide else f"{words} each"


def _wide(kernel: str) -> bool:
    """Whether a kernel's name has a cast in front of its mean, and one back behind it."""
    spelled = steps(kernel)
    means = [index for index, step in enumerate(spelled) if step in _STATISTICS]
    if not means or not cast_count(kernel):
        return False
    casts = [index for index, step in enumerate(spelled) if step in ("Cast", "Cas")]
    return casts[0] < means[0] and casts[-1] > means[-1]
