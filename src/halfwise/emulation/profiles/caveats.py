"""What a user should know of the profile that judged: that nobody proved it, or that it has two ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx_ir as ir

from halfwise.core.notes import Note, NoteKind
from halfwise.emulation.profiles.profile import Profile

__all__ = ["caveats"]


def caveats(profile: Profile, nodes: Iterable[ir.Node]) -> Iterator[Note]:
    if profile.inferred:
        yield Note.of(NoteKind.PROFILE_UNPROVEN, profile.name)
    if ops := sorted({node.op_type for node in nodes if not node.domain} & profile.two_ended):
        yield Note.of(NoteKind.PROFILE_TWO_ENDED, profile.name, ops=ops)
