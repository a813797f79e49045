"""Every case of ONNX's backend suite with a float tensor among its inputs or outputs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from benchmarks.thousand.graph import Graph, Made

__all__ = ["graphs"]

KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted")
Sets = Sequence[tuple[Sequence[Any], Sequence[Any]]]
FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)


def graphs() -> Iterator[Graph]:
    from onnx.backend.test.loader import load_model_tests

    for kind in KINDS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = load_model_tests(kind=kind)
        for case in found:
            name = f"onnx-{kind}-{case.name.removeprefix('test_')}"
            model, sets = _stored(str(case.model_dir)) if case.model is None else (case.model, case.data_sets or ())
            if _has_floats(model.graph) and _can_be_fed(model.graph):
                yield Graph(name, f"onnx {kind}", partial(_make, model, sets))


def _has_floats(graph: onnx.GraphProto) -> bool:
    return any(_element(value.type) in FLOATS for value in (*graph.input, *graph.output))


def _can_be_fed(graph: onnx.GraphProto) -> bool:
    """An .npz file holds tensors of NumPy's own types, and sequences of them by their places."""
    elements = [_element(value.type) for value in graph.input]
    return all(
        element != TensorProto.STRING and onnx.helper.tensor_dtype_to_np_dtype(element).isbuiltin == 1
        for element in elements
    )


def _element(kind: onnx.TypeProto) -> int:
    if kind.HasField("sequence_type"):
        return _element(kind.sequence_type.elem_type)
    if kind.HasField("optional_type"):
        return _element(kind.optional_type.elem_type)
    return int(kind.tensor_type.elem_type)


def _stored(folder: str) -> tuple[onnx.ModelProto, Sets]:
    sets: list[tuple[list[Any], list[Any]]] = []
    for data in sorted(Path(folder).glob("test_data_set_*")):
        inputs = [onnx.load_tensor(data / f"input_{i}.pb") for i in range(len(list(data.glob("input_*.pb"))))]
        sets.append((inputs, []))
    return onnx.load(Path(folder) / "model.onnx"), sets


def _make(model: onnx.ModelProto, sets: Sets) -> Made:
    declared = list(model.graph.input)
    feeds = [{value.name: _array(given) for value, given in zip(declared, inputs, strict=False)} for inputs, _ in sets]
    return Made(model, feeds)


def _array(given: Any) -> Any:
    if given is None or isinstance(given, list):
        return given if given is None else [_array(each) for each in given]
    return numpy_helper.to_array(given) if isinstance(given, TensorProto) else np.asarray(given)
