"""What the answer of `fix` is worth: its rank and its words, the same wherever it is shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from halfwise.core.notes import CAUTIONS, ENDS_A_BUILD, Note, NoteKind
from halfwise.core.summary import Rank
from halfwise.verbs.fix.promise import Promise

__all__ = ["Denial", "Standing", "caution_of", "standing_of"]


@dataclass(frozen=True)
class Standing:
    """A yes, a yes with a caution, or a no. `here` follows the verb where others like the inputs given may miss; `stop`
    follows what is told where more follows."""

    rank: Rank
    title: str
    told: str  # after the name of the model
    stop: str = ""
    here: str = ""


@dataclass(frozen=True)
class Denial:
    """Who says no where the emulation says yes: in two words, and what the model does there."""

    title: str
    told: str


_MISSED = Standing("missed", "Tolerance not kept", "misses the tolerance in FP16")
_KEPT = Standing("met", "Tolerance kept", "keeps the tolerance in FP16")
_WARY = Standing("caution", "Tolerance kept", "keeps the tolerance in FP16")
_HERE = Standing(
    "caution", "Kept on these inputs", "keeps the tolerance on these inputs in FP16", here=" on these inputs"
)

_FIRST = ENDS_A_BUILD | {NoteKind.REWRITING_MISSES}


def standing_of(
    *, met: bool, denial: Denial | None, synthetic: bool, promise: Promise | None, notes: Iterable[Note]
) -> Standing:
    if not met:
        return _MISSED
    if denial is not None:
        return Standing("missed", denial.title, f"keeps the tolerance in emulation, but {denial.told}", ",")
    if promise is not None and not promise.carried:
        return _HERE
    return _WARY if synthetic or caution_of(notes) is not None else _KEPT


def caution_of(notes: Iterable[Note]) -> Note | None:
    """Why a yes is none to rely on, besides synthetic inputs, which are told anyway: first what ends a build, or gives
    another model than the file's, since nothing else matters there."""
    found = [note for note in notes if note.kind in CAUTIONS and note.kind is not NoteKind.SYNTHETIC]
    return min(found, key=lambda note: note.kind not in _FIRST, default=None)
