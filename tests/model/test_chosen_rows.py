"""Inputs that choose rows of a table are made up within it, and reach all of it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from halfwise import fix
from halfwise.model.inputs.samples import load_samples
from halfwise.model.model import load
from tests.models.build import model, node, value, weight

IDS = TensorProto.INT64


def of(nodes: list[onnx.NodeProto], **weights: np.ndarray) -> onnx.ModelProto:
    given = [weight(name, array) for name, array in weights.items()]
    return model(nodes, [value("ids", IDS, (1, 64))], [value("y", shape=None)], given)


def table(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("proto", "most"),
    [
        (of([node("Gather", "t ids", "y")], t=table(50, 4)), 49),
        (of([node("Gather", "t ids", "y", axis=1)], t=table(4, 30)), 29),
        (
            of(
                [
                    node("Unsqueeze", "ids first", "u"),
                    node("Cast", "u", "narrow", to=TensorProto.INT32),
                    node("Gather", "t narrow", "a"),
                    node("Gather", "s ids", "b"),
                    node("Add", "a b", "y"),
                ],
                first=np.array([0]),
                t=table(50, 4),
                s=table(7, 4),
            ),
            6,
        ),
        (
            of(
                [node("DequantizeLinear", "q scale", "t"), node("Gather", "t ids", "y")],
                q=np.ones((20, 4), np.int8),
                scale=np.float32(0.5),
            ),
            19,
        ),
        (of([node("Gather", "ids row", "g"), node("Cast", "g", "y", to=1)], row=np.array([0])), 1),  # is read from
        (of([node("Cast", "ids", "y", to=1)]), 1),
    ],
)
def test_whole_numbers_reach_the_last_row(proto: onnx.ModelProto, most: int) -> None:
    given = load(proto)
    assert [spec.most for spec in given.inputs] == [most]
    made = [feed["ids"] for feed in load_samples(given.inputs, None).all]
    assert min(map(np.min, made)) >= 0 and most * 0.8 <= max(map(np.max, made)) <= most


def test_a_row_that_only_some_words_choose_is_seen() -> None:
    """Of 50 rows one is beyond FP16."""
    rows = table(50, 4)
    rows[41] = 1e6
    proto = of([node("Gather", "t ids", "g"), node("Relu", "g", "y")], t=rows)
    assert fix(proto).plan.nodes
