"""Operators as each opset spells them: the same question, with attributes or inputs, axes from the front or the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.defs

from tests.models.build import f32, model, node, value, weight

__all__ = ["OLD", "Spelled", "old_model", "versions"]

FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


@dataclass(frozen=True)
class Spelled:
    """The nodes from `x` to `z`, and their weights."""

    nodes: tuple[onnx.NodeProto, ...]
    weights: dict[str, Any] = field(default_factory=dict)
    shape: tuple[int, ...] = (2, 4, 6)


def plain(
    op: str, shape: tuple[int, ...] = (2, 4, 6), since: int = 1, **attributes: Any
) -> Callable[[int], Spelled | None]:
    return lambda opset: Spelled((node(op, "x", "z", **attributes),), {}, shape) if opset >= since else None


def binary(op: str, other: Any = 1.5, since: int = 1) -> Callable[[int], Spelled | None]:
    return lambda opset: Spelled((node(op, "x w", "z"),), {"w": np.float32(other)}) if opset >= since else None


def reduction(op: str, first: int = 18) -> Callable[[int], Spelled | None]:
    def spelled(opset: int) -> Spelled:
        if opset < first:
            return Spelled((node(op, "x", "z", axes=[1, 2], keepdims=1),))
        return Spelled((node(op, "x axes", "z", keepdims=1),), {"axes": np.array([1, 2])})

    return spelled


def squeezing(opset: int) -> Spelled:
    if opset < 13:
        return Spelled((node("Unsqueeze", "x", "u", axes=[1]), node("Squeeze", "u", "z", axes=[1])))
    return Spelled((node("Unsqueeze", "x a", "u"), node("Squeeze", "u a", "z")), {"a": np.array([1])})


def clip(opset: int) -> Spelled:
    if opset < 11:
        return Spelled((node("Clip", "x", "z", min=-0.5, max=0.75),))
    return Spelled((node("Clip", "x low high", "z"),), {"low": np.float32(-0.5), "high": np.float32(0.75)})


def slicing(opset: int) -> Spelled:
    if opset < 10:
        return Spelled((node("Slice", "x", "z", starts=[1], ends=[3], axes=[2]),))
    places = {name: np.array([number]) for name, number in (("s", 1), ("e", 3), ("a", 2))}
    return Spelled((node("Slice", "x s e a", "z"),), places)


def pad(opset: int) -> Spelled:
    if opset < 11:
        return Spelled((node("Pad", "x", "z", pads=[0, 0, 1, 0, 0, 2], value=0.5),))
    return Spelled((node("Pad", "x p v", "z"),), {"p": np.array([0, 0, 1, 0, 0, 2]), "v": np.float32(0.5)})


def resize(opset: int) -> Spelled | None:
    weights = {"roi": np.zeros(0, np.float32), "s": f32(1, 1, 2, 2)}
    if opset < 10:
        return (
            Spelled((node("Upsample", "x s", "z", mode="nearest"),), {"s": weights["s"]}, (1, 2, 3, 4))
            if opset > 8
            else None
        )
    slots = "x s" if opset == 10 else "x roi s"
    return Spelled(
        (node("Resize", slots, "z", mode="linear"),), weights if opset > 10 else {"s": weights["s"]}, (1, 2, 3, 4)
    )


def upsample(opset: int) -> Spelled:
    if opset < 9:
        return Spelled((node("Upsample", "x", "z", mode="linear", scales=[1.0, 1.0, 2.0, 2.0]),), {}, (1, 2, 3, 4))
    return Spelled((node("Upsample", "x s", "z", mode="linear"),), {"s": f32(1, 1, 2, 2)}, (1, 2, 3, 4))


def top_k(opset: int) -> Spelled:
    if opset < 10:
        return Spelled((node("TopK", "x", "z i", k=3, axis=-1),))
    return Spelled((node("TopK", "x k", "z i", axis=-1),), {"k": np.array([3])})


def dropout(opset: int) -> Spelled:
    if opset < 12:
        return Spelled((node("Dropout", "x", "z", ratio=0.25),))
    return Spelled((node("Dropout", "x r", "z"),), {"r": np.float32(0.25)})


def split(opset: int) -> Spelled:
    if opset < 13:
        return Spelled((node("Split", "x", "a b", axis=2, split=[2, 4]), node("Concat", "b a", "z", axis=2)))
    return Spelled((node("Split", "x s", "a b", axis=2), node("Concat", "b a", "z", axis=2)), {"s": np.array([2, 4])})


def batch_normalization(opset: int) -> Spelled:
    weights = {"s": f32(1, 2, 0.5, 1), "b": f32(0, 1, 2, 3), "mean": f32(0, 0.5, 0, 1), "v": f32(1, 2, 0.5, 1)}
    return Spelled((node("BatchNormalization", "x s b mean v", "z"),), weights)


def normalised(op: str, since: int, names: str, size: int) -> Callable[[int], Spelled | None]:
    weights = {name: np.linspace(0.5, 1.5, size, dtype=np.float32) for name in names.split()}
    attributes = {"num_groups": 2} if op == "GroupNormalization" else {}
    return lambda opset: Spelled((node(op, f"x {names}", "z", **attributes),), weights) if opset >= since else None


def gemm(weights: int, **attributes: Any) -> Callable[[int], Spelled | None]:
    arrays = {"w": np.linspace(-1, 1, 48, dtype=np.float32).reshape(6, 8), "c": np.linspace(0, 1, 8, dtype=np.float32)}

    def spelled(opset: int) -> Spelled | None:
        if weights == 1 and opset < 11:
            return None
        names = ("w", "c")[:weights]
        return Spelled(
            (node("Gemm", " ".join(("x", *names)), "z", **attributes),), {n: arrays[n] for n in names}, (4, 6)
        )

    return spelled


def convolution(op: str) -> Callable[[int], Spelled]:
    w = np.linspace(-1, 1, 48, dtype=np.float32).reshape(4, 4, 3)
    return lambda opset: Spelled((node(op, "x w b", "z"),), {"w": w, "b": f32(0, 1, 2, 3)})


def recurrent(op: str, gates: int) -> Callable[[int], Spelled]:
    rng = np.random.default_rng(0)

    def spelled(opset: int) -> Spelled:
        weights = {
            "w": 0.5 * rng.standard_normal((1, gates * 3, 6)).astype(np.float32),
            "r": 0.5 * rng.standard_normal((1, gates * 3, 3)).astype(np.float32),
            "b": np.zeros((1, 2 * gates * 3), np.float32),
        }
        attributes = {"linear_before_reset": 1} if op == "GRU" else {}
        return Spelled((node(op, "x w r b", "z", hidden_size=3, **attributes),), weights)

    return spelled


def where(opset: int) -> Spelled | None:
    if opset < 9:
        return None
    return Spelled(
        (node("Greater", "x zero", "c"), node("Where", "c x w", "z")), {"zero": np.float32(0), "w": np.float32(0.3)}
    )


def filled(opset: int) -> Spelled | None:
    if opset < 9:
        return None
    fill = onnx.helper.make_tensor("", FLOAT, [1], [0.3])
    return Spelled((node("Shape", "x", "s"), node("ConstantOfShape", "s", "f", value=fill), node("Add", "x f", "z")))


def gathered(opset: int) -> Spelled:
    return Spelled((node("Gather", "x i", "z", axis=2),), {"i": np.array([3, 0])})


def scattered(opset: int) -> Spelled | None:
    op = "Scatter" if opset < 11 else "ScatterElements"
    weights = {"i": np.array([[[0, 3]]]), "u": np.ones((1, 1, 2), np.float32)}
    return Spelled((node(op, "x i u", "z", axis=2),), weights) if opset >= 9 else None


def expanded(opset: int) -> Spelled | None:
    return Spelled((node("Expand", "x s", "z"),), {"s": np.array([3, 2, 4, 6])}) if opset >= 8 else None


def one_hot(opset: int) -> Spelled | None:
    if opset < 9:
        return None
    nodes = (node("ArgMax", "x", "i", axis=2, keepdims=0), node("OneHot", "i d v", "z"))
    return Spelled(nodes, {"d": np.array([6]), "v": f32(0, 1)})


def summed(opset: int) -> Spelled | None:
    return Spelled((node("CumSum", "x a", "z"),), {"a": np.array(1)}) if opset >= 11 else None


def along(op: str) -> Callable[[int], Spelled]:
    """Over the last axis, and below opset 13 over all that follow another, too."""
    return lambda opset: Spelled((node(op, "x", "s", axis=2), node(op, "s", "z", axis=1)))


_UNARY = """Abs Neg Exp Sigmoid Tanh Relu LeakyRelu Elu Selu HardSigmoid Softplus Softsign Floor Ceil Identity Sin Cos
Atan Transpose Flatten""".split()
_LATER = {
    "Erf": 9, "Sinh": 9, "Cosh": 9, "Asinh": 9, "Round": 11, "Celu": 12, "HardSwish": 14, "Mish": 18, "Gelu": 20,
    "Sign": 9, "ThresholdedRelu": 10,
}  # fmt: skip

OLD: dict[str, Callable[[int], Spelled | None]] = {
    **{op: plain(op) for op in _UNARY},
    **{op: plain(op, since=since) for op, since in _LATER.items()},
    **{op: binary(op) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Mean", "Sum", "PRelu")},
    **{f"Reduce{op}": reduction(f"Reduce{op}") for op in ("Mean", "Max", "Min", "L1", "L2", "SumSquare", "LogSumExp")},
    "ReduceSum": reduction("ReduceSum", 13),
    **{op: along(op) for op in ("Softmax", "LogSoftmax", "Hardmax")},
    "Squeeze": squeezing,
    "Clip": clip,
    "Slice": slicing,
    "Pad": pad,
    "Resize": resize,
    "Upsample": lambda opset: upsample(opset) if opset < 10 else None,
    "TopK": top_k,
    "Dropout": dropout,
    "Split": split,
    "BatchNormalization": batch_normalization,
    "InstanceNormalization": normalised("InstanceNormalization", 1, "s b", 4),
    "LayerNormalization": normalised("LayerNormalization", 17, "s b", 6),
    "RMSNormalization": normalised("RMSNormalization", 23, "s", 6),
    "GroupNormalization": normalised("GroupNormalization", 21, "s b", 4),
    "MeanVarianceNormalization": plain("MeanVarianceNormalization", (1, 2, 3, 4), since=9),
    "LpNormalization": plain("LpNormalization", axis=1),
    "LRN": plain("LRN", (1, 4, 3, 3), size=3),
    "Gemm": gemm(2),
    "Gemm scaled": gemm(2, alpha=0.5, beta=2.0),
    "Gemm unbiased": gemm(1),
    "MatMul": lambda opset: Spelled((node("MatMul", "x w", "z"),), {"w": f32(*range(6)).reshape(6, 1)}),
    "Conv": convolution("Conv"),
    "ConvTranspose": convolution("ConvTranspose"),
    "MaxPool": plain("MaxPool", kernel_shape=[3]),
    "AveragePool": plain("AveragePool", kernel_shape=[3], pads=[1, 1]),
    "GlobalAveragePool": plain("GlobalAveragePool"),
    "DepthToSpace": plain("DepthToSpace", (1, 8, 2, 3), blocksize=2),
    "LSTM": recurrent("LSTM", 4),
    "GRU": recurrent("GRU", 3),
    "RNN": recurrent("RNN", 1),
    "Where": where,
    "ConstantOfShape": filled,
    "Gather": gathered,
    "Scatter": scattered,
    "Expand": expanded,
    "OneHot": one_hot,
    "CumSum": summed,
    "Pow": binary("Pow", 2.0),
    "Tile": lambda opset: Spelled((node("Tile", "x r", "z"),), {"r": np.array([1, 2, 1])}),
    "Reshape": lambda opset: Spelled((node("Reshape", "x s", "z"),), {"s": np.array([2, 24])}),
    "Sqrt": lambda opset: Spelled((node("Abs", "x", "a"), node("Sqrt", "a", "z"))),
    "Log": lambda opset: Spelled((node("Exp", "x", "a"), node("Add", "a a", "b"), node("Log", "b", "z"))),
    "Cast": lambda opset: Spelled((node("Cast", "x", "i", to=INT64), node("Cast", "i", "z", to=FLOAT))),
}  # fmt: skip


def versions(name: str, newest: int) -> list[int]:
    """The opsets in which the operator was defined anew, from 7 on, which is the oldest that runtimes know."""
    op = {"Squeeze": "Unsqueeze", "Scatter": "ScatterElements"}.get(name, name.split()[0])
    since = {s.since_version for s in onnx.defs.get_all_schemas_with_history() if s.name == op and not s.domain}
    return sorted({7, 8, 9, 10, 11, 12, 13} | {each for each in since if 7 <= each <= newest})


def old_model(name: str, opset: int) -> tuple[onnx.ModelProto, dict[str, Any]] | None:
    """The operator among others, with a feed; None where the opset does not have it."""
    spelled = OLD[name](opset)
    if spelled is None:
        return None
    nodes = [node("Mul", "given scale", "x"), *spelled.nodes, node("Mul", "z scale", "m"), node("Add", "m m", "y")]
    weights = [weight(key, array) for key, array in {**spelled.weights, "scale": np.float32(0.75)}.items()]
    proto = model(nodes, [value("given", shape=spelled.shape)], [value("y", shape=None)], weights, opset=opset)
    feed = {"given": np.random.default_rng(1).standard_normal(spelled.shape).astype(np.float32)}
    return proto, feed
