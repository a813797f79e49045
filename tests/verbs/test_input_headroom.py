"""An input that louder ones like it would take beyond FP16 is named, with the factor; bounds and masks are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from halfwise import fix
from halfwise.core.notes import NoteKind
from tests.models.build import model, node, value, weight
from tests.support.messages import kinds, only

Array = NDArray[np.float32]
NAME = "x"


def squashed() -> onnx.ModelProto:
    """Nothing behind the input is near FP16's limit."""
    return model(
        [node("Mul", "x k", "m"), node("Tanh", "m", "y")],
        [value("x", shape=(1, 64))],
        [value("y", shape=(1, 64))],
        [weight("k", np.float32(2.0**-16))],
    )


def loud(*tops: float) -> list[dict[str, Array]]:
    """Samples with these largest magnitudes."""
    made = [np.random.default_rng(seed).uniform(0.1, 0.9, (1, 64)) for seed in range(len(tops))]
    for each, top in zip(made, tops, strict=True):
        each *= top
        each[0, 5] = -top
    return [{NAME: each.astype(np.float32)} for each in made]


def told(feeds: Any, **asked: Any) -> list[NoteKind]:
    made = fix(squashed(), feeds, **asked)
    assert made.good
    return [kind for kind in kinds(made.notes) if kind is NoteKind.INPUT_NEAR_LIMIT]


@pytest.mark.parametrize("io", ["fp32", "fp16"])
def test_the_factor_is_exact(io: str) -> None:
    """Samples times a little less stay finite when cast, and times a little more do not."""
    feeds = loud(38_000, 38_500, 40_000, 39_000)
    made = fix(squashed(), feeds, io_types=io)
    note = only(made.notes, NoteKind.INPUT_NEAR_LIMIT)
    assert made.good and note.subject == NAME and note.severity == "warning"
    largest = max(np.abs(feed[NAME]).max() for feed in feeds) * note.values["factor"]
    with np.errstate(over="ignore"):
        assert np.isfinite(np.float16(largest)) and np.isinf(np.float16(1.001 * largest))


@pytest.mark.parametrize(
    "feeds",
    [
        loud(1_000, 2_000, 3_000, 8_000),
        loud(32_767, 32_767, 20_000, 30_000),
        [{NAME: np.where(np.arange(64) < 8 * seed, 0.0, -1e4)[None].astype(np.float32)} for seed in range(1, 5)],
    ],
    ids=["far", "full scale", "mask"],
)
def test_no_word_of_inputs_that_are_far_from_the_limit_or_bounded(feeds: Any) -> None:
    assert told(feeds) == []


def test_no_word_where_the_input_is_read_in_fp32() -> None:
    feeds = loud(38_000, 38_500, 40_000, 39_000)
    assert told(feeds) == [NoteKind.INPUT_NEAR_LIMIT]
    assert told(feeds, keep="op:Mul") == []
