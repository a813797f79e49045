"""Random small models with random decisions, and their answer by walking them with NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from numpy.typing import NDArray

from halfwise.core.formats import Format
from halfwise.model.model import Model, load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from tests.models.build import model, node, value, weight
from tests.support.scalar_formats import round_array

Array = NDArray[np.float32]

UNARY = {"Neg": np.negative, "Abs": np.abs, "Floor": np.floor, "Identity": lambda x: x}
BINARY = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}
WEIGHTS = {"w0": 1 / 3, "w1": 70000.0, "w2": 1e-6}


@dataclass(frozen=True)
class Step:
    op: str
    reads: tuple[str, ...]
    fmt: Format


@dataclass(frozen=True)
class Dag:
    """`steps[i]` writes t{i}. Outputs may repeat, be inputs, or be weights."""

    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    io: Format
    fmt: Format = Format.FP16

    def proto(self) -> onnx.ModelProto:
        nodes = [node(step.op, " ".join(step.reads), f"t{i}") for i, step in enumerate(self.steps)]
        weights = [weight(name, np.full(3, number, np.float32)) for name, number in WEIGHTS.items()]
        inputs = [value("x", shape=[3]), value("z", shape=[3])]
        return model(nodes, inputs, [value(name, shape=[3]) for name in self.outputs], weights)

    def assignment(self, loaded: Model) -> Assignment:
        formats = {loaded.node_by_name[f"n_t{i}"]: step.fmt for i, step in enumerate(self.steps)}
        return Assignment(Sites(loaded, self.fmt), formats, self.io)

    def loaded(self) -> Assignment:
        return self.assignment(load(self.proto()))

    def answer(self, feeds: dict[str, Array]) -> dict[str, Array]:
        """What each output is: a tensor is rounded where it is stored narrow and where it is read narrow."""
        stored = {name: round_array(feed, self.io) for name, feed in feeds.items()}
        weights = {name: np.full(3, number, np.float32) for name, number in WEIGHTS.items()}
        with np.errstate(all="ignore"):
            for index, step in enumerate(self.steps):
                read = [
                    _clamped(weights[r], step.fmt) if r in weights else round_array(stored[r], step.fmt)
                    for r in step.reads
                ]
                function: Any = UNARY.get(step.op) or BINARY[step.op]
                stored[f"t{index}"] = round_array(function(*read), step.fmt)
        given = {name: _clamped(weights[name], self.io) for name in self.outputs if name in weights}
        # An input handed out as it is stays what the caller gave.
        handed = {name: feeds[name] for name in self.outputs if name in feeds}
        made = {name: round_array(stored[name], self.io) for name in self.outputs if name.startswith("t")}
        return {**given, **handed, **made}


def _clamped(array: Array, fmt: Format) -> Array:
    """A weight: what is finite stays finite."""
    rounded = round_array(array, fmt)
    return np.where(np.isinf(rounded), np.copysign(np.float32(fmt.max), array), rounded).astype(np.float32)


@st.composite
def dags(draw: st.DrawFn, fmt: Format = Format.FP16) -> Dag:
    steps: list[Step] = []
    for index in range(draw(st.integers(1, 7))):
        known = ["x", "z", *WEIGHTS, *(f"t{i}" for i in range(index))]
        op = draw(st.sampled_from([*UNARY, *BINARY]))
        known = [name for name in known if op != "Identity" or name not in WEIGHTS]  # a copy of a weight is no node
        reads = tuple(draw(st.sampled_from(known)) for _ in range(1 if op in UNARY else 2))
        steps.append(Step(op, reads, draw(st.sampled_from([fmt, Format.FP32]))))
    names = ["x", *WEIGHTS, *(f"t{i}" for i in range(len(steps)))]
    outputs = draw(st.lists(st.sampled_from(names), min_size=1, max_size=4))
    return Dag(tuple(steps), tuple(outputs), draw(st.sampled_from([Format.FP32, fmt])), fmt)


VALUES = st.one_of(
    st.floats(width=32, min_value=-70000, max_value=70000),
    st.floats(width=32, min_value=-(2.0**-13), max_value=2.0**-13),
    st.sampled_from([0.0, -0.0, 65504.0, 65519.0, 65520.0, 2.0**-24, 2.0**-25, 1 + 2.0**-11, 1 + 3 * 2.0**-11]),
)
FEEDS = st.fixed_dictionaries(
    {name: st.lists(VALUES, min_size=3, max_size=3).map(lambda v: np.array(v, np.float32)) for name in ("x", "z")}
)
