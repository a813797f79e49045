"""States of many layers in one text: what is written names the same states when it is read."""

from __future__ import annotations

import pytest

from halfwise.model.inputs.feedback_words import feedback_words
from halfwise.model.inputs.rollout import Rollout, rollout_of

CACHE = [(f"present.{n}.{what}", f"past_key_values.{n}.{what}") for n in range(12) for what in ("key", "value")]


@pytest.mark.parametrize(
    ("pairs", "others", "wanted"),
    [
        (CACHE, ["logits"], ["present.*=past_key_values.*"]),
        ([("out_0", "in_0"), ("out_1", "in_1")], ["y"], ["out_*=in_*"]),
        ([("h3_out", "h3_in"), ("h4_out", "h4_in"), ("s", "t")], ["y"], ["h*_out=h*_in", "s=t"]),
        ([("state_out", "state_in")], ["y"], ["state_out=state_in"]),
        ([("out_0", "in_0"), ("out_1", "in_1")], ["out_2"], ["out_0=in_0", "out_1=in_1"]),  # the third is no state
        ([("a.1.k", "b.1.k"), ("a.2.k", "b.2.k")], ["a.1.v"], ["a.*.k=b.*.k"]),
        ([("n1.1", "p1.1"), ("n2.2", "p2.2")], [], ["n*=p*"]),
    ],
)
def test_states_of_many_layers_are_one_text(pairs: list[tuple[str, str]], others: list[str], wanted: list[str]) -> None:
    outputs = [*others, *(output for output, _ in pairs)]
    words = feedback_words(Rollout(4, tuple(pairs)), outputs)
    assert list(words) == wanted
    read = rollout_of(4, words, outputs)
    assert read is not None
    assert set(read.feedback) == set(pairs)
