"""Random graphs made of what rules look for: spellings, near misses, shared constants, several readers and outputs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from tests.models.build import model, node, value, weight

__all__ = ["feeds", "random_net"]

OPSETS = {11: 6, 13: 7, 17: 8, 18: 8, 21: 10}  # and their IR versions
ROWS, WIDTH = 6, 16


class Net:
    """Grows a graph; `random` decides everything."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.opset = self.random.choice(list(OPSETS))
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, NDArray[Any]] = {}
        self.values = ["x"]

    def op(self, op: str, *inputs: str, **attributes: Any) -> str:
        made = f"v{len(self.nodes)}"
        self.nodes.append(node(op, " ".join(inputs), made, **attributes))
        return made

    def constant(self, number: Any, dtype: Any = np.float32) -> str:
        """Equal constants are one initializer."""
        array = np.asarray(number, dtype)
        for name, known in self.weights.items():
            if known.dtype == array.dtype and known.shape == array.shape and np.array_equal(known, array):
                return name
        name = f"c{len(self.weights)}"
        self.weights[name] = array
        return name

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def reduce(self, op: str, x: str, axes: Sequence[int]) -> str:
        if self.opset >= (13 if op == "ReduceSum" else 18):
            return self.op(op, x, self.constant(axes, np.int64), keepdims=1)
        return self.op(op, x, axes=list(axes), keepdims=1)

    def softmax(self, x: str) -> str:
        return self.op("Softmax", x, axis=-1 if self.opset >= 13 else 2)

    def square(self, x: str) -> str:
        return self.op("Mul", x, x) if self.chance(0.5) else self.op("Pow", x, self.constant(2.0))

    def clip(self, x: str, low: float, high: float) -> str:
        return self.op("Clip", x, self.constant(low), self.constant(high))

    def matrix(self, *scales: float) -> str:
        rng = np.random.default_rng(self.random.randrange(10**6))
        return self.constant(rng.standard_normal((WIDTH, WIDTH)) * self.pick(*scales))


def norm(n: Net, x: str) -> str:
    axes = n.pick([-1], [2], [1], [1, 2], [-2, -1])
    c = n.op("Sub", x, n.reduce("ReduceMean", x, axes)) if n.chance(0.6) else x
    v = n.reduce("ReduceMean", n.square(c), axes)
    guarded = n.op("Add", v, n.constant(n.pick(1e-5, 1e-6, 1e-12)))
    quotients: list[Callable[[], str]] = [
        lambda: n.op("Div", c, n.op("Sqrt", guarded)),
        lambda: n.op("Mul", c, n.op("Reciprocal", n.op("Sqrt", guarded))),
        lambda: n.op("Mul", c, n.op("Pow", guarded, n.constant(-0.5))),
        lambda: n.op("Div", c, n.op("Pow", guarded, n.constant(0.5))),
        lambda: n.op("Div", c, n.op("Add", n.op("Sqrt", v), n.constant(1e-5))),
        lambda: n.op("Div", c, n.op("Sqrt", n.op("Max", v, n.constant(1e-6)))),
        lambda: n.op("Mul", c, n.op("Div", n.constant(1.0), n.op("Sqrt", guarded))),
    ]
    y = n.pick(*quotients)()
    y = n.op("Mul", y, n.constant(np.linspace(0.5, 2, WIDTH))) if n.chance(0.6) else y
    return n.op("Add", y, n.constant(np.linspace(-1, 1, WIDTH))) if n.chance(0.5) else y


def softmax_by_hand(n: Net, x: str) -> str:
    power = n.op("Exp", n.op("Mul", x, n.constant(0.05)))
    total = n.reduce("ReduceSum", power, [n.pick(-1, 1)])
    return n.op("Div", power, n.op("Add", total, n.constant(1e-9)) if n.chance(0.3) else total)


def guarded_log(n: Net, x: str) -> str:
    p = n.pick(
        lambda: n.softmax(n.clip(x, -40, 40)),
        lambda: n.op("Sigmoid", n.clip(x, -9, 9)),
        lambda: n.square(x),
        lambda: n.op("Abs", x),
    )()
    epsilon = n.constant(n.pick(1e-10, 1e-12, 1e-7))
    return n.op("Log", n.pick(lambda: n.op("Add", p, epsilon), lambda: n.op("Max", epsilon, p))())


def log_softmax(n: Net, x: str) -> str:
    x = n.clip(x, -20, 20)
    return n.op("Sub", x, n.op("Log", n.reduce("ReduceSum", n.op("Exp", x), [-1])))


def unit(n: Net, x: str) -> str:
    length = n.reduce(n.pick("ReduceL2", "ReduceL1"), x, [n.pick(-1, 1)])
    return n.op("Div", x, n.op(n.pick("Max", "Add", "Clip"), length, n.constant(n.pick(1e-12, 1e-8))))


