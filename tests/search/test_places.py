"""Outputs whose shape hangs on the data: refused where nothing can be compared, solved where something can."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto

from halfwise.core.errors import InputError
from halfwise.core.metrics import compare
from halfwise.core.notes import Note, NoteKind
from halfwise.core.tolerance import Tolerance
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.verify import verify
from tests.models.build import model, node, value, weight
from tests.support.messages import kinds
from tests.support.says import Says

Feeds = list[dict[str, NDArray[Any]]]

PLACE_BY_PLACE = ["*:rel_l2<=0.01", "*:exact>=0.999"]


def survivors(*body: onnx.NodeProto, weights: list[onnx.TensorProto]) -> onnx.ModelProto:
    """`score`, made of `x` by the body; the outputs are where it is above one half, and what it is there."""
    return model(
        [
            *body,
            node("Greater", "score half", "above"),
            node("NonZero", "above", "places"),
            node("Compress", "score above", "kept", axis=0),
        ],
        [value("x", shape=(None,))],
        [value("places", TensorProto.INT64, (1, None)), value("kept", shape=(None,))],
        [weight("half", np.float32(0.5)), *weights],
    )


@pytest.fixture
def near() -> tuple[onnx.ModelProto, Feeds]:
    """Thousands of scores, some of them nearer to the threshold than FP16 can tell."""
    rng = np.random.default_rng(0)
    feeds = [{"x": rng.uniform(0.2, 0.8, 8000).astype(np.float32)} for _ in range(4)]
    return survivors(node("Sqrt", "x", "root"), node("Mul", "root root", "score"), weights=[]), feeds


@pytest.fixture
def far() -> tuple[onnx.ModelProto, Feeds]:
    """Scores far from the threshold, where FP16 overflows on the way and nothing is left of them."""
    rng = np.random.default_rng(0)
    feeds = [
        {"x": np.where(rng.random(64) < 0.5, 0.25, rng.uniform(0.8, 1.2, 64)).astype(np.float32)} for _ in range(4)
    ]
    body = [node("Exp", "x", "e"), node("Mul", "e many", "y"), node("Div", "x y", "q"), node("Mul", "q large", "score")]
    return survivors(*body, weights=[weight("many", np.float32(60000)), weight("large", np.float32(150000))]), feeds


def test_rows_are_matched(near: tuple[onnx.ModelProto, Feeds]) -> None:
    result = fix(*near)
    assert result.verdict.met
    assert result.plan.nodes == ()
    assert 0.99 < result.fp16["places"].found < 1.0


def test_rounding_decides_the_shape(near: tuple[onnx.ModelProto, Feeds], tmp_path: Path, says: Says) -> None:
    with says.raises(InputError) as caught:
        fix(*near, tolerance=PLACE_BY_PLACE, out=tmp_path / "out")
    told = str(caught.value)
    assert "--metric PKG.MOD:FN" in told
    assert "--tol 'places:exact>=0' --tol 'kept:exact>=0'" in told
    assert not (tmp_path / "out").exists()


def test_a_folder_that_was_there_stays(near: tuple[onnx.ModelProto, Feeds], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="in FP32 already"):
        fix(*near, tolerance=PLACE_BY_PLACE, out=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_outputs_can_be_left_out(near: tuple[onnx.ModelProto, Feeds]) -> None:
    result = fix(*near, tolerance=["places:exact>=0", "kept:exact>=0"])
    assert result.verdict.met
    assert result.plan.nodes == ()


def test_a_function_judges_outputs_of_different_shapes(near: tuple[onnx.ModelProto, Feeds]) -> None:
    def lost(reference: Mapping[str, NDArray[Any]], other: Mapping[str, NDArray[Any]]) -> float:
        first, second = (set(outputs["places"].ravel().tolist()) for outputs in (reference, other))
        return 1 - len(first & second) / len(first | second)

    result = fix(*near, tolerance="metric<=0.02", metric=lost)
    assert result.verdict.met
    assert result.verdict.metric == "metric"
    assert result.plan.nodes == ()


def test_a_shape_that_only_an_overflow_changes_is_repaired(far: tuple[onnx.ModelProto, Feeds]) -> None:
    result = fix(*far, repairs="none")
    told = result.fp16_verdict.because
    assert (told.kind, told.subject, kinds(told.values["why"])) == (
        NoteKind.NOT_COMPARED,
        "kept",
        [NoteKind.OTHER_SHAPE],
    )
    assert result.verdict.met
    assert result.plan.nodes


def test_the_verdict_says_why_nothing_was_compared() -> None:
    class Fewer:
        def run(self, index: int, feed: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
            return {"y": np.zeros(2, np.float32)}

    class More:
        def run(self, index: int, feed: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
            return {"y": np.zeros(3, np.float32)}

    result = verify(Fewer(), More(), [{"x": np.zeros(1, np.float32)}])
    assert not result.met
    shapes = Note.of(NoteKind.OTHER_SHAPE, got=[3], wanted=[2])
    assert result.verdict.because == Note.of(NoteKind.NOT_COMPARED, "y", why=[shapes])


def test_another_shape_is_not_itself_a_value_that_is_not_finite() -> None:
    wide, narrow = np.ones(3, np.float32), np.array([1, np.nan], np.float32)
    assert compare(wide, np.ones(2, np.float32)).nonfinite == 0
    assert compare(wide, narrow).nonfinite == 1
    assert compare(np.array([np.nan, 1, 1], np.float32), narrow).nonfinite == 0


@pytest.mark.parametrize("void", ["y:exact>=0", "y:topk>=0", "y:cosine>=-1"])
def test_a_bound_that_nothing_misses_weighs_nothing(void: str) -> None:
    wrong = compare(np.ones(3, np.float32), np.ones(2, np.float32))
    assert Tolerance.parse([void], ["y"], ["y"]).ratio({"y": wrong}, ["y"]) == 0.0
