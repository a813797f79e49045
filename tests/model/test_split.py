"""The split of the samples between search and validation: by their content and answers, in whatever order they come."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfwise.model.input_spec import InputSpec
from halfwise.model.inputs.samples import Samples, load_samples
from halfwise.model.inputs.split import median, split

X = InputSpec("x", np.dtype(np.float32), (2,))
PAIRS = st.lists(st.tuples(st.sampled_from([3, 4, 5, -3, -4, 0, 100]), st.sampled_from([3, 4, 0])), min_size=2)


def parts(samples: Samples) -> tuple[list[list[float]], list[list[float]]]:
    answers = [{"y": feed["x"] * np.float32(2)} for feed in (*samples.search, *samples.validation)]
    done = split(samples, answers)
    search, validation = (sorted(feed["x"].tolist() for feed in part) for part in (done.search, done.validation))
    return search, validation


@given(PAIRS.filter(lambda pairs: 2 <= len(set(pairs)) <= 16), st.randoms(use_true_random=False))
def test_the_order_decides_nothing(pairs: list[tuple[int, int]], random: object) -> None:
    feeds = [{"x": np.array(pair, np.float32)} for pair in dict.fromkeys(pairs)]
    first = parts(load_samples([X], feeds))
    random.shuffle(feeds)  # type: ignore[attr-defined]
    assert parts(load_samples([X], feeds)) == first
    assert len(first[0]) - len(first[1]) in (0, 1)
    sizes = [np.hypot(*pair) for pair in first[0]]
    assert min(sizes) == min(np.hypot(*pair) for pair in pairs)  # the hardest is searched


@pytest.mark.parametrize("rows", [1, 2, 5, 6])
def test_the_middle_is_numpys(rows: int) -> None:
    numbers = np.random.default_rng(rows).standard_normal((rows, 3)) * 1e3
    np.testing.assert_array_equal(median(numbers), np.median(numbers, axis=0))
