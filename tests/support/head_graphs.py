"""Random graphs whose channels are split into heads, moved, multiplied, repeated and merged again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from tests.models.build import model, node, value, weight

__all__ = ["STEPS", "HeadNet"]

STEPS = (
    "linear times plus turn split merge regroup gate residual product shares values scores columns sums repeat tile "
    "rotary join pick mean where squeeze norm pad cut token"
).split()
_MOST = 2000  # elements
_END = 1 << 40


class HeadNet:
    """Makes a graph over x of (b, s, 12) step by step; `dims` are the sizes of all tensors when b and s are these."""

    def __init__(self, seed: int, batch: int = 2, sequence: int = 5) -> None:
        self.random, self.numbers = Random(seed), np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.dims: dict[str, tuple[int, ...]] = {"x": (batch, sequence, 12)}
        self.seen = [self.linear("x", 24)]

    def op(self, op: str, inputs: str, dims: Sequence[int], **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(node(op, inputs, name, **attributes))
        self.dims[name] = tuple(dims)
        return name

    def constant(self, array: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(weight(name, array))
        return name

    def integers(self, *numbers: int) -> str:
        return self.constant(np.array(numbers))

    def normal(self, *dims: int) -> str:
        array = np.abs(self.numbers.standard_normal(dims)) + 0.5
        loud = self.numbers.integers(-8, 9, dims[-1:]) if self.random.random() < 0.5 else np.zeros((), int)
        return self.constant((array * np.exp2(loud)).astype(np.float32))

    def linear(self, x: str, width: int) -> str:
        dims = self.dims[x]
        return self.op("MatMul", f"{x} {self.normal(dims[-1], width)}", (*dims[:-1], width))

    def reshape(self, x: str, dims: Sequence[int]) -> str:
        """Numbers, zeros, -1 and sizes read from the tensor, as exporters mix them."""
        have, choice = self.dims[x], self.random.random
        open_one = self.random.randrange(len(dims)) if choice() < 0.5 else None
        parts = []
        for axis, size in enumerate(dims):
            alike = [place for place, other in enumerate(have) if other == size]
            if axis == open_one:
                parts.append(self.integers(-1))
            elif axis < len(have) and have[axis] == size and choice() < 0.5:
                parts.append(self.integers(0))
            elif alike and choice() < 0.5:
                shape = self.op("Shape", x, (len(have),))
                parts.append(self.op("Gather", f"{shape} {self.integers(self.random.choice(alike))}", (1,)))
            else:
                parts.append(self.integers(size))
        return self.op("Reshape", f"{x} {self.op('Concat', ' '.join(parts), (len(dims),), axis=0)}", dims)

    def step(self, kind: str, x: str) -> str:
        """One more; the tensor itself where that does not fit."""
        y = getattr(self, f"_{kind}")(x, self.dims[x], self.random.randrange(len(self.dims[x])))
        if y is None or math.prod(self.dims[y]) > _MOST or not 2 <= len(self.dims[y]) <= 5:
            return x
        self.seen.append(y)
        return y

    def model(self, x: str) -> onnx.ModelProto:
        y = self.linear(x, 5)
        ends = [value("x", shape=("b", "s", 12))], [value("y", shape=[None] * len(self.dims[y]))]
        read, kept = {y}, [node("Identity", y, "y")]
        for each in reversed(self.nodes):
            if not read.isdisjoint(each.output):
                read.update(each.input)
                kept.append(each)
        return model(kept[::-1], *ends, [each for each in self.weights if each.name in read])

    def feed(self, seed: int) -> dict[str, NDArray[np.float32]]:
        return {"x": np.random.default_rng(seed).standard_normal(self.dims["x"]).astype(np.float32)}

    # -- steps --------------------------------------------------------------------------------------------------------

    def _linear(self, x: str, dims: tuple[int, ...], axis: int) -> str:
        return self.linear(x, self.random.choice([4, 6, 12]))

    def _constant_for(self, dims: tuple[int, ...]) -> str:
        return self.normal(*(size if self.random.random() < 0.5 else 1 for size in dims[self.random.randint(0, 1) :]))

    def _times(self, x: str, dims: tuple[int, ...], axis: int) -> str:
        return self.op(self.random.choice(["Mul", "Div"]), f"{x} {self._constant_for(dims)}", dims)

    def _plus(self, x: str, dims: tuple[int, ...], axis: int) -> str:
        return self.op(self.random.choice(["Add", "Max"]), f"{self._constant_for(dims)} {x}", dims)

    def _turn(self, x: str, dims: tuple[int, ...], axis: int) -> str:
        order = [*range(len(dims))]
        self.random.shuffle(order)
        order = [0, 2, 1, 3] if len(dims) == 4 and axis else order
        return self.op("Transpose", x, [dims[place] for place in order], perm=order)

    def _split(self, x: str, dims: tuple[int, ...], axis: int) -> str | None:
        parts = [size for size in (2, 3, 4, 6) if dims[axis] % size == 0]
        first = self.random.choice(parts) if parts else 1
        return self.reshape(x, (*dims[:axis], first, dims[axis] // first, *dims[axis + 1 :])) if len(dims) < 5 else None

    def _merge(self, x: str, dims: tuple[int, ...], axis: int) -> str | None:
        both = math.prod(dims[axis : axis + 2])
        return self.reshape(x, (*dims[:axis], both, *dims[axis + 2 :])) if 0 < axis < len(dims) - 1 else None

    def _regroup(self, x: str, dims: tuple[int, ...], axis: int) -> str:
        many = math.prod(dims[axis:])
        part = self.random.choice([size for size in (6, 4, 3, 2, 1) if many % size == 0])
        return self.reshape(x, (*dims[:axis], part, many // part))

    def _gate(self, x: str, dims: tuple[int, ...], axis: int) -> str:
        return self.op("Mul", f"{x} {self.op('Sigmoid', x, dims)}", dims)

    def _beside(self, dims: tuple[int, ...]) -> str | None:
        fits = [y for y in self.seen if len(self.dims[y]) <= len(dims)]
        pairs = ((y, zip(self.dims[y][::-1], dims[::-1], strict=False)) for y in fits)
        found = [y for y, sizes in pairs if all(one in (1, other) for one, other in sizes)]
        return self.random.choice(found) if found else None

    def _residual(self, x: str, dims: tuple[int, ...], axis: int) -> str | None:
        other = self._beside(dims)
        return other and self.op(self.random.choice(["Add", "Sub", "Min"]), f"{x} {other}", dims)

    def _product(self, x: str, dims: tuple[int, ...], axis: int) -> str | None:
        other = self._beside(dims)
        return other and self.op("Mul", f"{other} {x}", dims)

    def _weights_of(self, x: str, dims: tuple[int, ...]) -> str:
        rows = (*dims[:-1], dims[-2])
        made = self.op("Softmax", self.linear(x, dims[-2]), rows, axis=-1)
        if self.random.random() < 0.5:
            return made
        zero = self.constant(np.float32(0))
        return self.op("Where", f"{self.op('IsNaN', made, rows)} {zero} {made}", rows)

    def _shares(self, x: str, dims: tuple[int, ...], axis: int) -> str:
        return self.op("MatMul", f"{self._weights_of(x, dims)} {x}", dims)

    def _columns(self, x: str, dims: tuple[int, ...], axis: int) -> str:
        """The tensor as the left matrix."""
        order = [*range(len(dims) - 2), len(dims) - 1, len(dims) - 2]
        back = self.op("Transpose", x, [dims[place] for place in order], perm=order)
        turned = self.op("Transpose", self._weights_of(x, dims), (*dims[:-2], dims[-2], dims[-2]), perm=order)
        return self.op("MatMul", f"{back} {turned}", self.dims[back])

    def _values(self, x: str, dims: tuple[int, ...], axis: int) -> str:
        return self.op("MatMul", f"{self.op('Sigmoid', self.linear(x, dims[-2]), (*dims[:-1], dims[-2]))} {x}", dims)

    def _scores(self, x: str, dims: tuple[int, ...], axis: int) -> str:
        q, k = self.linear(x, 4), self.linear(x, 4)
        order, square = [*range(len(dims) - 2), len(dims) - 1, len(dims) - 2], (*dims[:-1], dims[-2])
        made = self.op("MatMul", f"{q} {self.op('Transpose', k, (*dims[:-2], 4, dims[-2]), perm=order)}", square)
        if axis:
            made = self.op("Softmax", self.op("Mul", f"{made} {self.constant(np.float32(1e-3))}", square), square)
        return self.op("MatMul", f"{made} {x}", dims)

    def _sums(self, x: str, dims: tuple[int, ...], axis: int) -> str | None:
        """An Einsum over one of the axes of both factors, its result turned."""
        if len(dims) != 4:
            return None
        order = self.random.sample("abtd", 4)
        size = dict(zip("abtd", dims, strict=True)) | {"s": dims[2]}
        if axis % 2:
            factors, terms = (self._weights_of(x, dims), x), "abts,absd"
        else:
            factors, terms = (x, self.linear(x, dims[-1])), "abtd,absd"
            order[order.index("d")] = "s"
        equation = f"{terms}->{''.join(order)}"
        return self.op("Einsum", " ".join(factors), [size[name] for name in order], equation=equation)

    def _repeat(self, x: str, dims: tuple[int, ...], axis: int) -> str | None:
        if len(dims) > 4:
            return None
        wide = self.op("Unsqueeze", f"{x} {self.integers(axis + 1)}", (*dims[: axis + 1], 1, *dims[axis + 1 :]))
        many = [1] * (len(dims) + 1)
        many[axis + 1] = 2
        wide = self.op("Expand", f"{wide} {self.integers(*many)}", (*dims[: axis + 1], 2, *dims[axis + 1 :]))
        return self.reshape(wide, (*dims[:axis], 2 * dims[axis], *dims[axis + 1 :]))

    def _tile(self, x: str, dims: tuple[int, ...], axis: int) -> str:
        many = [1] * len(dims)
        many[axis] = 2
        return self.op("Tile", f"{x} {self.integers(*many)}", np.multiply(dims, many).tolist())

    def _rotary(self, x: str, dims: tuple[int, ...], axis: int) -> str | None:
        half = dims[-1] // 2
        if dims[-1] % 2:
            return None
        last, sizes = self.integers(len(dims) - 1), (*dims[:-1], half)
        width = self.op("Gather", f"{self.op('Shape', x, (len(dims),))} {last}", (1,))
        at = self.op("Div", f"{width} {self.integers(2)}", (1,))
        low = self.op("Slice", f"{x} {self.integers(0)} {at} {last}", sizes)
        high = self.op("Neg", self.op("Slice", f"{x} {at} {self.integers(_END)} {last}", sizes), sizes)
        turned = self.op("Concat", f"{high} {low}", dims, axis=-1)
        if not axis:
            return turned
        parts = (self.op("Mul", f"{each} {self.normal(dims[-1])}", dims) for each in (x, turned))
        return self.op("Add", " ".join(parts), dims)

    def _join(self, x: str, dims: tuple[int, ...], axis: int) -> str:
        return self.op("Concat", f"{x} {self.op('Relu', x, dims)}", self._longer(dims, axis, 2 * dims[axis]), axis=axis)

    def _longer(self, dims: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
        return (*dims[:axis], size, *dims[axis + 1 :])

    def _token(self, x: str, dims: tuple[int, ...], axis: int) -> str:
        return self.op("Concat", f"{self.normal(*dims)} {x}", self._longer(dims, axis, 2 * dims[axis]), axis=axis)

    def _pick(self, x: str, dims: tuple[int, ...], axis: int) -> str:
        if len(dims) > 2 and dims[axis] < 4:
            one = self.constant(np.array(dims[axis] - 1))
            return self.op("Gather", f"{x} {one}", (*dims[:axis], *dims[axis + 1 :]), axis=axis)
        back = self.integers(*range(-1, -dims[axis] - 1, -1))
        return self.op("Gather", f"{x} {back}", dims, axis=axis)

    def _mean(self, x: str, dims: tuple[int, ...], axis: int) -> str:
        if self.random.random() < 0.5 and len(dims) > 2:
            return self.op("ReduceMean", x, (*dims[:axis], *dims[axis + 1 :]), axes=[axis], keepdims=0)
        mean = self.op("ReduceMean", x, self._longer(dims, axis, 1), axes=[axis])
        return self.op("Add", f"{x} {mean}", dims)

    def _where(self, x: str, dims: tuple[int, ...], axis: int) -> str:
        flags = self.constant(self.numbers.random(dims[-1]) < 0.5)
        return self.op("Where", f"{flags} {x} {self.normal(dims[-1])}", dims)

    def _squeeze(self, x: str, dims: tuple[int, ...], axis: int) -> str:
        place = self.integers(axis)
        wide = self.op("Unsqueeze", f"{x} {place}", (*dims[:axis], 1, *dims[axis:]))
        return self.op("Squeeze", f"{self.op('Abs', wide, self.dims[wide])} {place}", dims)

    def _norm(self, x: str, dims: tuple[int, ...], axis: int) -> str:
        return self.op("LayerNormalization", f"{x} {self.normal(dims[-1])} {self.normal(dims[-1])}", dims, axis=-1)

    def _pad(self, x: str, dims: tuple[int, ...], axis: int) -> str:
        ends = np.zeros(2 * len(dims), np.int64)
        ends[axis] = 1
        return self.op("Pad", f"{x} {self.constant(ends)}", self._longer(dims, axis, dims[axis] + 1))

    def _cut(self, x: str, dims: tuple[int, ...], axis: int) -> str | None:
        half = -(-dims[axis] // 2)
        bounds = " ".join(self.integers(number) for number in (dims[axis] - half, dims[axis], axis))
        return self.op("Slice", f"{x} {bounds}", self._longer(dims, axis, half))
