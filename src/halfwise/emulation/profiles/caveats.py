"""What a user should know of what judged: that nobody proved a profile, or that the installed runtime has a defect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import onnx_ir as ir

from halfwise.core.notes import Note, NoteKind
from halfwise.core.put_off import Later
from halfwise.emulation.profiles.profile import Profile

if TYPE_CHECKING:
    import onnxruntime as ort
else:
    ort = Later("onnxruntime")

__all__ = ["caveats"]

_MENDED = (1, 32)  # the first ONNX Runtime whose MoE does not clear its input where its output takes the same memory


def caveats(profile: Profile, nodes: Iterable[ir.Node]) -> Iterator[Note]:
    nodes = list(nodes)
    if profile.inferred:
        yield Note.of(NoteKind.PROFILE_UNPROVEN, profile.name)
    if ops := sorted({node.op_type for node in nodes if not node.domain} & profile.two_ended):
        yield Note.of(NoteKind.PROFILE_TWO_ENDED, profile.name, ops=ops)
    experts = next((node for node in nodes if (node.domain, node.op_type) == ("com.microsoft", "MoE")), None)
    if experts is not None and _numbers(ort.__version__) < _MENDED:
        yield Note.of(NoteKind.RUNTIME_OVERWRITES, experts.name or "", op=experts.op_type, version=ort.__version__)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
