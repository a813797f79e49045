"""Networks whose outputs mean something: picks in samples beside probabilities, selected rows, classes, masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto

from tests.models.build import model, node, value, weight

__all__ = ["detr_head", "keypoints", "nms_detector", "picker", "scorer", "segmenter"]

Feeds = list[dict[str, NDArray[Any]]]


def _random(seed: int, *shape: int, size: float = 1.0) -> NDArray[np.float32]:
    return (size * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


def picker(rows: int = 512, *, by_concat: bool = False) -> tuple[onnx.ModelProto, Feeds]:
    """One sample index up to 10,239 beside three probabilities in each row. The probabilities come from a small
    difference of large numbers, which FP16 loses."""
    index = np.zeros((8, 4), np.float32)
    index[:, 0] = 1
    nodes = [
        node("MatMul", "x w", "h"),
        node("Add", "h large", "far"),
        node("Sub", "far large", "near"),
        node("MatMul", "near v", "logits"),
        node("Sigmoid", "logits", "p"),
        node("MatMul", "x pick", "raw"),
        node("Sigmoid", "raw", "share"),
        node("Mul", "share last", "at"),
    ]
    weights = [
        weight("w", _random(1, 8, 8)),
        weight("v", _random(2, 8, 3)),
        weight("large", np.float32(3000)),
        weight("pick", _random(3, 8, 1)),
        weight("last", np.float32(10239)),
    ]
    if by_concat:
        nodes.append(node("Concat", "at p", "picks", axis=1))
    else:  # as an export writes `out[:, :1] = at`
        one, three = np.eye(4, dtype=np.float32)[:1], np.eye(4, dtype=np.float32)[1:]
        nodes += [
            node("MatMul", "at one", "left"),
            node("MatMul", "p three", "right"),
            node("Add", "left right", "picks"),
        ]
        weights += [weight("one", one), weight("three", three)]
    made = model(nodes, [value("x", shape=(rows, 8))], [value("picks", shape=(rows, 4))], weights)
    return made, [{"x": _random(10 + seed, rows, 8)} for seed in range(4)]


def scorer(bias: float) -> tuple[onnx.ModelProto, Feeds]:
    """One score after a sigmoid; with a bias of -14 it is about 1e-6."""
    made = model(
        [node("MatMul", "x w", "h"), node("Tanh", "h", "t"), node("MatMul", "t v", "s"), node("Add", "s b", "logit"),
         node("Sigmoid", "logit", "score")],
        [value("x", shape=(1, 16))],
        [value("score", shape=(1, 1))],
        [weight("w", _random(1, 16, 64)), weight("v", _random(2, 64, 1, size=0.05)), weight("b", np.float32(bias))],
    )  # fmt: skip
    return made, [{"x": _random(20 + seed, 1, 16)} for seed in range(4)]


def keypoints(selected: int = 64) -> tuple[onnx.ModelProto, Feeds]:
    """The best places of a map of scores, where many are nearly equal; the places by hand, and a descriptor each."""
    made = model(
        [
            node("Conv", "image w", "h", pads=[1, 1, 1, 1]),
            node("Relu", "h", "r"),
            node("Conv", "r v", "map"),
            node("Sigmoid", "map", "scores"),
            node("Reshape", "scores flat", "list"),
            node("TopK", "list k", "best at", axis=0),
            node("Div", "at width", "row"),
            node("Mod", "at width", "column"),
            node("Unsqueeze", "row last", "row1"),
            node("Unsqueeze", "column last", "column1"),
            node("Concat", "column1 row1", "xy", axis=1),
            node("Cast", "xy", "points", to=TensorProto.FLOAT),
            node("Reshape", "r deep", "all"),
            node("Gather", "all at", "descriptors", axis=1),
            node("Transpose", "descriptors", "features", perm=[1, 0]),
        ],
        [value("image", shape=(1, 1, 48, 48))],
        [
            value("points", shape=(selected, 2)),
            value("best", shape=(selected,)),
            value("features", shape=(selected, 8)),
        ],
        [
            weight("w", _random(1, 8, 1, 3, 3)),
            weight("v", _random(2, 1, 8, 1, 1, size=0.1)),
            weight("flat", np.array([-1])),
            weight("deep", np.array([8, -1])),
            weight("k", np.array([selected])),
            weight("width", np.int64(48)),
            weight("last", np.array([1])),
        ],
    )
    return made, [{"image": _random(30 + seed, 1, 1, 48, 48)} for seed in range(4)]


def nms_detector(padded: int = 0) -> tuple[onnx.ModelProto, Feeds]:
    """Boxes in pixels and scores of 80 places, and the rows that survive NonMaxSuppression, padded to `padded`."""
    rng = np.random.default_rng(5)
    centre = np.stack(np.meshgrid(np.arange(10) * 40.0, np.arange(8) * 40.0), -1).reshape(-1, 2)
    corners = np.concatenate([centre - 24, centre + 24], 1).astype(np.float32)[None]
    nodes = [
        node("MatMul", "x w", "d"),
        node("Add", "d corners", "boxes"),
        node("MatMul", "x v", "logits"),
        node("Sigmoid", "logits", "p"),
        node("Transpose", "p", "scores", perm=[0, 2, 1]),
        node("NonMaxSuppression", "boxes scores most iou least", "selected"),
        node("Gather", "selected two", "places", axis=1),
        node("Gather", "boxes places", "picked", axis=1),
        node("Gather", "p places", "confidence", axis=1),
        node("Concat", "picked confidence", "rows", axis=2),
    ]
    weights = [
        weight("w", (4 * rng.standard_normal((16, 4))).astype(np.float32)),
        weight("v", (2 * rng.standard_normal((16, 1))).astype(np.float32)),
        weight("corners", corners),
        weight("most", np.array([100])),
        weight("iou", np.float32(0.5)),
        weight("least", np.float32(0.3)),
        weight("two", np.int64(2)),
    ]
    outputs = [value("rows", shape=(1, None, 5))]
    if padded:
        nodes += [
            node("Shape", "places", "count"),
            node("Sub", "room count", "missing"),
            node("Concat", "none missing zero", "ends", axis=0),
            node("Pad", "rows ends", "padded"),
        ]
        weights += [
            weight("room", np.array([padded])),
            weight("none", np.zeros(4, np.int64)),
            weight("zero", np.zeros(1, np.int64)),
        ]
        outputs = [value("padded", shape=(1, padded, 5))]
    made = model(nodes, [value("x", shape=(1, 80, 16))], outputs, weights)
    return made, [{"x": _random(40 + seed, 1, 80, 16)} for seed in range(4)]


def detr_head(selected: int = 30) -> tuple[onnx.ModelProto, Feeds]:
    """The best of 200 queries by TopK, with no suppression: their boxes, scores and classes."""
    made = model(
        [
            node("MatMul", "x w", "h"),
            node("Tanh", "h", "t"),
            node("MatMul", "t v", "logits"),
            node("Sigmoid", "logits", "p"),
            node("Reshape", "p flat", "list"),
            node("TopK", "list k", "scores at", axis=1),
            node("Div", "at classes", "query"),
            node("Mod", "at classes", "labels"),
            node("MatMul", "t u", "d"),
            node("Sigmoid", "d", "normal"),
            node("Mul", "normal size", "all"),
            node("Unsqueeze", "query last", "query1"),
            node("Expand", "query1 four", "where"),
            node("GatherElements", "all where", "boxes", axis=1),
        ],
        [value("x", shape=(1, 200, 16))],
        [
            value("boxes", shape=(1, selected, 4)),
            value("scores", shape=(1, selected)),
            value("labels", TensorProto.INT64, (1, selected)),
        ],
        [
            weight("w", _random(1, 16, 32, size=0.3)),
            weight("v", _random(2, 32, 5, size=0.3)),
            weight("u", _random(3, 32, 4)),
            weight("flat", np.array([1, -1])),
            weight("k", np.array([selected])),
            weight("classes", np.int64(5)),
            weight("size", np.float32(640)),
            weight("last", np.array([2])),
            weight("four", np.array([1, 1, 4])),
        ],
    )
    return made, [{"x": _random(50 + seed, 1, 200, 16)} for seed in range(4)]


def segmenter(*, tied: bool, side: int = 64) -> tuple[onnx.ModelProto, Feeds]:
    """The class of each pixel; `tied`, two of the classes are the same number computed in two ways."""
    v = _random(2, 4, 8, 1, 1)
    if tied:
        v[1] = v[0][[1, 0, 2, 3, 4, 5, 6, 7]]  # with the features 0 and 1 alike, only the order of the sum differs
    w = _random(1, 8, 1, 3, 3)
    w[1] = w[0]
    made = model(
        [
            node("Conv", "image w", "h", pads=[1, 1, 1, 1]),
            node("Tanh", "h", "t"),
            node("Conv", "t v", "logits"),
            node("ArgMax", "logits", "classes", axis=1, keepdims=0),
        ],
        [value("image", shape=(1, 1, side, side))],
        [value("classes", TensorProto.INT64, (1, side, side))],
        [weight("w", w), weight("v", v)],
    )
    return made, [{"image": _random(60 + seed, 1, 1, side, side)} for seed in range(4)]
