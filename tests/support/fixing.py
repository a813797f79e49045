"""Calls `fix` and checks what it wrote."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnxruntime
from onnx import TensorProto

from halfwise.verbs.fix.fix import fix
from halfwise.verbs.fix.result import FixResult
from halfwise.verbs.verify import verify
from tests.models.zoo import ZooModel

__all__ = ["float_types", "loads_and_checks", "solved"]


def float_types(path: Path) -> set[int]:
    """The float types of the weights and casts of a typed model."""
    graph = onnx.load(path).graph
    wanted = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16}
    casts = {a.i for node in graph.node if node.op_type == "Cast" for a in node.attribute if a.name == "to"}
    return ({weight.data_type for weight in graph.initializer} | casts) & wanted


def loads_and_checks(path: Path) -> None:
    onnx.checker.check_model(str(path), full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def solved(zoo: ZooModel, out: Path, **options: object) -> FixResult:
    """Fixed within the model's own tolerance; an independent comparison on inputs that fix never saw agrees.

    The zoo's inputs grow, and some take turns; those given span the range and hold every kind.
    """
    last = len(zoo.inputs) - 1
    given = [feed for i, feed in enumerate(zoo.inputs) if i % 4 < 2 or i == last]
    unseen = [feed for i, feed in enumerate(zoo.inputs) if not (i % 4 < 2 or i == last)]
    result = fix(zoo.model, given, out=out, tolerance=[f"rel_l2<={zoo.tolerance}"], **options)  # type: ignore[arg-type]
    assert result.met and result.verdict.ratio <= 1
    assert result.typed is not None
    loads_and_checks(result.typed.path)
    compared = verify(zoo.model, result.typed.path, unseen, tolerance=[f"rel_l2<={zoo.tolerance}"])
    assert compared.met, compared.verdict
    return result
