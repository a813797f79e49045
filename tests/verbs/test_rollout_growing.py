"""Rollouts of a cache whose mask grows with it: a stream cannot start in its middle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from halfwise.core.errors import InputError
from halfwise.core.notes import NoteKind
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.verify import verify
from tests.support.messages import kinds, only
from tests.support.says import Says


def _masked_cache() -> onnx.ModelProto:
    """The mask has a place for each row of the cache, and one for the new row."""
    nodes = [
        helper.make_node("Concat", ["past", "x"], ["present"], "grow", axis=1),
        helper.make_node("Mul", ["present", "mask"], ["seen"], "see"),
        helper.make_node("ReduceSum", ["seen"], ["y"], "add"),
    ]
    sides = {"x": [1, 1, 4], "mask": [1, "all", 1], "past": [1, "n", 4], "present": [1, "all", 4], "y": [1, 1, 1]}
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in sides.items()]
    graph = helper.make_graph(nodes, "cache", values[:3], values[3:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _tokens(*streams: int) -> list[dict[str, Any]]:
    x = np.random.default_rng(3).uniform(1, 2, size=(sum(streams), 1, 1, 4)).astype(np.float32)
    lengths = [length for steps in streams for length in range(1, steps + 1)]
    return [{"x": each, "mask": np.ones((1, length, 1), np.float32)} for each, length in zip(x, lengths, strict=True)]


@pytest.mark.parametrize(("streams", "trajectories"), [((8,), 1), ((20,), 1), ((8, 8), 2), ((9, 5, 11), 2)])
def test_a_mask_that_grows_with_the_cache_tells_where_a_stream_starts(
    tmp_path: Path, streams: tuple[int, ...], trajectories: int
) -> None:
    """In its middle no step fits an empty cache, nor does its first behind its last."""
    stream = _tokens(*streams)
    result = fix(_masked_cache(), stream, rollout=8, feedback="present=past", out=tmp_path)
    assert result.met and result.typed is not None
    assert only(result.notes, NoteKind.ROLLOUT).values["count"] == trajectories
    assert (NoteKind.ROLLOUT_AGAIN in kinds(result.notes)) is (trajectories == 1)
    assert verify(_masked_cache(), result.typed.path, stream, rollout=8, feedback="present=past").met


def test_a_stream_shorter_than_its_mask_tells_is_refused(says: Says) -> None:
    with says.raises(InputError):
        fix(_masked_cache(), _tokens(6, 5), rollout=8, feedback="present=past")


def test_caches_that_are_given_let_a_window_start_anywhere() -> None:
    stream = _tokens(16)
    for index, frame in enumerate(stream):
        frame["past"] = np.concatenate([np.zeros((1, 0, 4), np.float32), *(each["x"] for each in stream[:index])], 1)
    result = fix(_masked_cache(), stream, rollout=8, feedback="present=past")
    assert only(result.notes, NoteKind.ROLLOUT).values["count"] == 2
