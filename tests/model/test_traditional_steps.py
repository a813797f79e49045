"""Operators of `ai.onnx.ml` in ONNX's own: the numbers of ONNX Runtime's kernels, which its own tests leave open."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import TensorProto

from halfwise.model.contrib.steps_traditional import TRADITIONAL, TRADITIONAL_DOMAIN
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto
from halfwise.repair.lower import lowered
from tests.models.build import model, node, value, weight

Array = NDArray[Any]
FLOAT, INT64, DOUBLE, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.DOUBLE, TensorProto.STRING

ROWS = np.array([[1.5, -2.0, 0.25], [0.0, 0.0, 0.0], [-3.0, -1.0, -8.0], [-1.0, 0.0, -2.0]], np.float32)
GAPS = np.array([[np.nan, 1.0], [2.0, np.nan], [0.0, 5.0]], np.float32)
WHOLE = np.array([[3, -4, 5], [0, 7, 1]], np.int64)
COEFFICIENTS = [0.5, -1.0, 2.0, 1.0, 0.25, -0.5]


def one(op: str, x: Array, kind: int = FLOAT, opset: int = 17, outputs: str = "y", **options: Any) -> onnx.ModelProto:
    """One node, whose places are stored."""
    read = "x places" if op == "ArrayFeatureExtractor" else "x"
    made = node(op, read, outputs, domain=TRADITIONAL_DOMAIN, **options)
    types = [INT64 if op == "LinearClassifier" and name == "y" else FLOAT for name in outputs.split()]
    if op == "ArrayFeatureExtractor":
        types = [kind]
    ends = [value(name, each, None) for name, each in zip(outputs.split(), types, strict=True)]
    stored = [weight("places", np.array([[2, 0, 2]]))] if op == "ArrayFeatureExtractor" else []
    dims = ["rows", *x.shape[1:]] if x.ndim > 1 else list(x.shape)
    return model([made], [value("x", kind, dims)], ends, stored, opset=opset, domains=[TRADITIONAL_DOMAIN])


def answers(proto: onnx.ModelProto, x: Array) -> list[Array]:
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(each) for each in session.run(None, {"x": x})]


CASES = {
    "scaler": ("Scaler", ROWS, FLOAT, {"offset": [1.0, 2.0, 3.0], "scale": [2.0, 0.5, 4.0]}),
    "scaler of one number": ("Scaler", ROWS, FLOAT, {"offset": [1.0], "scale": [0.5]}),
    "scaler of whole numbers": ("Scaler", WHOLE, INT64, {"offset": [1.0, 2.0, 3.0], "scale": [2.0, 0.5, 4.0]}),
    "binarizer": ("Binarizer", ROWS, FLOAT, {"threshold": 0.25}),
    "imputer of NaN": ("Imputer", GAPS, FLOAT, {"imputed_value_floats": [7.0, 8.0], "replaced_value_float": np.nan}),
    "imputer of zeros": ("Imputer", ROWS, FLOAT, {"imputed_value_floats": [7.0]}),
    "largest": ("Normalizer", ROWS, FLOAT, {"norm": "MAX"}),
    "largest unsaid": ("Normalizer", ROWS, FLOAT, {}),
    "magnitudes": ("Normalizer", ROWS, FLOAT, {"norm": "L1"}),
    "lengths": ("Normalizer", ROWS, FLOAT, {"norm": "L2"}),
    "lengths of whole numbers": ("Normalizer", WHOLE, INT64, {"norm": "L2"}),
    "classes": ("OneHotEncoder", WHOLE, INT64, {"cats_int64s": [-4, 1, 7, 3]}),
    "columns": ("ArrayFeatureExtractor", ROWS, FLOAT, {}),
    "columns of one row": ("ArrayFeatureExtractor", ROWS[0], FLOAT, {}),
    "columns of whole numbers": ("ArrayFeatureExtractor", WHOLE, INT64, {}),
    "regressor": ("LinearRegressor", ROWS, FLOAT,
                  {"targets": 2, "coefficients": COEFFICIENTS, "intercepts": [1.0, -1.0]}),
    "regressor without more": ("LinearRegressor", ROWS, FLOAT, {"coefficients": COEFFICIENTS[:3]}),
}  # fmt: skip


@pytest.mark.parametrize("opset", [12, 17, 21])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_it_gives_the_numbers_of_the_runtimes_kernel(case: tuple[str, Array, int, dict[str, Any]], opset: int) -> None:
    op, x, kind, options = case
    check(one(op, x, kind, opset, **options), x)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("labels", [[0, 1], [7, -3]])
def test_a_linear_classifier_gives_labels_and_scores(transform: str, labels: list[int]) -> None:
    options = {"coefficients": COEFFICIENTS, "intercepts": [0.5, -0.5], "classlabels_ints": labels}
    check(one("LinearClassifier", ROWS, outputs="y scores", post_transform=transform, **options), ROWS)


def check(proto: onnx.ModelProto, x: Array) -> None:
    found = lowered(load(proto), lambda each: each.domain == TRADITIONAL_DOMAIN)
    assert found.left == () and set(found.written) <= TRADITIONAL.keys()
    assert all(not each.domain for each in found.model.nodes)
    made = typed_proto(Assignment(Sites(found.model), {}))
    for got, wanted in zip(answers(made, x), answers(proto, x), strict=True):
        assert got.dtype == wanted.dtype and got.shape == wanted.shape
        assert np.allclose(got, wanted, rtol=1e-6, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    "proto",
    [
        one("Scaler", ROWS, DOUBLE, offset=[1.0], scale=[2.0]),
            one("Scaler", ROWS, offset=[1.0]),
        one("Normalizer", ROWS[0], norm="L2"),
        one("ArrayFeatureExtractor", ROWS, STRING),
        one("LinearRegressor", ROWS, coefficients=COEFFICIENTS[:3], post_transform="PROBIT"),
        one("LinearClassifier", ROWS, outputs="y s", coefficients=COEFFICIENTS[:3], intercepts=[1.0],
            classlabels_ints=[0, 1]),
        one("OneHotEncoder", WHOLE, INT64, cats_int64s=[3], zeros=0),
    ],
    ids=["doubles", "no scale", "one row", "words", "probit", "one row of two classes", "unknown classes refused"],
)  # fmt: skip
def test_what_is_not_known_is_left(proto: onnx.ModelProto) -> None:
    found = lowered(load(proto), lambda each: each.domain == TRADITIONAL_DOMAIN)
    assert found.left and not found.written
