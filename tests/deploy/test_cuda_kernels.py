"""What the CUDA provider computes wrong in FP16 stays in FP32 for it, and for nobody else."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import halfwise
from halfwise.core.notes import NoteKind
from tests.models.build import model, node, value, weight

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


def gelu(form: str, count: int | str) -> onnx.ModelProto:
    """A tanh Gelu in one of its spellings; a Neg behind it, as ONNX Runtime fuses none that ends the model."""
    ends = [value("x", shape=(count,))], [value("y", shape=(count,))]
    last = node("Neg", "g", "y")
    if form == "Gelu":
        return model([node("Gelu", "x", "g", approximate="tanh"), last], *ends, opset=20)
    if form == "FastGelu":
        made = node("FastGelu", "x", "g", domain="com.microsoft")
        return model([made, last], *ends, domains=["com.microsoft"])
    steps = [("Pow", "x three", "p"), ("Mul", "p k", "q"), ("Add", "x q", "r"), ("Mul", "r root", "s")]
    steps += [("Tanh", "s", "t"), ("Add", "t one", "u"), ("Mul", "x half", "v"), ("Mul", "v u", "g")]
    numbers = {"three": 3.0, "k": 0.044715, "root": 0.79788456, "one": 1.0, "half": 0.5}
    weights = [weight(name, np.float32(number)) for name, number in numbers.items()]
    return model([*(node(*step) for step in steps), last], *ends, weights)


@pytest.mark.parametrize("form", ["Gelu", "FastGelu", "Tanh"])
@pytest.mark.parametrize(
    ("count", "target", "kept"), [(3, "ort-cuda", 1), ("n", "ort-cuda", 1), (4, "ort-cuda", 0), (3, "onnx", 0)]
)
def test_tanh_gelus_of_an_odd_number_of_elements(form: str, count: int | str, target: str, kept: int) -> None:
    """Their kernel goes by pairs and leaves the last element as the memory was."""
    feeds = [{"x": np.linspace(-1, 1 + i, 3 if count == "n" else int(count), dtype=np.float32)} for i in range(3)]
    fixed = halfwise.fix(gelu(form, count), feeds, target=target)
    assert fixed.met
    assert [(node.op, node.because[0].kind) for node in fixed.plan.nodes] == [(form, NoteKind.KEEPS_CUDA_RIGHT)] * kept
