"""A sequence that is split from a tensor and read at constant places is a Split; any other stays as it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from halfwise import fix
from halfwise.core.errors import InputError
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto
from tests.models.build import model, node, value, weight

FEEDS = [{"x": np.random.default_rng(seed).standard_normal((2, 10)).astype(np.float32)} for seed in range(4)]


def split(sizes: Any, places: list[Any], width: int | str = 10, **attributes: Any) -> onnx.ModelProto:
    """Each part that is read is an output, and the first is used once more."""
    held = [weight(f"i{each}", np.array(place)) for each, place in enumerate(places)]
    given = "x" if sizes is None else "x n"
    return model(
        [
            node("SplitToSequence", given, "s", **attributes),
            *(node("SequenceAt", f"s i{each}", f"p{each}") for each in range(len(places))),
            node("Relu", "p0", "y"),
        ],
        [value("x", shape=(2, width))],
        [*(value(f"p{each}", shape=(None, None)) for each in range(len(places))), value("y", shape=(None, None))],
        [*held, *([] if sizes is None else [weight("n", np.array(sizes))])],
        opset=18,
    )


def answers(proto: onnx.ModelProto) -> list[Any]:
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return [each for feed in FEEDS for each in session.run(None, dict(feed))]


@pytest.mark.parametrize(
    ("given", "folds"),
    [
        (split(5, [0, 1], axis=1), True),
        (split(4, [2, 0], axis=-1), True),
        (split([1, 6, 3], [-1, 1, -3], axis=1), True),
        (split([1, 6, 3], [1], "wide", axis=1), True),
        (split(np.int32(4), [np.int32(1)], axis=1), True),
        (split(1, [1, 0]), True),
        (split(5, [0, 1], "wide", axis=1), False),
        (split(None, [3], axis=1), False),
        (split(5, [0, 0], axis=1), False),
        (split([[5, 5]], [0], axis=1), False),
    ],
    ids=["equal", "uneven", "stated", "open but stated", "short", "rows", "open", "ones", "twice", "a table"],
)
def test_the_same_outputs_by_the_same_names(given: onnx.ModelProto, folds: bool) -> None:
    read = load(given)
    ops = {each.op_type for each in read.nodes}
    assert ops == ({"Split", "Relu"} if folds else {"SplitToSequence", "SequenceAt", "Relu"})
    written = typed_proto(Assignment(Sites(read), {}))
    onnx.checker.check_model(written, full_check=True)
    assert [each.name for each in written.graph.output] == [each.name for each in given.graph.output]
    for wanted, got in zip(answers(given), answers(written), strict=True):
        assert np.array_equal(wanted, got)


@pytest.mark.parametrize(
    "given",
    [
        split(5, [0], axis=2),
        split(5, [0], axis=-3),
        split([4, 4], [0], axis=1),
        split([12, -2], [0], axis=1),
        split(5, [2], axis=1),
    ],
    ids=["axis", "axis before", "sum", "negative", "place"],
)
def test_what_cannot_be_is_left_for_the_runtime_to_tell(given: onnx.ModelProto) -> None:
    with pytest.raises(InputError, match="ONNX Runtime"):
        fix(given, FEEDS)


def test_parts_of_no_length_are_one_line(tmp_path: Path) -> None:
    """As a command: onnx 1.19 divides by it."""
    onnx.save(split(0, [0], axis=1), tmp_path / "zero.onnx")
    words = [sys.executable, "-m", "halfwise", "fix", "zero.onnx", "--out", "out"]
    ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
    assert "ONNX Runtime" in ran.stderr


def test_what_is_read_at_a_computed_place_stays_a_sequence() -> None:
    given = split(5, [0, 1], axis=1)
    given.graph.node[2].input[1] = "i"
    given.graph.input.append(value("i", onnx.TensorProto.INT64, ()))
    assert "SplitToSequence" in {each.op_type for each in load(given).nodes}


def test_parts_may_narrow() -> None:
    """A sequence stays in FP32 with all that reads it."""
    made = fix(split(5, [0, 1], axis=1), FEEDS)
    assert made.good and made.fp32_nodes == ()
