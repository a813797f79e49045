"""What ONNX Runtime's CUDA provider makes of FP32 nodes in norms: `python -m benchmarks.gpu.norm_forms OUT.json`.

Norms in single operators, in several spellings and opsets, with every set (or every run) of their nodes in FP32 and
the rest in FP16. Each is loaded with all optimisations on; kept are what became of it and its error against FP32.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from benchmarks.gpu.cuda import cuda_session, machine, prepare
from halfwise.core.formats import Format
from halfwise.core.metrics import compare
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto

__all__ = ["FORMS", "NormForm", "assignments", "inputs"]

WIDTH, ROWS = 256, 64
Seen = tuple[str, "float | None"]


@dataclass(frozen=True)
class NormForm:
    """A norm between an Add and, unless it is added to what entered it (`skip`), a Relu."""

    kind: str  # "ln" or "rms"
    opset: int = 17
    epsilon: float = 1e-5
    inverse: bool = False  # 1 / root, and a product
    mul: bool = False  # the square by Mul
    scale_first: bool = False
    skip: bool = False
    every: bool = False  # try every set of nodes, not every run of them

    @property
    def name(self) -> str:
        words = [self.kind, *(word for word in ("inverse", "mul", "scale_first", "skip") if getattr(self, word))]
        return f"{' '.join(words)}, opset {self.opset}, epsilon {self.epsilon:g}"

    @property
    def parts(self) -> list[str]:
        """The nodes of the norm, in order."""
        head, tail = (["mean1", "sub"], ["scaled", "shifted"]) if self.kind == "ln" else ([], ["scaled"])
        return [*head, "sq", "mean2", "guard", "root", *(["inv"] if self.inverse else []), "normal", *tail]

    def model(self) -> onnx.ModelProto:
        weights = {"zero": np.zeros(WIDTH, np.float32), **_WEIGHTS}
        nodes: list[onnx.NodeProto] = []

        def op(kind: str, reads: list[str], name: str, **attributes: Any) -> str:
            nodes.append(helper.make_node(kind, reads, [name], name=name, **attributes))
            return name

        def number(name: str, value: float) -> str:
            weights[name] = np.array(value, np.float32)
            return name

        def mean(x: str, name: str) -> str:
            if self.opset < 18:
                return op("ReduceMean", [x], name, axes=[-1])
            weights["axes"] = np.array([-1], np.int64)
            return op("ReduceMean", [x, "axes"], name)

        x = stream = op("Add", ["x", "zero"], "stream")
        if self.kind == "ln":
            x = op("Sub", [x, mean(x, "mean1")], "sub")
        square = op("Mul", [x, x], "sq") if self.mul else op("Pow", [x, number("two", 2.0)], "sq")
        root = op("Sqrt", [op("Add", [mean(square, "mean2"), number("eps", self.epsilon)], "guard")], "root")
        if self.inverse:
            y = op("Mul", [x, op("Div", [number("one", 1.0), root], "inv")], "normal")
        else:
            y = op("Div", [x, root], "normal")
        y = op("Mul", ["gamma", y] if self.scale_first else [y, "gamma"], "scaled")
        if self.kind == "ln":
            y = op("Add", [y, "beta"], "shifted")
        y = op("Add", [y, stream], "skip") if self.skip else op("Relu", [y], "end")
        read = {name for node in nodes for name in node.input}
        graph = helper.make_graph(
            nodes,
            "norm",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, ROWS, WIDTH])],
            [helper.make_tensor_value_info(y, TensorProto.FLOAT, [1, ROWS, WIDTH])],
            [numpy_helper.from_array(array, name) for name, array in weights.items() if name in read],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=9)

    def placements(self) -> Iterator[tuple[str, ...]]:
        """Sets of nodes to keep in FP32: of the norm alone, then with what stands before or behind it."""
        names = self.parts
        runs = [(), *(tuple(names[a:b]) for a in range(len(names)) for b in range(a + 1, len(names) + 1))]
        if self.every:
            yield from (each for size in range(len(names) + 1) for each in itertools.combinations(names, size))
        else:
            yield from runs
        yield from (("stream", *run) for run in runs)
        yield from ((*run, "skip" if self.skip else "end") for run in runs)


def inputs() -> dict[str, np.ndarray]:
    """Values with an outlier in every row, whose square exceeds FP16."""
    return {"x": _X}


_RNG = np.random.default_rng(3)
_X = (_RNG.standard_normal((1, ROWS, WIDTH)) * 40).astype(np.float32)
_X[..., 7] += 400.0
_WEIGHTS = {
    "gamma": (8 + _RNG.standard_normal(WIDTH)).astype(np.float32),
    "beta": _RNG.standard_normal(WIDTH).astype(np.float32),
}

FORMS = (
    NormForm("ln", every=True),
    NormForm("ln", 13, 1e-6),
    NormForm("ln", skip=True),
    NormForm("ln", mul=True),
    NormForm("ln", inverse=True),
    NormForm("ln", 18),
    NormForm("rms", epsilon=1e-6, inverse=True, scale_first=True, skip=True),
    NormForm("rms", epsilon=1e-6, inverse=True, every=True),
    NormForm("rms", epsilon=1e-6, every=True),
    NormForm("rms", epsilon=1e-6, mul=True),
    NormForm("rms", 18, 1e-6),
    NormForm("rms", 13, 1e-6, skip=True),
    NormForm("ln", 13, 1e-6, inverse=True, scale_first=True),
)


def assignments(form: NormForm) -> Iterator[tuple[str, Assignment]]:
    """Every placement by the names of its FP32 nodes."""
    model = load(form.model())
    sites = Sites(model)
    for names in form.placements():
        keep = frozenset(model.node_by_name[name] for name in names)
        yield " ".join(names), Assignment.all_narrow(sites, keep, Format.FP16)


def _seen(assignment: Assignment, wanted: np.ndarray) -> Seen:
    """What the norm became: the fused operator, `pieces`, or `refused`; and its error."""
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "optimized.onnx"
        try:
            session = cuda_session(typed_proto(assignment), fused=True, optimized=kept)
        except Exception as error:
            if "bound to different types" not in str(error):
                raise
            return "refused", None
        (y,) = session.run(None, {"x": _X.astype(np.float16)})
        left = [node.op_type for node in onnx.load(kept).graph.node]
    fused = next((op for op in left if op.endswith("LayerNormalization")), "pieces")
    return fused, float(f"{compare(wanted, y.astype(np.float32)).rel_l2:.6g}")


def main() -> None:
    prepare()
    found: dict[str, dict[str, Seen]] = {}
    for form in FORMS:
        exact = ort.InferenceSession(form.model().SerializeToString(), providers=["CPUExecutionProvider"])
        (wanted,) = exact.run(None, inputs())
        found[form.name] = {names: _seen(assignment, wanted) for names, assignment in assignments(form)}
        print(f"{form.name}: {len(found[form.name])} placements", flush=True)
    Path(sys.argv[1]).write_text(_text(machine(), found), encoding="utf-8")


def _text(about: Mapping[str, str], found: Mapping[str, Mapping[str, Seen]]) -> str:
    """JSON with one placement in a line."""
    forms = (
        f"{json.dumps(name)}: {{\n"
        + ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in seen.items())
        + "\n}"
        for name, seen in found.items()
    )
    head = f'{{"schema": "halfwise.norm-forms/1", "machine": {json.dumps(about)}, "forms": {{\n'
    return head + ",\n".join(forms) + "\n}}\n"


if __name__ == "__main__":
    main()
