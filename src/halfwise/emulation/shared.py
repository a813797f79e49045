"""Answers to several inputs, some of them from helpers elsewhere, such as the idle cores of a cluster.

Who helps is told once, for the process. A helper runs the same session, on the same kind of machine, so that an answer
has the same bits wherever it is made; what no helper answers in time is answered here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import onnx
from numpy.typing import NDArray

from halfwise.emulation.four_bits import with_four_bits
from halfwise.emulation.kept_walks import KeptWalks
from halfwise.emulation.ort import FEW, MANY, Answer, AnySession, Device, Session
from halfwise.emulation.packed_weights import has_packed, with_unpacked
from halfwise.emulation.picked_weights import with_picked
from halfwise.emulation.streamed import Sessions, StreamedSession
from halfwise.emulation.turned_weights import with_turned
from halfwise.emulation.weights import RoundedWeights
from halfwise.precision.rewrite import Weight

__all__ = ["Helpers", "Pending", "Recipe", "SharedSession", "attach", "attached"]

_PACKED = 1 << 24  # bytes of weights up to which a session is kept, and has its own in the order of its products
_LARGE = 1 << 28  # bytes of weights beyond which many threads share a product
_WORTH_S = 1.0  # of answers that others could give
_PATIENCE = 3.0  # times what an answer takes here
_START_S = 30.0  # for a helper's first
_PAUSE_S = 30.0  # after none came

Feed = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Recipe:
    """What a session is made of: `values` of one that runs segment by segment, else None."""

    proto: onnx.ModelProto
    weights: tuple[Weight, ...]
    rounded: RoundedWeights
    values: Mapping[str, onnx.ValueInfoProto] | None
    device: Device = "cpu"

    def session(
        self,
        walked: Callable[[int, int], None] = lambda *_: None,
        known: Sessions | None = None,
        kept: KeptWalks | None = None,
        *,
        redraw: bool = True,
    ) -> AnySession:
        """Without `redraw` each run draws other random numbers."""
        if self.values is None:
            picked, weights = with_picked(*with_four_bits(self.proto, self.weights), self.rounded)
            proto, held = with_turned(picked, weights, self.rounded)
            size = sum(array.nbytes for array in held.values())
            lean = size > _PACKED and not has_packed(proto)
            threads = MANY if size > _LARGE else FEW
            return Session(proto, held, lean=lean, threads=threads, device=self.device, redraw=redraw)
        known = {} if known is None else known
        given = with_four_bits(*with_unpacked(self.proto, self.weights))
        return StreamedSession(*given, self.values, self.rounded, known, walked, self.device, kept, redraw=redraw)


class Pending(Protocol):
    """A question that is with a helper."""

    def answers(self, wait_s: float) -> Sequence[Answer] | None:
        """None where there is nothing by then, or where it was made on another kind of machine."""
        ...


class Helpers(Protocol):
    """Whoever may answer beside this process."""

    def saved(self, seconds: float) -> None:
        """Answers came from elsewhere that would have taken so long here."""
        ...

    def idle(self) -> int:
        """How many could answer now."""
        ...

    def ask(self, recipe: Recipe, feeds: Sequence[Feed]) -> Pending:
        """Begin to answer."""
        ...


@dataclass(frozen=True)
class _Known:
    """How long an answer takes here, the last time that was seen, and until when nobody is asked."""

    seconds: float = 0.0
    pause: float = 0.0


_state: list[tuple[Helpers, _Known]] = []  # of this process: one, where somebody helps


def attach(helpers: Helpers) -> None:
    """From now on sessions of this process share their inputs."""
    _state[:] = [(helpers, _Known())]


def attached() -> bool:
    return bool(_state)


class SharedSession:
    """Like the session that it is given, over several inputs at once."""

    def __init__(self, own: AnySession, recipe: Recipe) -> None:
        self.input_names, self.output_names = own.input_names, own.output_names
        self._own, self._recipe = own, recipe

    def run(self, feeds: Feed, outputs: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
        return self._own.run(feeds, outputs)

    def answers(self, feeds: Sequence[Feed]) -> Iterator[Answer]:
        """The outputs of each input, or why it has none, in their order."""
        given = [{name: feed[name] for name in self.input_names} for feed in feeds]
        first = 1 if len(given) > 1 and not _state[0][1].seconds else 0  # says how long the others take
        yield from self._here(given[:first])
        shares = _shares(given[first:])
        asked = [(share, _state[0][0].ask(self._recipe, share)) for share in shares[1:]]
        yield from self._here(shares[0])
        for share, pending in asked:
            found = pending.answers(_START_S + _PATIENCE * _state[0][1].seconds * len(share))
            if found is None:
                _learn(pause=time.monotonic() + _PAUSE_S)
            else:
                _state[0][0].saved(_state[0][1].seconds * len(found))
            yield from self._here(share) if found is None else found

    def _here(self, feeds: Sequence[Feed]) -> Iterator[Answer]:
        answers, spent = self._own.answers(feeds), 0.0
        for _ in feeds:
            began = time.monotonic()
            answer = next(answers)
            spent += time.monotonic() - began
            yield answer
        if feeds:
            _learn(seconds=spent / len(feeds))


def _learn(seconds: float | None = None, pause: float | None = None) -> None:
    helpers, known = _state[0]
    seconds = known.seconds if seconds is None else seconds
    _state[0] = helpers, _Known(seconds, known.pause if pause is None else pause)


def _shares(feeds: Sequence[Feed]) -> list[Sequence[Feed]]:
    """One for here and one for each helper, in their order and of nearly one length."""
    helpers, known = _state[0]
    worth = known.seconds * (len(feeds) - 1) >= _WORTH_S and time.monotonic() >= known.pause
    count = 1 + (max(min(helpers.idle(), len(feeds) - 1), 0) if worth else 0)
    ends = [-(-len(feeds) * number // count) for number in range(count + 1)]
    return [feeds[start:end] for start, end in pairwise(ends)]
