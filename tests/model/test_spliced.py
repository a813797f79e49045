"""Inputs that begin as one of those given and go on as another."""

from __future__ import annotations

import numpy as np
import pytest

from halfwise.model.inputs.spliced import spliced


def test_tokens_and_their_masks_go_on_as_another_input_from_the_same_place() -> None:
    first = {"ids": np.arange(10)[None], "mask": np.ones((1, 10), np.int64), "x": np.ones(3), "step": np.array([[5]])}
    other = {"ids": np.arange(10, 20)[None], "mask": np.zeros((1, 10), np.int64), "x": np.zeros(3), "step": [[6]]}
    joined = spliced(first, [other], rng=np.random.default_rng(0))
    cut = int(joined["mask"].sum())
    assert 0 < cut < 10
    assert joined["ids"][0].tolist() == [*range(cut), *range(10 + cut, 20)]
    assert joined["x"] is first["x"] and joined["step"] is first["step"]
    assert spliced(first, [{**other, "ids": np.zeros((1, 7))}], rng=np.random.default_rng(0)) == first


@pytest.mark.parametrize("length", [1, 4, 30])
def test_tokens_of_another_length_go_on_with_those_of_another_text(length: int) -> None:
    """Prompts are seldom as long as one another; positions and masks stay as long as the text that they go with."""
    text, other = np.arange(100, 120)[None] * 7 % 50, np.arange(length)[None] * 3 + 500
    feed = {"ids": text, "positions": np.arange(20)[None], "mask": np.ones((1, 20), np.int64)}
    others = [{"ids": other, "positions": np.arange(length)[None], "mask": np.ones((1, length), np.int64)}]
    joined = spliced(feed, others, rng=np.random.default_rng(0), tokens=["ids", "positions"])
    assert joined["positions"] is feed["positions"] and joined["mask"] is feed["mask"]
    tokens = joined["ids"][0].tolist()
    cut = next(place for place, token in enumerate(tokens) if token >= 500)
    assert cut > 0 and tokens[:cut] == text[0, :cut].tolist() and joined["ids"].shape == text.shape
    assert tokens[cut:] == [int(other[0, place % length]) for place in range(cut, 20)]
    assert spliced(feed, others, rng=np.random.default_rng(0)) == feed
