"""A mixture of experts in ONNX's own operators: every expert computes every row, and the router's choice weighs them.

A kernel computes of each row only the experts that were chosen for it; the others have no weight here.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from halfwise.core.formats import Format
from halfwise.model.contrib.steps_norms import Inputs, Results, fast_gelu
from halfwise.model.contrib.writer import StepWriter, cut, dims_of, number, spread, whole

__all__ = ["EXPERTS"]

_FAR = Format.FP16.max  # takes an expert that was chosen out of the next choice
_ACTIVATIONS: dict[str, Callable[[StepWriter, str], str]] = {
    "relu": lambda write, x: write.op("Relu", x),
    "gelu": lambda write, x: fast_gelu(write, x),
    "silu": lambda write, x: write.op("Mul", x, write.op("Sigmoid", x)),
    "identity": lambda _, x: x,
    "swiglu": lambda write, x: _gated(write, x),
}
_END = 2**31 - 1


def _experts(write: StepWriter, inputs: Inputs) -> Results | None:
    node = write.node
    x, router, first, first_bias, second, second_bias, *gates = (*inputs, *[""] * (6 - len(inputs)))
    width, stored = (dims_of(node, 0) or (None,))[-1], dims_of(node, 2)
    bend = _ACTIVATIONS.get(_text(write, "activation_type", "relu"))
    if any(gates) or bend is None or whole(node, "use_sparse_mixer"):
        return None
    paired = _text(write, "activation_type", "relu") == "swiglu"
    if paired and (whole(node, "swiglu_fusion") != 1 or whole(node, "swiglu_limit_after_activation")):
        return None  # gates and what they let through lie in turn in every row; other layouts only CUDA takes
    if width is None or stored is None or None in stored:
        return None
    experts, inner = int(stored[0] or 0), math.prod(each or 0 for each in stored[1:]) // width
    h = _linear(write, write.op("Reshape", x, _shape(write, 1, -1, width)), first, first_bias, (experts, inner, width))
    h = write.store(bend(write, write.store(h)))
    left = inner // 2 if paired else inner
    h = write.store(_linear(write, h, second, second_bias, (experts, width, left)))
    by_row = write.op("Transpose", h, perm=[1, 0, 2])
    found = write.op("MatMul", spread(write, _weights(write, router), [1]), by_row)
    return {0: write.op("Reshape", found, write.op("Shape", x))}


def _gated(write: StepWriter, x: str) -> str:
    gate, through = (cut(write, x, -1, start, _END, 2) for start in (0, 1))
    if "swiglu_limit" in write.node.attributes:
        limit = write.constant(number(write.node, "swiglu_limit", 0.0))
        gate = write.op("Min", gate, limit)
        through = write.op("Max", write.op("Min", through, limit), write.op("Neg", limit))
    alpha, beta = (
        write.constant(number(write.node, f"activation_{name}", by)) for name, by in (("alpha", 1.0), ("beta", 0.0))
    )
    open_ = write.op("Sigmoid", write.op("Mul", gate, alpha))
    return write.op("Mul", write.op("Mul", gate, open_), write.op("Add", through, beta))


def _linear(write: StepWriter, x: str, weights: str, bias: str, shape: tuple[int, int, int]) -> str:
    """The rows of each expert times its weights, whose outputs come before their inputs."""
    matrices = write.op("Transpose", write.op("Reshape", weights, _shape(write, *shape)), perm=[0, 2, 1])
    y = write.op("MatMul", x, matrices)
    return write.op("Add", y, spread(write, bias, [1])) if bias else y


def _weights(write: StepWriter, router: str) -> str:
    """The router's shares of the best experts of each row, 0 elsewhere."""
    left, chosen = router, ""
    for _ in range(whole(write.node, "k", 1)):
        best = write.op("Hardmax", left, axis=-1)
        left = write.op("Sub", left, write.op("Mul", best, write.constant(_FAR)))
        chosen = write.op("Add", chosen, best) if chosen else best
    if whole(write.node, "normalize_routing_weights"):
        kept = write.op("Sub", router, write.op("Mul", _others(write, chosen), write.constant(_FAR)))
        return write.op("Softmax", kept, axis=-1)
    return write.op("Mul", write.op("Softmax", router, axis=-1), chosen)


def _others(write: StepWriter, chosen: str) -> str:
    return write.op("Sub", write.constant(1.0), chosen)


def _shape(write: StepWriter, *dims: int) -> str:
    return write.constant(dims, "int64")


def _text(write: StepWriter, name: str, default: str) -> str:
    return write.node.attributes[name].as_string() if name in write.node.attributes else default


EXPERTS = {"MoE": _experts}
