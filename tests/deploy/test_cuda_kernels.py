"""What the CUDA provider computes wrong in FP16 stays in FP32 for it, and for nobody else."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import halfwise
from halfwise.core.notes import NoteKind
from tests.models.build import model, node, value

SHAPES = {"q": (1, 2, 3, 8), "k": (1, 2, 3, 8), "pk": (1, 2, 4, 8)}


def cached(head: int) -> tuple[onnx.ModelProto, list[dict[str, np.ndarray]]]:
    """Attention with a cache whose values have heads of a size of their own."""
    shapes = {**SHAPES, "v": (1, 2, 3, head), "pv": (1, 2, 4, head)}
    made = [value("y", shape=None), value("nk", shape=None), value("nv", shape=None)]
    attention = node("Attention", "q k v - pk pv", "y nk nv")
    attention.input[3] = ""
    proto = model([attention], [value(name, shape=shape) for name, shape in shapes.items()], made, opset=23)
    rng = np.random.default_rng(0)
    feeds = [{name: rng.normal(0, 1, shape).astype(np.float32) for name, shape in shapes.items()} for _ in range(3)]
    return proto, feeds


@pytest.mark.parametrize(("head", "target", "kept"), [(10, "ort-cuda", 1), (8, "ort-cuda", 0), (10, "onnx", 0)])
def test_cached_values_with_heads_of_their_own_size(head: int, target: str, kept: int) -> None:
    proto, feeds = cached(head)
    fixed = halfwise.fix(proto, feeds, target=target)
    assert fixed.met
    assert [node.because[0].kind for node in fixed.plan.nodes] == [NoteKind.KEEPS_CUDA_RIGHT] * kept
