"""The whole flow on a model it makes itself: a LayerNorm in single steps that overflows FP16 without a trace."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from halfwise.core.document import Document, Documented, Record
from halfwise.core.summary import Summary
from halfwise.core.whole_files import WholeFiles
from halfwise.model.inputs.save import save_samples
from halfwise.model.model import load
from halfwise.verbs.fix.document import FixDocument
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.fix.result import FixResult
from halfwise.verbs.runners import EmulatedRunner
from halfwise.verbs.scan import ScanResult, scan
from halfwise.verbs.scan.document import ScanDocument

__all__ = ["DemoDocument", "DemoResult", "demo", "demo_inputs", "demo_model"]

Array = NDArray[np.float32]

TOKENS, WIDTH, CLASSES = 8, 64, 6
OUTLIERS = {5: 900.0, 23: -600.0, 40: 320.0}  # a few channels far beyond the rest, as trained transformers have them
SAMPLES = 6
FIXED = "fixed"  # folder of the answer
SHOWN = 6  # values of one answer


class Answers(Record, frozen=True):
    """The first values of one answer of the model, in each of three ways to run it."""

    fp32: tuple[float, ...]
    fp16: tuple[float, ...]
    fixed: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        return {name: [round(value, 6) for value in values] for name, values in super().to_json().items()}


class DemoDocument(Document, frozen=True, tag="halfwise.demo/1"):
    """What `halfwise demo --json` prints: a scan, a fix and one answer before and after."""

    folder: str
    scan: ScanDocument
    fix: FixDocument
    answers: Answers


@dataclass(frozen=True, repr=False)
class DemoResult(Documented):
    """Everything the demo made and found, in `folder`."""

    folder: Path
    model: Path
    inputs: Path
    scan: ScanResult
    fix: FixResult
    answers: Answers

    @property
    def met(self) -> bool:
        return self.fix.met

    @property
    def command(self) -> str:
        """The line that fixes the demo's model."""
        files = "--inputs", str(self.inputs), "--out", str(self.folder / FIXED)
        return shlex.join(["halfwise", "fix", str(self.model), *files])

    def summary(self) -> Summary:
        return self.fix.summary()

    def document(self) -> DemoDocument:
        return DemoDocument(str(self.folder), self.scan.document(), self.fix.document(), self.answers)


def demo(out: str | Path | None = None, *, notify: Callable[[str], None] = lambda text: None) -> DemoResult:
    """Write a model and inputs into `out` (or a new folder), scan it, fix it and show one answer before and after."""
    folder = Path(tempfile.mkdtemp(prefix="halfwise-demo-") if out is None else out)
    model, inputs = folder / "demo.onnx", folder / "inputs"
    notify("making a model and its inputs")
    with WholeFiles(folder) as files:
        files.place(model).write_bytes(demo_model().SerializeToString())
        save_samples(files, inputs, demo_inputs())
    notify("scanning")
    findings = scan(load(model))
    result = fix(model, inputs, out=folder / FIXED, notify=notify)
    return DemoResult(folder, model, inputs, findings, result, _answers(result))


def _answers(result: FixResult) -> Answers:
    assert result.typed is not None
    feed = result.samples.validation[0]
    plain, fixed = EmulatedRunner(result.model), EmulatedRunner(load(result.typed.path))
    return Answers(
        _first(plain.run(0, feed)),
        _first(EmulatedRunner(result.model, narrow=True).run(0, feed)),
        _first(fixed.run(0, feed)),
    )


def _first(outputs: Mapping[str, NDArray[Any]]) -> tuple[float, ...]:
    return tuple(float(value) for value in outputs["scores"].reshape(-1)[:SHOWN])


def demo_inputs() -> list[dict[str, Array]]:
    """Tokens of different scales."""
    rng = np.random.default_rng(7)
    scales = np.geomspace(0.7, 1.4, SAMPLES)
    return [{"tokens": rng.normal(0.0, scale, (TOKENS, WIDTH)).astype(np.float32)} for scale in scales]


def demo_model() -> onnx.ModelProto:
    """Linear, LayerNorm in the nine nodes that older exporters write, Linear.

    The first Linear's bias has outlier channels. Their squares, up to 810,000, are infinite in FP16; so is their mean
    and its root; and x / inf is 0. No NaN ever tells: the answer is the last bias, whatever the input.
    """
    rng = np.random.default_rng(16)
    bias = rng.normal(0.0, 1.0, WIDTH)
    bias[list(OUTLIERS)] = list(OUTLIERS.values())
    gamma = 10.0 * rng.lognormal(0.0, 0.2, WIDTH)
    gamma[list(OUTLIERS)] = 0.05
    weights = {
        "embed.weight": rng.normal(0.0, 10.0 / np.sqrt(WIDTH), (WIDTH, WIDTH)),
        "embed.bias": bias,
        "norm.two": np.array(2.0),
        "norm.eps": np.array(1e-5),
        "norm.weight": gamma,
        "norm.bias": rng.normal(0.0, 0.1, WIDTH),
        "head.weight": rng.normal(0.0, 1.0 / np.sqrt(WIDTH), (WIDTH, CLASSES)),
        "head.bias": rng.normal(0.0, 0.1, CLASSES),
    }
    steps: list[tuple[str, str, list[str], dict[str, Any]]] = [
        ("/embed/MatMul", "MatMul", ["tokens", "embed.weight"], {}),
        ("/embed/Add", "Add", ["/embed/MatMul", "embed.bias"], {}),
        ("/norm/ReduceMean", "ReduceMean", ["/embed/Add"], {"axes": [-1]}),
        ("/norm/Sub", "Sub", ["/embed/Add", "/norm/ReduceMean"], {}),
        ("/norm/Pow", "Pow", ["/norm/Sub", "norm.two"], {}),
        ("/norm/ReduceMean_1", "ReduceMean", ["/norm/Pow"], {"axes": [-1]}),
        ("/norm/Add", "Add", ["/norm/ReduceMean_1", "norm.eps"], {}),
        ("/norm/Sqrt", "Sqrt", ["/norm/Add"], {}),
        ("/norm/Div", "Div", ["/norm/Sub", "/norm/Sqrt"], {}),
        ("/norm/Mul", "Mul", ["/norm/Div", "norm.weight"], {}),
        ("/norm/Add_1", "Add", ["/norm/Mul", "norm.bias"], {}),
        ("/head/MatMul", "MatMul", ["/norm/Add_1", "head.weight"], {}),
        ("/head/Add", "Add", ["/head/MatMul", "head.bias"], {}),
    ]
    made = {name: f"{name}_output_0" for name, *_ in steps} | {"/head/Add": "scores"}
    nodes = [
        helper.make_node(op, [made.get(each, each) for each in reads], [made[name]], name=name, **attributes)
        for name, op, reads, attributes in steps
    ]
    graph = helper.make_graph(
        nodes,
        "demo",
        [helper.make_tensor_value_info("tokens", TensorProto.FLOAT, [TOKENS, WIDTH])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [TOKENS, CLASSES])],
        [numpy_helper.from_array(np.asarray(values, np.float32), name) for name, values in weights.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8, producer_name="halfwise.demo")
