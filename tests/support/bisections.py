"""A chain whose culprits are known, and backends that are wrong at them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto

from halfwise.backends import BackendRecord, BackendRun, backend_named
from halfwise.verbs.bisect.result import BisectResult
from tests.models.build import model, node, value, weight

__all__ = ["INPUTS", "JUDGE", "LENGTH", "Fake", "chain", "hiding", "named", "narrow_nodes"]


LENGTH = 24
INPUTS = [{"x": np.linspace(-1, 1, 8, dtype=np.float32) * scale} for scale in (1.0, 0.5)]


def chain(length: int = LENGTH) -> onnx.ModelProto:
    """Each node adds a little of the input to what came before: n_t0, n_t1, ..."""
    nodes, before = [], "x"
    for index in range(length):
        after = "y" if index == length - 1 else f"t{index}"
        nodes.append(node("Mul" if index % 2 else "Add", f"{before} w", after, name=f"n_t{index}"))
        before = after
    return model(nodes, [value("x", shape=(8,))], [value("y", shape=(8,))], [weight("w", np.full(8, 0.5, np.float32))])


def narrow_nodes(path: Path) -> set[str]:
    """The nodes of a typed model that give FP16."""
    proto = onnx.shape_inference.infer_shapes(onnx.load(path))
    kinds = {v.name: v.type.tensor_type.elem_type for v in (*proto.graph.value_info, *proto.graph.output)}
    return {n.name for n in proto.graph.node if n.op_type != "Cast" and kinds.get(n.output[0]) == TensorProto.FLOAT16}


@dataclass
class Fake:
    """Right, but for the error it adds where `bad` says so of the nodes that are FP16; `before` is called first."""

    bad: Callable[[set[str]], bool]
    before: Callable[[int, set[str]], None] = lambda build, narrow: None
    device: str = "a device"
    runs: int = 0
    name: str = "fake"
    cautions: tuple[str, ...] = ()
    seen: list[set[str]] = field(default_factory=list)

    def run(self, model: Path, feeds: Sequence[Mapping[str, NDArray[Any]]]) -> BackendRun:
        self.runs += 1
        narrow = narrow_nodes(model)
        self.seen.append(narrow)
        self.before(self.runs, narrow)
        done = backend_named("ort-cpu").run(model, feeds)
        error = 1.0 if self.bad(narrow) else 0.0
        outputs = tuple({name: array + error for name, array in each.items()} for each in done.outputs)
        return BackendRun(outputs, BackendRecord("fake", "Fake", "1", device=self.device))


def hiding(*culprits: str) -> Callable[[set[str]], bool]:
    return lambda narrow: bool(narrow & set(culprits))


def named(result: BisectResult) -> tuple[str, ...]:
    return tuple(culprit.name for culprit in result.culprits)


# -- the user's own judge ---------------------------------------------------------------------------------------------

JUDGE = """
import os, sys
import numpy as np, onnx
model, outputs = sys.argv[1], (sys.argv[2:] or [None])[0]
if outputs:
    got = np.load(os.path.join(outputs, "1.npz"))["y"]
    wanted = np.load(os.path.join(os.environ["HALFWISE_REFERENCE"], "1.npz"))["y"]
    assert got.shape == wanted.shape == (8,)
print("looking")
inner = [n for n in onnx.load(model).graph.node if n.name == "n_t7"][0]
weights = {t.name: t.data_type for t in onnx.load(model).graph.initializer}
sys.exit(CODE if weights[inner.input[1]] == 10 else 0)
"""
