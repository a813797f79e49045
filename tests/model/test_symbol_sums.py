"""Dimensions that are sums of others."""

from __future__ import annotations

import itertools
import operator

import numpy as np
import pytest

from halfwise.core.notes import NoteKind
from halfwise.model.input_spec import InputSpec
from halfwise.model.inputs.samples import load_samples
from halfwise.model.inputs.shapes import Shapes
from halfwise.model.inputs.symbol_sums import size_of_sum, symbols_in
from halfwise.model.inputs.synthetic import USUAL, OpenSizes, open_dimensions, shapes_of
from tests.support.messages import kinds, only

KNOWN = {"past": 3, "seq": 5, "batch": 2}
STEPS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv}


@pytest.mark.parametrize(("one", "other"), itertools.product(STEPS, STEPS))
def test_a_sum_is_what_the_four_steps_make_of_it(one: str, other: str) -> None:
    """From left to right in brackets, as NumPy's whole numbers have it."""
    expected = STEPS[other](STEPS[one](np.int64(3), np.int64(5)), np.int64(2))
    dim = f"(past {one} seq) {other} batch"
    assert symbols_in(dim, KNOWN) == {"past", "seq", "batch"}
    assert size_of_sum(dim, KNOWN) == (int(expected) if expected > 0 else None)


@pytest.mark.parametrize(
    "dim",
    ["seq", "seq-len", "other + seq", "f(seq) + past", "seq ** past", "seq / past", "past +", "past.seq + 1", "9", ""],
)
def test_all_else_is_a_name(dim: str) -> None:
    assert not symbols_in(dim, {**KNOWN, dim: 1})


def test_no_size_comes_of_a_division_by_nothing() -> None:
    assert size_of_sum("past // (seq - seq)", KNOWN) is None
    assert size_of_sum("past + missing", KNOWN) is None


def test_a_mask_is_as_long_as_the_cache_and_the_tokens() -> None:
    kind = np.dtype(np.int64)
    specs = [
        InputSpec("ids", kind, ("batch", "seq")),
        InputSpec("mask", kind, ("batch", "past + seq")),
        InputSpec("key", np.dtype(np.float32), ("batch", 2, "past", 8)),
    ]
    assert open_dimensions(specs) == ("seq", "past")
    assert shapes_of(specs, {}, USUAL) == [(1, 16), (1, 32), (1, 2, 16, 8)]
    assert shapes_of(specs, {}, OpenSizes(4, {"past": 1})) == [(1, 4), (1, 5), (1, 2, 1, 8)]
    assert shapes_of(specs, {"past": 7, "batch": 3}, USUAL) == [(3, 16), (3, 23), (3, 2, 7, 8)]
    assert shapes_of(specs, {"past + seq": 9}, USUAL)[1] == (1, 9)
    note = only(load_samples(specs, None).notes, NoteKind.SIZES_CHOSEN)
    assert note.values["sizes"] == ["seq 16", "past 16"]
    stated = Shapes({"ids": (1, 4), "mask": (1, 6), "key": (1, 2, 2, 8)})
    assert NoteKind.SIZES_CHOSEN not in kinds(load_samples(specs, stated).notes)


def test_a_total_is_what_is_past_and_what_is_new() -> None:
    """As onnxruntime-genai calls the size of its mask; where either is not known, it is a name as others are."""
    known = ("sequence_length", "past_sequence_length", "total_sequence_length")
    assert symbols_in("total_sequence_length", known) == {"sequence_length", "past_sequence_length"}
    assert size_of_sum("total_sequence_length", {"sequence_length": 4, "past_sequence_length": 7}) == 11
    assert not symbols_in("total_sequence_length", known[:1])
