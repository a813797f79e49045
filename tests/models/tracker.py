"""A small tracker without torch: box encoding, sine position embedding, a transformer with attention, a filter head.

Nodes are named as exporters name them, after the modules they come from. `spread` is the size of the bias of the filter
predictor's keys. It moves all logits of a query together, so that FP32's softmax does not see it and training leaves it
alone: at 0 every part converts well; at 1000 the logits spread over hundreds, where FP16 steps by one and cannot tell
a query's best keys apart.
"""

from __future__ import annotations

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto

from tests.models.build import model, node, value, weight

TOKENS, WIDTH, HEADS = 24, 16, 2
INPUTS = {"boxes": (TOKENS, 4), "features": (TOKENS, WIDTH)}


class _Writer:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.scope = ""

    def op(self, op: str, inputs: str, out: str, **attributes: object) -> str:
        """One node in the present scope; its tensors are called as the node is."""
        name = f"{self.scope}/{out}"
        self.nodes.append(node(op, inputs, name, name=name, **attributes))
        return name

    def weight(self, name: str, array: NDArray[np.float32]) -> str:
        name = f"{self.scope.strip('/')}.{name}".replace("/", ".")
        self.weights.append(weight(name, np.asarray(array)))
        return name

    def linear(self, source: str, out: str, width: int) -> str:
        made = self.rng.standard_normal((WIDTH, width)) / np.sqrt(WIDTH)
        return self.op("MatMul", f"{source} {self.weight(out, made.astype(np.float32))}", f"{out}_MatMul")

    def ints(self, name: str, *numbers: int) -> str:
        full = f"{self.scope.strip('/')}.{name}".replace("/", ".")
        self.weights.append(weight(full, np.array(numbers, np.int64)))
        return full


def tracker(spread: float = 1000.0, seed: int = 0) -> onnx.ModelProto:
    """Takes `boxes` (x, y, w, h from 0 to 1) and `features`; gives `filter` and `scores`."""
    w = _Writer(seed)
    encoded = _box_encoding(w)
    placed = _sine_embedding(w)
    w.scope = ""
    both = w.op("Add", f"{encoded} {placed}", "Add")
    tokens = w.op("Add", f"{both} features", "Add_1")
    w.scope = "/transformer/layers.0"
    hidden = _layer(w, tokens, 0.0)
    w.scope = "/filter_predictor"
    made = _layer(w, hidden, spread)
    filters = w.op("Identity", made, "Identity")
    w.scope = "/classifier"
    scores = w.linear(filters, "fc", 3)
    w.nodes[-1].output[0] = "scores"
    for each in w.nodes:
        each.input[:] = ["filter" if name == filters else name for name in each.input]
        each.output[:] = ["filter" if name == filters else name for name in each.output]
    assert scores
    shapes = [value(name, TensorProto.FLOAT, shape) for name, shape in INPUTS.items()]
    outputs = [value("filter", shape=(TOKENS, WIDTH)), value("scores", shape=(TOKENS, 3))]
    return model(w.nodes, shapes, outputs, w.weights)


def samples(count: int = 3, seed: int = 1) -> list[dict[str, NDArray[np.float32]]]:
    rng = np.random.default_rng(seed)
    return [
        {
            "boxes": rng.random((TOKENS, 4)).astype(np.float32),
            "features": rng.standard_normal((TOKENS, WIDTH)).astype(np.float32),
        }
        for _ in range(count)
    ]


def _box_encoding(w: _Writer) -> str:
    """Corners from centre and size, then a linear layer."""
    w.scope = "/box_encoding"
    corners = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [-0.5, 0, 0.5, 0], [0, -0.5, 0, 0.5]], np.float32)
    turned = w.op("MatMul", f"boxes {w.weight('corners', corners)}", "MatMul")
    made = (w.rng.standard_normal((4, WIDTH)) / 2).astype(np.float32)
    return w.op("Relu", w.op("MatMul", f"{turned} {w.weight('fc', made)}", "MatMul_1"), "Relu")


def _sine_embedding(w: _Writer) -> str:
    """Sines and cosines of the boxes' centres at several frequencies."""
    w.scope = "/position_embedding"
    waves = np.zeros((4, WIDTH // 2), np.float32)
    waves[0, : WIDTH // 4] = waves[1, WIDTH // 4 :] = np.pi * 0.5 ** np.arange(WIDTH // 4)
    angles = w.op("MatMul", f"boxes {w.weight('waves', waves)}", "MatMul")
    return w.op("Concat", f"{w.op('Sin', angles, 'Sin')} {w.op('Cos', angles, 'Cos')}", "Concat", axis=-1)


def _layer(w: _Writer, source: str, spread: float) -> str:
    """Self-attention and a feed-forward network, each with a residual and a norm."""
    scope = w.scope
    w.scope = f"{scope}/self_attn"
    attended = _attention(w, source, spread)
    w.scope = scope
    hidden = _norm(w, w.op("Add", f"{source} {attended}", "Add"), "norm1")
    w.scope = f"{scope}/ffn"
    fed = w.linear(w.op("Relu", w.linear(hidden, "fc1", WIDTH), "Relu"), "fc2", WIDTH)
    w.scope = scope
    return _norm(w, w.op("Add", f"{hidden} {fed}", "Add_1"), "norm2")


def _norm(w: _Writer, source: str, name: str) -> str:
    scope, w.scope = w.scope, f"{w.scope}/{name}"
    scale, bias = w.weight("weight", np.ones(WIDTH, np.float32)), w.weight("bias", np.zeros(WIDTH, np.float32))
    normed = w.op("LayerNormalization", f"{source} {scale} {bias}", "LayerNormalization", axis=-1)
    w.scope = scope
    return normed


def _attention(w: _Writer, source: str, spread: float) -> str:
    def heads(name: str, bias: float, perm: list[int]) -> str:
        made = w.linear(source, name, WIDTH)
        offset = (w.rng.standard_normal(WIDTH) * bias).astype(np.float32)
        made = w.op("Add", f"{made} {w.weight(f'{name}.bias', offset)}", f"{name}_Add")
        split = w.op("Reshape", f"{made} {w.ints(f'{name}_shape', TOKENS, HEADS, WIDTH // HEADS)}", f"{name}_Reshape")
        return w.op("Transpose", split, f"{name}_Transpose", perm=perm)

    query, key = heads("q", 0.0, [1, 0, 2]), heads("k", spread, [1, 2, 0])
    scale = w.weight("scale", np.array((WIDTH // HEADS) ** -0.5, np.float32))
    scaled = w.op("Mul", f"{query} {scale}", "Mul")
    logits = w.op("MatMul", f"{scaled} {key}", "MatMul")
    shares = w.op("Softmax", logits, "Softmax", axis=-1)
    mixed = w.op("MatMul", f"{shares} {heads('v', 0.0, [1, 0, 2])}", "MatMul_1")
    joined = w.op("Transpose", mixed, "Transpose", perm=[1, 0, 2])
    return w.linear(w.op("Reshape", f"{joined} {w.ints('shape', TOKENS, WIDTH)}", "Reshape"), "out", WIDTH)
