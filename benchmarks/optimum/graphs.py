"""Random graphs of 12 to 40 nodes with planted pathologies, branches, residuals, attention, norms and selections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

__all__ = ["PARTS", "Problem", "problem"]

Array = NDArray[np.float32]

TOKENS, WIDTH = 6, 12
SAMPLES = 8
_LEAST, _MOST = 12, 40
_OPSET = 17


@dataclass(frozen=True)
class Problem:
    """A graph, its samples, and the parts that were put into it. The first axis of every tensor may have any size."""

    name: str
    model: onnx.ModelProto
    feeds: tuple[dict[str, Array], ...]
    parts: tuple[str, ...]


class _Writer:
    def __init__(self, rng: np.random.Generator, width: int) -> None:
        self.rng = rng
        self.width = width
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [f"{name}_out"], name, **attributes))
        return f"{name}_out"

    def put(self, value: object, dtype: type = np.float32) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def linear(self, x: str, gain: float = 1.0) -> str:
        drawn = self.rng.standard_normal((self.width, self.width)) * gain / np.sqrt(self.width)
        return self.op("MatMul", x, self.put(drawn))


# -- parts: each takes a tensor and gives one of the same shape -------------------------------------------------------


def _dense(w: _Writer, x: str) -> str:
    return w.op(
        str(w.rng.choice(["Relu", "Tanh", "Softplus"])), w.op("Add", w.linear(x), w.put(w.rng.standard_normal(w.width)))
    )


def _residual(w: _Writer, x: str) -> str:
    return w.op("Add", x, w.linear(w.op("Relu", w.linear(x)), 0.7))


def _branches(w: _Writer, x: str) -> str:
    """Two ways that are added; one is much larger, so that what the other rounds hardly counts."""
    return w.op("Add", w.op("Mul", w.linear(x), w.put(w.rng.choice([0.01, 1.0, 30.0]))), w.op("Tanh", w.linear(x)))


def _gate(w: _Writer, x: str) -> str:
    return w.op("Mul", w.linear(x), w.op("Sigmoid", w.linear(x, 2.0)))


def _norm(w: _Writer, x: str) -> str:
    centred = w.op("Sub", x, w.op("ReduceMean", x, axes=[-1], keepdims=1))
    square = w.op("ReduceMean", w.op("Mul", centred, centred), axes=[-1], keepdims=1)
    root = w.op("Sqrt", w.op("Add", square, w.put(1e-5)))
    return w.op("Mul", w.op("Div", centred, root), w.put(1 + 0.2 * w.rng.standard_normal(w.width)))


def _attention(w: _Writer, x: str) -> str:
    q, k, v = (w.linear(x, gain) for gain in (2.0, 2.0, 1.0))
    scores = w.op("Mul", w.op("MatMul", q, w.op("Transpose", k, perm=[0, 2, 1])), w.put(1 / np.sqrt(w.width)))
    return w.op("Add", x, w.op("MatMul", w.op("Softmax", scores, axis=-1), v))


# -- pathologies ------------------------------------------------------------------------------------------------------


def _overflowing_squares(w: _Writer, x: str) -> str:
    """A norm of large values: their squares leave FP16's range."""
    large = w.op("Mul", x, w.put(float(w.rng.uniform(300, 900))))
    length = w.op("Sqrt", w.op("ReduceSum", w.op("Mul", large, large), w.put([-1], np.int64), keepdims=1))
    return w.op("Div", large, w.op("Add", length, w.put(1.0)))


def _cancelling(w: _Writer, x: str) -> str:
    """A large offset that is taken off again: what lies between loses its low bits."""
    offset = w.put(float(w.rng.uniform(20, 200)))
    return w.op("Sub", w.op("Add", x, offset), offset)


def _cancelling_errors(w: _Writer, x: str) -> str:
    """Two differences in which the same rounding occurs twice: in FP16 both or neither are best."""
    shifted = w.op("Add", w.linear(x), w.put(float(w.rng.uniform(30, 90))))
    return w.op("Sub", w.op("Mul", shifted, w.put(0.5)), w.op("Mul", shifted, w.put(0.4921875)))


