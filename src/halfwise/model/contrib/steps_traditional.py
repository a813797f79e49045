"""Operators of `ai.onnx.ml` that are arithmetic, in ONNX's own: features made ready, linear models, columns of a table.
scikit-learn's networks have them before and behind the layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.model.contrib.writer import StepWriter, dims_of, spread, whole

__all__ = ["TRADITIONAL", "TRADITIONAL_DOMAIN"]

TRADITIONAL_DOMAIN = "ai.onnx.ml"

_FLOATS = {ir.DataType.FLOAT}
_WHOLE = {ir.DataType.INT32, ir.DataType.INT64}
_SUM_TAKES_AXES, _MAX_TAKES_AXES = 13, 18  # as an input


def _scaler(write: StepWriter, inputs: Sequence[str]) -> Mapping[int, str] | None:
    """(x - offset) * scale, each of which is one number or one of each column."""
    x, offset, scale = _features(write, inputs), _numbers(write.node, "offset"), _numbers(write.node, "scale")
    if not x or not offset.size or not scale.size:
        return None
    return {0: write.op("Mul", write.store(write.op("Sub", x, write.constant(offset))), write.constant(scale))}


def _binarizer(write: StepWriter, inputs: Sequence[str]) -> Mapping[int, str] | None:
    """1 above the threshold, else 0."""
    threshold = _numbers(write.node, "threshold")
    if _type(write.node, 0) not in _FLOATS:
        return None
    above = write.op("Greater", inputs[0], write.constant(threshold[0] if threshold.size else 0.0))
    return {0: write.op("Cast", above, to=onnx.TensorProto.FLOAT)}


def _imputer(write: StepWriter, inputs: Sequence[str]) -> Mapping[int, str] | None:
    """A number of the column where one is missing, which NaN or another number stands for."""
    given, missing = _numbers(write.node, "imputed_value_floats"), _numbers(write.node, "replaced_value_float")
    if _type(write.node, 0) not in _FLOATS or not given.size:
        return None
    gap = float(missing[0]) if missing.size else 0.0
    is_gap = write.op("IsNaN", inputs[0]) if gap != gap else write.op("Equal", inputs[0], write.constant(gap))
    return {0: write.op("Where", is_gap, write.constant(given), inputs[0])}


def _one_hot(write: StepWriter, inputs: Sequence[str]) -> Mapping[int, str] | None:
    """1 where a whole number is the class, in a new last axis; 0 throughout for what is none of the classes."""
    node = write.node
    dims = dims_of(node, 0)
    classes = np.array(node.attributes["cats_int64s"].value if "cats_int64s" in node.attributes else [], np.int64)
    if dims is None or _type(node, 0) is not ir.DataType.INT64 or not classes.size or not whole(node, "zeros", 1):
        return None
    same = write.op("Equal", spread(write, inputs[0], [len(dims)]), write.constant(classes, np.int64))
    return {0: write.op("Cast", same, to=onnx.TensorProto.FLOAT)}


def _normalizer(write: StepWriter, inputs: Sequence[str]) -> Mapping[int, str] | None:
    """Each row over its largest value, its sum of magnitudes or its length; a row of zeros stays."""
    x, norm = _features(write, inputs), _word(write.node, "norm", "MAX")
    dims = dims_of(write.node, 0)
    if not x or dims is None or len(dims) != 2:
        return None
    if norm == "MAX":
        size = _reduced(write, "ReduceMax", x, _MAX_TAKES_AXES)
    elif norm == "L1":
        size = _reduced(write, "ReduceSum", write.op("Abs", x), _SUM_TAKES_AXES)
    elif norm == "L2":
        size = _reduced(write, "ReduceL2", x, _MAX_TAKES_AXES)
    else:
        return None
    size = write.store(size)
    zero = write.op("Equal", size, write.constant(0.0))
    return {0: write.op("Div", x, write.op("Where", zero, write.constant(1.0), size))}


def _columns(write: StepWriter, inputs: Sequence[str]) -> Mapping[int, str] | None:
    """The numbers of the last axis at these places; of one row they are a table of one row."""
    dims = dims_of(write.node, 0)
    if dims is None or not dims or _type(write.node, 0) not in _FLOATS | _WHOLE:
        return None
    places = write.op("Reshape", inputs[1], write.constant([-1], np.int64))
    found = write.op("Gather", inputs[0], places, axis=len(dims) - 1)
    return {0: found if len(dims) > 1 else write.op("Reshape", found, write.constant([1, -1], np.int64))}


def _linear_regressor(write: StepWriter, inputs: Sequence[str]) -> Mapping[int, str] | None:
    targets = whole(write.node, "targets", 1)
    if _word(write.node, "post_transform", "NONE") != "NONE":
        return None
    found = _product(write, inputs, targets)
    return None if found is None else {0: found}


def _linear_classifier(write: StepWriter, inputs: Sequence[str]) -> Mapping[int, str] | None:
    """One row of coefficients for each class, and the label of the largest."""
    node, transform = write.node, _word(write.node, "post_transform", "NONE")
    labels = np.array(node.attributes["classlabels_ints"].value if "classlabels_ints" in node.attributes else [])
    if len(labels) < 2 or len(labels) != _numbers(node, "intercepts").size:
        return None
    if transform not in ("NONE", "LOGISTIC", "SOFTMAX"):
        return None
    scores = _product(write, inputs, len(labels))
    if scores is None:
        return None
    best = write.op("ArgMax", scores, axis=1, keepdims=0)
    label = write.op("Gather", write.constant(labels, np.int64), best, axis=0)
    if transform == "LOGISTIC":
        scores = write.op("Sigmoid", scores)
    elif transform == "SOFTMAX":
        scores = write.op("Softmax", scores, axis=1)
    return {0: label, 1: scores}


def _product(write: StepWriter, inputs: Sequence[str], rows: int) -> str | None:
    """The features times so many rows of coefficients, and what is added; None where their number does not fit."""
    x, dims = _features(write, inputs), dims_of(write.node, 0)
    weights, added = (_numbers(write.node, name) for name in ("coefficients", "intercepts"))
    if not x or dims is None or len(dims) != 2 or not weights.size or weights.size % rows:
        return None
    if added.size not in (0, rows):
        return None
    found = write.store(write.op("MatMul", x, write.constant(weights.reshape(rows, -1).T)))
    return write.store(write.op("Add", found, write.constant(added))) if added.size else found


def _features(write: StepWriter, inputs: Sequence[str]) -> str:
    """The first input in FP32; empty where it holds doubles, which are computed as such, or words."""
    kind = _type(write.node, 0)
    if kind in _WHOLE:
        return write.op("Cast", inputs[0], to=onnx.TensorProto.FLOAT)
    return inputs[0] if kind in _FLOATS else ""


def _type(node: ir.Node, slot: int) -> ir.DataType | None:
    value = node.inputs[slot] if slot < len(node.inputs) else None
    return None if value is None else value.dtype


def _numbers(node: ir.Node, name: str) -> NDArray[Any]:
    """An attribute of one number or many."""
    return np.array(node.attributes[name].value if name in node.attributes else [], np.float32).reshape(-1)


def _word(node: ir.Node, name: str, default: str) -> str:
    return str(node.attributes[name].value) if name in node.attributes else default


def _reduced(write: StepWriter, op: str, value: str, since: int) -> str:
    if write.opset < since:
        return write.op(op, value, axes=[1], keepdims=1)
    return write.op(op, value, write.constant([1], np.int64), keepdims=1)


TRADITIONAL = {
    "ArrayFeatureExtractor": _columns,
    "Binarizer": _binarizer,
    "Imputer": _imputer,
    "LinearClassifier": _linear_classifier,
    "LinearRegressor": _linear_regressor,
    "Normalizer": _normalizer,
    "OneHotEncoder": _one_hot,
    "Scaler": _scaler,
}
