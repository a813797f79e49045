"""Made-up masks and positions are those of a text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from halfwise.model.input_spec import InputSpec
from halfwise.model.inputs.usual_values import usual_values

I64, BOOL, F32 = np.dtype(np.int64), np.dtype(np.bool_), np.dtype(np.float32)


def made(*specs: tuple[str, np.dtype[Any], tuple[int, ...]], index: int = 0, most: int = 1) -> dict[str, Any]:
    given = [InputSpec(name, dtype, shape, most=most) for name, dtype, shape in specs]
    return usual_values(given, {name: shape for name, _, shape in specs}, index)


@pytest.mark.parametrize(
    "name", ["attention_mask", "mask", "input_mask", "encoder_attention_mask", "pixel_mask", "mask:0"]
)
@pytest.mark.parametrize("dtype", [I64, BOOL, F32])
def test_a_mask_shows_all_and_every_other_one_ends_in_padding(name: str, dtype: np.dtype[Any]) -> None:
    whole, padded = (made((name, dtype, (2, 8)), index=index)[name] for index in (0, 1))
    assert whole.dtype == padded.dtype == dtype
    assert whole.all()
    assert padded.astype(int).tolist() == [[1] * 6 + [0] * 2] * 2


@pytest.mark.parametrize("name", ["key_padding_mask", "bool_masked_pos", "unmasked", "input_ids", "masking"])
def test_what_is_marked_the_other_way_is_left_alone(name: str) -> None:
    assert made((name, BOOL, (1, 8))) == {}


@pytest.mark.parametrize(
    "name", ["position_ids", "positions", "cache_position", "pos_ids", "serving_default_position_ids:0"]
)
def test_positions_are_in_a_row_behind_the_cache(name: str) -> None:
    found = made((name, I64, (2, 3)), ("attention_mask", I64, (2, 8)))
    assert found[name].tolist() == [[5, 6, 7]] * 2
    assert made((name, I64, (3,)))[name].tolist() == [0, 1, 2]


def test_positions_stay_in_their_table() -> None:
    assert made(("position_ids", I64, (1, 6)), most=3)["position_ids"].tolist() == [[0, 1, 2, 3, 3, 3]]
