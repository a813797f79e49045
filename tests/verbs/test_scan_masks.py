"""Constants too large for FP16: which are masks, and which of them FP16 breaks."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from halfwise.core.notes import Note, NoteKind
from halfwise.verbs.scan import ScanResult
from tests.support.scan_cases import Graph, of, rules


def masked(*steps: str, value: float = -1e9, sink: str = "Softmax") -> ScanResult:
    """Scores with a mask that goes through these steps."""
    graph = Graph()
    scores = graph.input("x", [4, 4])
    flag = graph.input("mask", [4, 4])
    mask = graph.weight("lowest", value)
    for step in steps:
        if step == "(1 - m) *":
            mask = graph.op("Mul", [graph.op("Sub", [graph.number(1.0), flag], ""), mask], "/mask")
        elif step == "(m - 1) *":
            mask = graph.op("Mul", [graph.op("Sub", [flag, graph.number(1.0)], ""), mask], "/mask")
        elif step == "unsqueeze":
            mask = graph.op("Unsqueeze", [mask, graph.number([0], np.int64)], "")
        elif step == "joined":
            mask = graph.op("Min", [mask, graph.number(np.triu(np.full((4, 4), value), 1))], "/joined")
        elif step == "add":
            scores = graph.op("Add", [scores, mask], "/attn")
        elif step == "sub":
            scores = graph.op("Sub", [scores, mask], "/attn")
        elif step == "where":
            keep = graph.op("Cast", [flag], "", to=TensorProto.BOOL)
            scores = graph.op("Where", [keep, scores, mask], "/attn")
        elif step == "scale":
            scores = graph.op("Mul", [scores, graph.number(1.5)], "/attn")
        elif step == "halve":
            scores = graph.op("Mul", [scores, graph.number(0.5)], "/attn")
        elif step == "causal":
            causal = graph.number(np.triu(np.full((4, 4), value), 1))
            scores = graph.op("Add", [scores, causal], "/causal")
    y = graph.op(sink, [scores], "", axis=-1)
    return graph.scanned(y, ["a", "b", "c"][: 3 if "unsqueeze" in steps else 2])


@pytest.mark.parametrize(
    ("steps", "value", "expected"),
    [
        (["add"], -1e9, "HW111"),
        (["(1 - m) *", "add"], -3.4028235e38, "HW111"),
        (["(1 - m) *", "unsqueeze", "add"], -1e9, "HW111"),
        (["(m - 1) *", "add"], 1e9, "HW111"),
        (["(1 - m) *", "sub"], 1e30, "HW111"),
        (["(1 - m) *", "add", "halve"], -1e9, "HW111"),
        (["causal"], -1e9, "HW111"),
        (["(1 - m) *", "joined", "add"], -3.4028235e38, "HW111"),
        (["(1 - m) *", "joined", "add", "scale"], -3.4028235e38, "HW112"),
        (["where"], -1e9, "HW113"),
        (["where", "halve"], -1e9, "HW113"),
        (["where", "scale"], -1e9, "HW112"),
        (["add", "scale"], -1e9, "HW112"),
        (["(1 - m) *", "add", "causal"], -1e9, "HW112"),
        (["where", "add"], -1e9, "HW112"),
        (["(1 - m) *", "add"], -1e4, None),
        (["where"], -65504.0, None),
        (["where"], float("-inf"), "HW115"),
    ],
)
def test_masks(steps: list[str], value: float, expected: str | None) -> None:
    result = masked(*steps, value=value)
    assert sorted(set(rules(result))) == ([] if expected is None else [expected])


def test_what_a_mask_finding_says() -> None:
    found = of(masked("(1 - m) *", "add"), "HW111")
    assert (found.severity, found.where.kind, found.where.name) == ("warning", "node", "/attn/Add")
    assert (found.numbers["value"], found.numbers["fp16"]) == (-1e9, -65504.0)
    assert found.note == Note.of(NoteKind.MASK_ADDED, value=-1e9, fp16=-65504.0)
    assert of(masked("where"), "HW113").severity == "info"
    assert of(masked("where", "scale"), "HW112").where.name == "/attn/Mul"


def test_a_large_number_added_to_make_something_large_is_no_mask() -> None:
    assert rules(masked("add", value=1e9)) == ["HW104"]


LIMITED = [("Exp", -1), ("Relu", -1), ("Softplus", -1), ("Sigmoid", -1), ("Sigmoid", 1), ("Tanh", -1), ("Erf", 1)]


@pytest.mark.parametrize(("op", "sign"), LIMITED)
def test_a_mask_before_a_function_with_a_limit_there_does_in_fp16_what_it_does_in_fp32(op: str, sign: int) -> None:
    graph = Graph()
    scores = graph.op("Add", [graph.input("x", [4]), graph.weight("far", sign * 1e9)], "/masked")
    assert rules(graph.scanned(graph.op(op, [scores], ""), [4])) == ["HW113"]
    reach = np.array([sign * 1e9, sign * 65504.0, sign * np.inf], np.float32)
    proto = helper.make_model(helper.make_graph([helper.make_node(op, ["x"], ["y"])], "g", [], []))
    del proto.graph.input[:]
    proto.graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [3]))
    proto.graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [3]))
    with np.errstate(all="ignore"):
        (limits,) = ReferenceEvaluator(proto).run(None, {"x": reach})
    assert len(set(np.asarray(limits).tolist())) == 1


def test_a_large_number_before_a_function_without_a_limit_there_stays_a_finding() -> None:
    graph = Graph()
    scores = graph.op("Add", [graph.input("x", [4]), graph.weight("far", 1e9)], "/masked")
    assert rules(graph.scanned(graph.op("Exp", [scores], ""), [4])) == ["HW104"]


def test_the_first_value_of_a_running_maximum_is_no_mask_that_breaks() -> None:
    """RWKV: with m = max(m, k), terms are exp(m_before - m) and exp(k - m); m begins at -1e38, less a decay."""
    graph = Graph()
    y = state = graph.weight("state", np.full(4, -1e38, np.float32))
    for step in range(3):
        key = graph.input(f"k{step}", [4])
        decayed = graph.op("Sub", [state, graph.number(np.linspace(1, 40, 4, dtype=np.float32))], "")
        state = graph.op("Max", [decayed, key], "")
        terms = [graph.op("Exp", [graph.op("Sub", [each, state], "")], "") for each in (decayed, key)]
        y = graph.op("Add", terms, "")
    assert rules(graph.scanned(y, [4])) == ["HW113"]


def test_the_largest_of_masked_scores_alone_may_be_infinite() -> None:
    """Of one masked operand and one that is not, the other wins, as in FP32."""
    for masks, expected in ((1, ["HW113"]), (2, ["HW111"])):
        graph = Graph()
        far = graph.weight("far", -1e9)
        scores = [graph.input(f"x{index}", [4]) for index in range(2)]
        scores = [graph.op("Add", [each, far], "") if index < masks else each for index, each in enumerate(scores)]
        assert rules(graph.scanned(graph.op("Max", scores, ""), [4])) == expected


def test_a_mask_is_told_of_the_way_that_reaches_a_softmax() -> None:
    """Added elsewhere, to what nothing selects from, it does not make the selected one an added mask."""
    graph = Graph()
    far = graph.weight("far", -1e9)
    keep = graph.input("keep", [4], TensorProto.BOOL)
    graph.op("Floor", [graph.op("Add", [graph.input("z", [4]), far], "")], "")
    y = graph.op("Softmax", [graph.op("Where", [keep, graph.input("x", [4]), far], "/attn")], "", axis=0)
    result = graph.scanned(y, [4])
    assert rules(result) == ["HW113"] and of(result, "HW113").numbers["nodes"] == ["/attn/Where"]


def test_a_stand_in_for_infinity_before_a_selection() -> None:
    graph = Graph()
    keep = graph.input("keep", [8], TensorProto.BOOL)
    scores = graph.op("Where", [keep, graph.input("x", [8]), graph.number(-1e9)], "")
    y = graph.op("ArgMax", [scores], "", axis=0)
    assert set(rules(graph.scanned(y, [1], TensorProto.INT64))) == {"HW113", "HW210"}


def test_a_tensor_filled_with_a_mask() -> None:
    graph = Graph()
    filler = numpy_helper.from_array(np.array([-1e9], dtype=np.float32))
    scores = graph.input("x", [4, 4])
    mask = graph.op("ConstantOfShape", [graph.op("Shape", [scores], "")], "", value=filler)
    added = graph.op("Add", [scores, graph.op("Trilu", [mask], "", upper=1)], "/attn")
    assert rules(graph.scanned(graph.op("Softmax", [added], ""), [4, 4])) == ["HW111"]
