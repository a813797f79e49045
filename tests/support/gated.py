"""A block whose hidden values are loud in a few channels, for the tests of gates and activations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from tests.models.build import model, node, value, weight
from tests.models.contrib_cases import DOMAIN
from tests.support.rescaled import Array, normal

__all__ = ["INNER", "block", "feeds"]

SIZE, INNER = 16, 24
NUMBERS = {"c": 0.044715, "r": np.sqrt(2 / np.pi), "one": 1.0, "half": 0.5, "three": 3.0, "root": np.sqrt(2.0)}


def block(
    form: Sequence[onnx.NodeProto], *, loud: float = 3e5, gated: bool = False, opset: int = 18
) -> onnx.ModelProto:
    """A norm, an expansion of which a few channels are loud, what makes h of it, and a weight that is small there."""
    biased = any("b1" in each.input for each in form)
    steps = [node("LayerNormalization", "x g b", "n"), node("MatMul", "n w1", "a" if biased else "m")]
    steps += [*([] if biased else [node("Add", "m b1", "a")]), *form]
    steps += [node("MatMul", "n w3", "u"), node("Mul", "h u", "p")] if gated else []
    steps += [node("MatMul", "p w2" if gated else "h w2", "d"), node("Add", "x d", "y")]
    high = np.where(np.arange(INNER) % 8 == 5, loud / 8, 1.0).astype(np.float32)
    arrays = {"g": np.ones(SIZE), "b": np.zeros(SIZE), "w1": normal(1, SIZE, INNER) * high, "b1": normal(2, INNER),
              "w2": normal(3, INNER, SIZE) / high[:, None], "w3": normal(4, SIZE, INNER), **NUMBERS}  # fmt: skip
    read = {name for each in steps for name in each.input}
    used = [weight(name, np.asarray(array, np.float32)) for name, array in arrays.items() if name in read]
    given, made = (value(name, shape=(1, 12, SIZE)) for name in "xy")
    return model(steps, [given], [made], used, opset=opset, domains=[DOMAIN])


def feeds() -> list[dict[str, Array]]:
    return [{"x": normal(seed, 1, 12, SIZE)} for seed in range(6)]
