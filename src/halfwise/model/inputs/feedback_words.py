"""The states of a rollout as a user writes them: one text with a * for those of many layers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile

from halfwise.model.inputs.rollout import Rollout, pairs_of

__all__ = ["feedback_words"]


def feedback_words(rollout: Rollout, outputs: Sequence[str]) -> tuple[str, ...]:
    """OUTPUT=INPUT for every state; a text with a * where it names several, and no other of the model's `outputs`."""
    left, found = dict.fromkeys(rollout.feedback), list[str]()
    for pair in rollout.feedback:
        if pair in left:
            texts: dict[str, tuple[tuple[str, str], ...]] = {"=".join(pair): (pair,)}
            for text in _with_star(*pair):
                named = pairs_of(text, outputs)
                if pair in named and left.keys() >= set(named):
                    texts[text] = tuple(named)
            widest = max(texts, key=lambda text: len(texts[text]))
            found.append(widest)
            for each in texts[widest]:
                del left[each]
    return tuple(found)


def _with_star(output: str, state: str) -> Iterator[str]:
    """In the place of what both end with, and of each number that both have."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(output[::-1], state[::-1], strict=False)))
    parts = [output[len(output) - same :].lstrip("._/"), *re.findall(r"\d+", output)]
    for part in parts:
        if part and output.count(part) == state.count(part) == 1:
            yield f"{output.replace(part, '*')}={state.replace(part, '*')}"
