"""What the graph alone says of outputs: where rows come from, which slices branches made, what is a probability."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from halfwise.core.output_kinds import Reading
from halfwise.model.model import load
from halfwise.model.outputs.kinds import facts_of, kinds_of
from halfwise.model.outputs.selections import choice_of, selections_behind
from halfwise.model.outputs.units import is_probability, pieces_along
from tests.models.build import model, node, value, weight
from tests.models.outputs import keypoints, nms_detector


def test_pieces_of_heads_that_are_joined_level_by_level() -> None:
    """As detectors are exported: boxes, objectness and classes of each level, then the levels, then rows last."""
    nodes, weights = [], [weight("flat", np.array([1, 8, -1]))]
    for level in "ab":
        for head, width in (("box", 4), ("obj", 1), ("cls", 3)):
            weights.append(weight(f"w{head}{level}", np.ones((width, 2, 1, 1), np.float32)))
            nodes.append(node("Conv", f"x{level} w{head}{level}", f"{head}{level}"))
        nodes += [node("Sigmoid", f"obj{level}", f"po{level}"), node("Sigmoid", f"cls{level}", f"pc{level}")]
        nodes += [
            node("Concat", f"box{level} po{level} pc{level}", f"head{level}", axis=1),
            node("Reshape", f"head{level} flat", f"list{level}"),
        ]
    nodes += [node("Concat", "lista listb", "all", axis=2), node("Transpose", "all", "y", perm=[0, 2, 1])]
    inputs = [value("xa", shape=(1, 2, 8, 8)), value("xb", shape=(1, 2, 4, 4))]
    loaded = load(model(nodes, inputs, [value("y", shape=(1, 80, 8))], weights))
    (output,) = loaded.graph.outputs
    assert [(p.start, p.stop, p.probability) for p in pieces_along(output, 2)] == [
        (0, 4, False), (4, 5, True), (5, 8, True)]  # fmt: skip
    assert not is_probability(output)


@pytest.mark.parametrize(
    ("nodes", "wanted"),
    [
        ([node("Sigmoid", "x", "y")], True),
        ([node("Softmax", "x", "p"), node("Transpose", "p", "t"), node("Slice", "t zero one", "y")], True),
        ([node("Sigmoid", "x", "a"), node("Softmax", "x", "b"), node("Mul", "a b", "y")], True),
        ([node("Sigmoid", "x", "a"), node("Mul", "a x", "y")], False),
        ([node("Sigmoid", "x", "a"), node("Add", "a a", "y")], False),
        ([node("LogSoftmax", "x", "y")], False),
        ([node("Tanh", "x", "y")], False),
    ],
)
def test_what_is_a_probability(nodes: list[object], wanted: bool) -> None:
    constants = [weight("zero", np.array([0])), weight("one", np.array([1]))]
    made = model(nodes, [value("x", shape=(4, 4))], [value("y", shape=(None, None))], constants)  # type: ignore[arg-type]
    assert is_probability(load(made).graph.outputs[0]) is wanted


def test_where_rows_come_from() -> None:
    rows = load(nms_detector(100)[0])
    (found,) = selections_behind(rows.graph.outputs[0])
    assert (found.counted, found.axis, set(found.entering)) == ("selected", 0, {"boxes", "scores"})
    points = load(keypoints()[0])
    for output in points.graph.outputs:
        (found,) = selections_behind(output)
        assert (found.entering, found.axis) == (("list",), 0)


def test_a_mask_behind_a_selection_leads_to_its_tensors() -> None:
    """Local maxima above a threshold, as keypoints are found: where a score equals the largest around it."""
    nodes = [
        node("Conv", "x w", "s"),
        node("MaxPool", "s", "m", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Equal", "s m", "peak"),
        node("Greater", "s half", "high"),
        node("And", "peak high", "mask"),
        node("NonZero", "mask", "y"),
    ]
    weights = [weight("w", np.ones((1, 1, 3, 3), np.float32)), weight("half", np.float32(0.5))]
    made = load(model(nodes, [value("x", shape=(1, 1, 9, 9))], [value("y", TensorProto.INT64, (4, None))], weights))
    (found,) = selections_behind(made.graph.outputs[0])
    assert (set(found.entering), found.axis) == ({"s", "m"}, 1)


def test_what_a_shape_alone_selects_rounding_does_not() -> None:
    """As `repeat_interleave` is exported, with which Cohere and GLM turn their queries."""
    nodes = [
        node("Sin", "x", "s"),
        node("Shape", "s", "sizes"),
        node("ConstantOfShape", "sizes", "often"),
        node("Less", "often one", "mask"),
        node("NonZero", "mask", "places"),
        node("Transpose", "places", "rows", perm=[1, 0]),
        node("GatherND", "s rows", "y"),
    ]
    made = load(model(nodes, [value("x", shape=(2, 3))], [value("y", shape=(None,))], [weight("one", np.float32(1))]))
    assert not selections_behind(made.graph.outputs[0])


def test_the_comparison_behind_a_choice() -> None:
    nodes = [node("Relu", "x", "r"), node("Less", "half r", "m"), node("Cast", "m", "y", to=TensorProto.FLOAT)]
    made = load(model(nodes, [value("x")], [value("y")], [weight("half", np.float32(0.5))]))
    found = choice_of(made.graph.outputs[0])
    assert found is not None
    assert (found.decided_by, found.threshold, found.axis) == (("r",), 0.5, None)


def test_one_selected_row_or_none_is_a_list_too() -> None:
    facts = facts_of(load(nms_detector()[0]))
    answers = [
        {
            "rows": np.zeros((1, count, 5), np.float32),
            "selected": np.zeros((count, 3), np.int64),
            "boxes": np.ones((1, 80, 4), np.float32),
            "scores": np.ones((1, 1, 80), np.float32),
        }
        for count in (1, 0, 1)
    ]
    rows = next(kind for kind in kinds_of(facts, answers) if kind.output == "rows")
    assert (rows.reading, rows.axis) == (Reading.ROWS, 1)


def test_peaks_that_a_mask_leaves_lead_to_the_map_itself() -> None:
    """As heads without anchors are exported: the map times where it equals the largest around it, then TopK."""
    nodes = [
        node("Sigmoid", "x", "heat"),
        node("MaxPool", "heat", "around", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Equal", "heat around", "same"),
        node("Cast", "same", "keep", to=TensorProto.FLOAT),
        node("Mul", "heat keep", "peaks"),
        node("Reshape", "peaks flat", "list"),
        node("TopK", "list k", "scores at", axis=1),
        node("Cast", "at", "places", to=TensorProto.FLOAT),
    ]
    weights = [weight("flat", np.array([1, -1])), weight("k", np.array([5]))]
    outputs = [value("scores", shape=(1, 5)), value("places", shape=(1, 5))]
    made = load(model(nodes, [value("x", shape=(1, 1, 9, 9))], outputs, weights))
    (found,) = selections_behind(made.graph.outputs[1])
    assert (set(found.entering), found.counted, found.sorted) == ({"heat", "around"}, "scores", True)


def experts(*, written: str) -> object:
    """Of three tables each of two tokens goes to two, as decoders with experts are exported: by what was chosen for
    each token, of which all are added up; or table by table, whose tokens are put back in their places."""
    rng = np.random.default_rng(0)
    weights = [weight("gate", rng.standard_normal((4, 3)).astype(np.float32)), weight("k", np.array([2])),
               weight("tables", rng.standard_normal((3, 4)).astype(np.float32)), weight("second", np.array([1])),
               weight("first", np.array([0])), weight("zeros", np.zeros((2, 4), np.float32)),
               weight("end", rng.standard_normal((4, 7)).astype(np.float32)), weight("one", np.array(1))]  # fmt: skip
    nodes = [node("MatMul", "x gate", "scores"), node("TopK", "scores k", "best which", axis=-1)]
    if written == "summed":
        nodes += [
            node("Gather", "tables which", "chosen"),
            node("Unsqueeze", "best last", "scale"),
            node("Mul", "chosen scale", "scaled"),
            node("ReduceSum", "scaled second", "mixed", keepdims=0),
        ]
        weights.append(weight("last", np.array([2])))
    else:
        nodes += [node("Equal", "which one", "mine"), node("Cast", "mine", "mask", to=TensorProto.INT64),
                  node("ReduceSum", "mask second", "any", keepdims=0), node("NonZero", "any", "found"),
                  node("Transpose", "found", "places"), node("GatherND", "x places", "rows"),
                  node("ScatterND", "zeros places rows", "mixed")]  # fmt: skip
    nodes += [node("Add", "x mixed", "h"), node("MatMul", "h end", "y")]
    return model(nodes, [value("x", shape=(2, 4))], [value("y", shape=(2, 7))], weights)


@pytest.mark.parametrize("written", ["summed", "in places"])
def test_rows_that_experts_took_are_not_those_of_the_output(written: str) -> None:
    """Two tokens, and two experts of each: that the numbers are the same says nothing."""
    loaded = load(experts(written=written))
    assert selections_behind(loaded.graph.outputs[0]) == ()
    rng = np.random.default_rng(1)
    facts = facts_of(loaded)
    answers = [{"y": rng.standard_normal((2, 7)), **{name: np.zeros((2, 2)) for name in facts.inner}} for _ in range(3)]
    (kind,) = kinds_of(facts, answers)
    assert kind.reading is Reading.VALUES


def test_rows_written_one_behind_the_other_are_those_selected() -> None:
    """Padded to eight: the places are counted, the rows are those that were found."""
    nodes = [
        node("Sigmoid", "x", "scores"),
        node("NonMaxSuppression", "boxes scores most", "found"),
        node("Gather", "found two", "index", axis=1),
        node("Gather", "table index", "rows"),
        node("Shape", "index", "count"),
        node("Squeeze", "count", "number"),
        node("Range", "start number step", "places"),
        node("Unsqueeze", "places ahead", "each"),
        node("ScatterND", "zeros each rows", "y"),
    ]
    weights = [weight("most", np.array([8])), weight("two", np.array(2)), weight("ahead", np.array([1])),
               weight("start", np.array(0)), weight("step", np.array(1)), weight("zeros", np.zeros((8, 4), np.float32)),
               weight("table", np.ones((20, 4), np.float32))]  # fmt: skip
    inputs = [value("boxes", shape=(1, 20, 4)), value("x", shape=(1, 1, 20))]
    made = load(model(nodes, inputs, [value("y", shape=(8, 4))], weights))
    (found,) = selections_behind(made.graph.outputs[0])
    assert found.counted == "found" and found.moved