def _in_phase(w: _Writer, x: str) -> str:
    """Factors that FP16 rounds, all to the same side: errors add up rather than as squares."""
    for _ in range(int(w.rng.integers(3, 6))):
        x = w.op("Mul", x, w.put(1.0 + 0.49 / 1024))
    return x


def _small_epsilon(w: _Writer, x: str) -> str:
    """Guarded by what FP16 holds as zero."""
    scaled = w.op("Mul", x, w.put(1e-4))
    length = w.op("ReduceMean", w.op("Mul", scaled, scaled), axes=[-1], keepdims=1)
    return w.op("Div", scaled, w.op("Sqrt", w.op("Add", length, w.put(1e-10))))


def _tiny_weights(w: _Writer, x: str) -> str:
    return w.op("Mul", w.linear(x, 3e-7), w.put(3e6))


def _exponentials(w: _Writer, x: str) -> str:
    """A logarithm of a sum of exponentials by hand."""
    total = w.op("ReduceSum", w.op("Exp", w.op("Mul", x, w.put(6.0))), w.put([-1], np.int64), keepdims=1)
    return w.op("Sub", x, w.op("Mul", w.op("Log", total), w.put(0.2)))


def _selection(w: _Writer, x: str) -> str:
    """Which of two ways counts is a comparison's answer, and values lie near its bound."""
    scores = w.op("Mul", w.linear(x), w.put(float(w.rng.uniform(5, 20))))
    chosen = w.op("Greater", scores, w.put(float(w.rng.uniform(-1, 1))))
    return w.op("Where", chosen, w.op("Mul", x, w.put(1.1)), x)


def _long_sums(w: _Writer, x: str) -> str:
    return w.op("Mul", w.op("CumSum", w.op("Add", x, w.put(8.0)), w.put(-1, np.int64)), w.put(0.05))


def _inverse(w: _Writer, x: str) -> str:
    """A quotient by what is small."""
    return w.op("Div", x, w.op("Add", w.op("Mul", w.op("Abs", w.linear(x)), w.put(0.01)), w.put(2e-4)))


def _phase(w: _Writer, x: str) -> str:
    return w.op("Sin", w.op("Mul", x, w.put(float(w.rng.uniform(20, 120)))))


_HEALTHY: tuple[Callable[[_Writer, str], str], ...] = (_dense, _residual, _branches, _gate, _norm, _attention)
_PLANTED: tuple[Callable[[_Writer, str], str], ...] = (
    _overflowing_squares, _cancelling, _cancelling_errors, _in_phase, _small_epsilon, _tiny_weights, _exponentials,
    _selection, _long_sums, _inverse, _phase,
)  # fmt: skip
PARTS = tuple(part.__name__.lstrip("_") for part in (*_HEALTHY, *_PLANTED))


def problem(
    seed: int,
    nodes: tuple[int, int] = (_LEAST, _MOST),
    tokens: int = TOKENS,
    width: int = WIDTH,
    samples: int = SAMPLES,
) -> Problem:
    """The graph of a seed; each planted part comes first once in as many seeds as there are."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(nodes[0], nodes[1] + 1))
    w, x, parts = _Writer(rng, width), "x", [_PLANTED[seed % len(_PLANTED)]]
    while True:
        pool = _PLANTED if rng.random() < 0.35 else _HEALTHY
        parts.append(pool[int(rng.integers(len(pool)))])
        if len(parts) > 12:
            break
    order = [parts[int(place)] for place in rng.permutation(3)] + parts[3:]
    used: list[str] = []
    for part in order:
        before = len(w.nodes)
        y = part(w, x)
        if len(w.nodes) > size - 1 and used:
            del w.nodes[before:]
            break
        x = y
        used.append(part.__name__.lstrip("_"))
    while len(w.nodes) < nodes[0] - 1:
        x = _dense(w, x)
        used.append("dense")
    last = w.linear(x)
    shape: list[str | int | None] = ["n", tokens, width]
    graph = helper.make_graph(
        w.nodes,
        f"optimum{seed}",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, None)],
        [each for each in w.weights if any(each.name in node.input for node in w.nodes)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=8)
    model = onnx.shape_inference.infer_shapes(model)
    feeds = tuple({"x": rng.standard_normal((1, tokens, width)).astype(np.float32)} for _ in range(samples))
    return Problem(f"optimum{seed}", model, feeds, tuple(used))