def division(n: Net, x: str) -> str:
    other = n.pick(*n.values)
    guarded = n.op("Max", n.op("Abs", other) if n.chance(0.7) else other, n.constant(n.pick(1e-10, 1e-6)))
    guarded = n.op("Sqrt", guarded) if n.chance(0.3) else guarded
    return n.op("Tanh", n.op("Div", x, guarded) if n.chance(0.6) else n.op("Mul", x, n.op("Reciprocal", guarded)))


def attention(n: Net, x: str) -> str:
    query, weighted = n.op("Tanh", x), n.pick(*n.values)
    scores = n.op(
        "MatMul", n.op("Mul", query, n.constant(n.pick(1.0, 300.0))), n.op("Transpose", query, perm=[0, 2, 1])
    )
    scores = n.op("Mul", scores, n.constant(0.25)) if n.chance(0.5) else n.op("Div", scores, n.constant(4.0))
    mask = np.zeros((ROWS, ROWS), np.float32)
    mask[:, n.random.randrange(ROWS)] = n.pick(-1e9, -1e4, -3.4e38, -65504.0)
    if n.chance(0.4):
        scores = n.op("Add", scores, n.constant(mask))
        scores = n.op("Add", scores, n.constant(mask)) if n.chance(0.3) else scores
    elif n.chance(0.5):
        scores = n.op("Where", n.constant(mask < 0, np.bool_), n.constant(-1e9), scores)
    return n.op("MatMul", n.softmax(scores), weighted)


def linear(n: Net, x: str) -> str:
    y = n.op("MatMul", x, n.matrix(1, 1e-8, 1e-6, 3e4, 0.2))
    y = n.op("Add", y, n.constant(np.linspace(-1, 1, WIDTH) * n.pick(1, 1e-7))) if n.chance(0.6) else y
    y = n.op(n.pick("Relu", "LeakyRelu"), y) if n.chance(0.5) else y
    return n.op("MatMul", y, n.matrix(1, 1e-4, 1e5)) if n.chance(0.6) else y


def corners(n: Net, x: str) -> str:
    centre = n.op("Add", n.pick(*n.values), n.constant(n.pick(4000.0, 300.0)))
    return n.op("Sub", n.op("Add", centre, x), n.op("Sub", centre, n.op("Mul", x, n.constant(0.5))))


def table(n: Net, x: str) -> str:
    phase = n.op("Mul", n.constant(np.linspace(0, 2000, WIDTH)), n.constant(1.5))
    return n.op("Add", x, n.op("Sin", phase))


def energy(n: Net, x: str) -> str:
    loud = n.op("Mul", n.square(x), n.constant(n.pick(1.0, 50.0)))
    total = n.reduce(n.pick("ReduceSum", "ReduceL1", "ReduceMean"), loud, [n.pick(-1, 1)])
    return n.op("Add", x, n.op("Mul", total, n.constant(1e-6)) if n.chance(0.6) else n.op("Sqrt", total))


def bound(n: Net, x: str) -> str:
    return str(n.pick(
        lambda: n.op("Min", x, n.constant(np.inf)),
        lambda: n.clip(x, -1e30, 1e30),
        lambda: n.op("Where", n.op("Less", x, n.constant(1e38)), x, n.constant(0.0)),
    )())  # fmt: skip


def residual(n: Net, x: str) -> str:
    return n.op(n.pick("Add", "Sub"), x, n.pick(*n.values))


def there_and_back(n: Net, x: str) -> str:
    return n.op("Transpose", n.op("Relu", n.op("Transpose", x, perm=[0, 2, 1])), perm=[0, 2, 1])


STEPS = (
    norm, norm, norm, softmax_by_hand, guarded_log, log_softmax, unit, division, attention, attention, linear, linear,
    corners, table, energy, bound, residual, there_and_back,
)  # fmt: skip


def random_net(seed: int) -> onnx.ModelProto:
    n = Net(seed)
    x = "x"
    for _ in range(n.random.randrange(2, 7)):
        x = n.pick(*STEPS)(n, x)
        n.values.append(x)
        if n.chance(0.3):
            x = n.op("Mul", x, n.constant(n.pick(200.0, 1000.0, 0.01)))
            n.values.append(x)
    floats = [made for each in n.nodes for made in each.output if each.op_type != "Less"]
    outputs = dict.fromkeys([x, *(made for made in floats if n.chance(0.06))])
    shape: list[int | str] = ["n" if n.chance(0.6) else 2, ROWS, WIDTH]
    return model(
        n.nodes,
        [value("x", shape=shape)],
        [value(name, shape=None) for name in outputs],
        [weight(name, array) for name, array in n.weights.items()],
        n.opset,
        OPSETS[n.opset],
    )


def feeds(seed: int) -> list[dict[str, NDArray[np.float32]]]:
    """Loud, quiet, and sometimes with rows of zeros."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(2):
        x = rng.standard_normal((2, ROWS, WIDTH)) * 10.0 ** rng.integers(-2, 3)
        x[:, 0] = 0.0 if rng.random() < 0.4 else x[:, 0]
        found.append({"x": x.astype(np.float32)})
    return found
