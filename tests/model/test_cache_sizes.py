"""What is open of a cache but its length has the size that the operator takes which extends it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from halfwise.model.model import load
from tests.models.build import model, node, value, weight
from tests.models.contrib_cases import DOMAIN

OPEN = ("b", "h", "past", "d")
LENGTHS = [("last", TensorProto.INT32, ("b",)), ("total", TensorProto.INT32, ())]


def _floats(**shapes: Sequence[Any]) -> list[tuple[str, int, Sequence[Any]]]:
    return [(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]


def _model(
    op: str, domain: str, reads: str, inputs: list[tuple[str, int, Sequence[Any]]], **how: Any
) -> onnx.ModelProto:
    names = ["" if name == "-" else name for name in reads.split()]
    made = ["y", "present_k", "present_v"][: {"Concat": 1, f"{DOMAIN}Attention": 2}.get(domain + op, 3)]
    nodes = [helper.make_node(op, names, made, "cached", domain=domain, **how)]
    outputs = [helper.make_empty_tensor_value_info(name) for name in made]
    values = [helper.make_tensor_value_info(*each) for each in inputs]
    graph = helper.make_graph(nodes, "cache", values, outputs)
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


CACHES = _floats(past_k=OPEN, past_v=OPEN)
CASES = {
    "grouped": (
        ("GroupQueryAttention", DOMAIN, "q k v past_k past_v last total"),
        [*_floats(q=("b", "s", 64), k=("b", "s", 32), v=("b", "s", 32)), *CACHES, *LENGTHS],
        {"num_heads": 4, "kv_num_heads": 2},
        ("b", 2, "past", 16),
    ),
    "grouped packed": (
        ("GroupQueryAttention", DOMAIN, "q - - past_k past_v last total"),
        [*_floats(q=("b", "s", 128)), *CACHES, *LENGTHS],
        {"num_heads": 4, "kv_num_heads": 2},
        ("b", 2, "past", 16),
    ),
    "many heads": (
        ("MultiHeadAttention", DOMAIN, "q k v - - - past_k past_v"),
        [*_floats(q=("b", "s", 64), k=("b", "s", 64), v=("b", "s", 64)), *CACHES],
        {"num_heads": 4},
        ("b", 4, "past", 16),
    ),
    "packed": (
        ("Attention", DOMAIN, "x w bias - past_k"),
        _floats(x=("b", "s", 32), w=(32, 96), bias=(96,), past_k=("two", "b", "h", "past", "d")),
        {"num_heads": 4},
        (2, "b", 4, "past", 8),
    ),
    "ONNX's": (
        ("Attention", "", "q k v - past_k past_v"),
        [*_floats(q=("b", "s", 64), k=("b", "s", 32), v=("b", "s", 32)), *CACHES],
        {"q_num_heads": 4, "kv_num_heads": 2},
        ("b", 2, "past", 16),
    ),
    "ONNX's with heads apart": (
        ("Attention", "", "q k v - past_k past_v"),
        [*_floats(q=("b", 4, "s", 16), k=("b", 2, "s", 16), v=("b", 2, "s", 16)), *CACHES],
        {},
        ("b", 2, "past", 16),
    ),
    "joined": (
        ("Concat", "", "past_k new"),
        _floats(past_k=OPEN, new=("b", 2, "s", 8)),
        {"axis": -2},
        ("b", 2, "past", 8),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_cache_has_the_size_that_its_operator_takes(case: str) -> None:
    operator, inputs, how, expected = CASES[case]
    specs = {spec.name: spec.shape for spec in load(_model(*operator, inputs, **how)).inputs}
    assert specs["past_k"] == expected


def test_what_is_not_known_stays_open() -> None:
    inputs = [*_floats(q=("b", "s", "wide"), k=("b", "s", "w"), v=("b", "s", "w")), *CACHES, *LENGTHS]
    proto = _model("GroupQueryAttention", DOMAIN, "q k v past_k past_v last total", inputs, num_heads=4, kv_num_heads=2)
    specs = {spec.name: spec.shape for spec in load(proto).inputs}
    assert specs["past_k"] == ("b", 2, "past", "d") and specs["q"] == ("b", "s", "wide")


def test_where_readers_do_not_agree_it_stays_open() -> None:
    nodes = [node("Concat", "x one", "a", axis=0), node("Concat", "x other", "b", axis=0)]
    ends = [value(name, shape=("r", "c")) for name in "ab"]
    weights = [weight("one", np.ones((1, 77), "f4")), weight("other", np.ones((1, 78), "f4"))]
    assert load(model(nodes, [value("x", shape=("n", "m"))], ends, weights)).inputs[0].shape == ("n", "m")
