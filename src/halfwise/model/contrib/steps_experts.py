"""A mixture of experts in ONNX's own operators: every expert computes every row, and the router's choice weighs them.

A kernel computes of each row only the experts that were chosen for it; the others have no weight here.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from halfwise.model.contrib.steps_norms import Inputs, Results, fast_gelu
from halfwise.model.contrib.writer import StepWriter, dims_of, spread, whole

__all__ = ["EXPERTS"]

_FAR = 1e30  # takes an expert that was chosen out of the next choice
_ACTIVATIONS: dict[str, Callable[[StepWriter, str], str]] = {
    "relu": lambda write, x: write.op("Relu", x),
    "gelu": lambda write, x: fast_gelu(write, x),
    "silu": lambda write, x: write.op("Mul", x, write.op("Sigmoid", x)),
    "identity": lambda _, x: x,
}


def _experts(write: StepWriter, inputs: Inputs) -> Results | None:
    node = write.node
    x, router, first, first_bias, second, second_bias, *gates = (*inputs, *[""] * (6 - len(inputs)))
    width, stored = (dims_of(node, 0) or (None,))[-1], dims_of(node, 2)
    bend = _ACTIVATIONS.get(_text(write, "activation_type", "relu"))
    if any(gates) or bend is None or whole(node, "use_sparse_mixer"):
        return None
    if width is None or stored is None or None in stored:
        return None
    experts, inner = int(stored[0] or 0), math.prod(each or 0 for each in stored[1:]) // width
    h = _linear(write, write.op("Reshape", x, _shape(write, 1, -1, width)), first, first_bias, (experts, inner, width))
    h = write.store(bend(write, write.store(h)))
    h = write.store(_linear(write, h, second, second_bias, (experts, width, inner)))
    by_row = write.op("Transpose", h, perm=[1, 0, 2])
    found = write.op("MatMul", spread(write, _weights(write, router), [1]), by_row)
    return {0: write.op("Reshape", found, write.op("Shape", x))}


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
