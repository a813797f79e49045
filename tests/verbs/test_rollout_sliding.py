"""Rollouts of caches that keep their last rows, which must hold a window from the first step on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

from halfwise import fix
from halfwise.model.contrib.schemas import runtime_schema
from halfwise.model.inputs.samples import load_samples
from halfwise.model.model import load
from tests.models.contrib_cases import DOMAIN
from tests.models.sliding_cache import sliding

WINDOW = 40  # more than sizes that are made up
SCHEMA = runtime_schema("GroupQueryAttention", DOMAIN)
pytestmark = pytest.mark.skipif(
    SCHEMA is None or "sliding_window_cache" not in SCHEMA.attributes, reason="the runtime has no such cache yet"
)


def decoder() -> onnx.ModelProto:
    """The length of its caches is open, and so is the size of heads, as onnxruntime-genai writes them."""
    proto = sliding(0, 1, WINDOW, WINDOW).proto()
    for given in proto.graph.input:
        if given.name in ("x3", "x4"):
            given.type.tensor_type.shape.dim[2].dim_param = "past_sliding_length"
            given.type.tensor_type.shape.dim[3].dim_param = "kv_cache_dim"
    return proto


@pytest.mark.parametrize("target", ["onnx", "trt-10.9"])  # the second writes the operator out
def test_a_cache_that_slides_starts_with_room_for_its_window(tmp_path: Path, target: str) -> None:
    frames: list[dict[str, Any]] = []
    for step in range(16):
        feeds = sliding(step % 8, 1, WINDOW, WINDOW).feeds
        frames.append({name: array for name, array in feeds.items() if name not in ("x3", "x4")})
    result = fix(decoder(), frames, rollout=8, feedback=["k=x3", "v=x4"], target=target, out=tmp_path)
    assert result.met


def test_caches_that_are_made_up_have_that_room() -> None:
    made = load_samples(load(decoder()).inputs, None)
    assert {feed["x3"].shape[2:] for feed in made.all} == {(WINDOW, 16)}
