"""Masks vanish in FP16 as they do in FP32, also in rows that are masked throughout; what is no mask stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper

from halfwise.model.model import load
from halfwise.repair import Ranges, repaired
from halfwise.repair.masks import Masks
from tests.models.numbered_graph import NumberedGraph
from tests.models.zoo import SHAPES
from tests.support.repairing import effect

Array = NDArray[Any]
RULE = Masks()
LOWEST = float(np.finfo(np.float32).min)
ROWS, TOKENS, WIDTH = 3, 8, 16
SEEN = Ranges({"mask": 1.0}, {"mask": 1.0})
RNG = np.random.default_rng()


@pytest.fixture(autouse=True)
def _same_numbers_in_any_order() -> None:
    RNG.bit_generator.state = np.random.default_rng(403).bit_generator.state


class Graph(NumberedGraph):
    """Scores are given; what becomes of them is softmax(masked scores) @ values."""

    def __init__(self, opset: int = 17) -> None:
        super().__init__(opset)
        self.scores = self.input("scores", ["rows", TOKENS, TOKENS])

    def mask(self) -> str:
        return self.input("mask", ["rows", 1, TOKENS])

    def bools(self) -> str:
        return self.op("Cast", [self.mask()], "", to=TensorProto.BOOL)

    def inverted(self) -> str:
        return self.op("Sub", [self.number(1.0), self.mask()], "")

    def causal(self, lowest: float) -> str:
        return self.number(np.triu(np.full((TOKENS, TOKENS), lowest), 1))

    def attend(self, masked: str) -> Graph:
        weights = self.op("Softmax", [masked], "", axis=-1)
        values = self.number(np.random.default_rng(1).standard_normal((TOKENS, WIDTH)))
        self.output(self.op("MatMul", [weights, values], ""), "y", ["rows", TOKENS, WIDTH])
        return self


def feeds(size: float = 12.0) -> list[dict[str, Array]]:
    """Rows that are masked not at all, in part, and throughout."""
    result = []
    for _ in range(3):
        mask = np.zeros((ROWS, 1, TOKENS), dtype=np.float32)
        mask[0] = 1.0
        mask[1, :, 3:] = 1.0
        scores = size * RNG.standard_normal((ROWS, TOKENS, TOKENS))
        result.append({"scores": scores.astype(np.float32), "mask": mask})
    return result


def scaled_mask(g: Graph, lowest: float) -> str:
    return g.op("Mul", [g.inverted(), g.number(lowest)], "")


def filled(g: Graph, lowest: float) -> str:
    """As transformers fill an inverted mask."""
    inverted = g.inverted()
    chosen = g.op("Cast", [inverted], "", to=TensorProto.BOOL)
    return g.op("Where", [chosen, g.number(lowest), inverted], "")


def triangle(g: Graph, lowest: float) -> str:
    """A causal mask made in the graph."""
    tensor = helper.make_tensor("fill", TensorProto.FLOAT, [1], [lowest])
    full = g.op("ConstantOfShape", [g.number([TOKENS, TOKENS], np.int64)], "", value=tensor)
    return g.op("Trilu", [full, g.number(1, np.int64)], "", upper=1)


def padded_triangle(g: Graph, lowest: float) -> str:
    """As transformers join a causal mask and padding: where their sum is 0, nothing has masked it yet."""
    causal = triangle(g, lowest)
    unseen = g.op("Equal", [g.op("Add", [causal, g.mask()], ""), g.number(0.0)], "")
    joined = g.op("Where", [unseen, g.number(lowest), causal], "")
    return g.op("Expand", [joined, g.op("Shape", [causal], "")], "")


SPELLINGS: dict[str, Callable[[Graph, float], str]] = {
    "(1 - mask) * lowest": lambda g, low: g.op("Add", [g.scores, scaled_mask(g, low)], ""),
    "mask first": lambda g, low: g.op("Add", [scaled_mask(g, low), g.scores], ""),
    "(mask - 1) * -lowest": lambda g, low: g.op(
        "Add", [g.scores, g.op("Mul", [g.op("Sub", [g.mask(), g.number(1.0)], ""), g.number(-low)], "")], ""
    ),
    "scores - mask": lambda g, low: g.op(
        "Sub", [g.scores, g.op("Mul", [g.inverted(), g.number([[[-low]]])], "")], ""
    ),
    "a mask divided": lambda g, low: g.op(
        "Add", [g.scores, g.op("Div", [scaled_mask(g, low), g.number(2.0)], "")], ""
    ),
    "where 0 or lowest": lambda g, low: g.op(
        "Add", [g.scores, g.op("Where", [g.bools(), g.number(0.0), g.number(low)], "")], ""
    ),
    "masked_fill of the inverted mask": lambda g, low: g.op("Add", [g.scores, filled(g, low)], ""),
    "filled where a sum is 0": lambda g, low: g.op("Add", [g.scores, padded_triangle(g, low)], ""),
    "expanded": lambda g, low: g.op(
        "Add",
        [g.scores, g.op("Expand", [scaled_mask(g, low), g.number([1, TOKENS, 1], np.int64)], "")],
        "",
    ),
    "chosen, then biased": lambda g, low: g.op(
        "Add", [g.op("Where", [g.bools(), g.scores, g.number(low)], ""), g.number(20 * RNG.standard_normal(TOKENS))], ""
    ),
    "bias and mask, then scores": lambda g, low: g.op(
        "Add", [g.scores, g.op("Add", [g.number(RNG.standard_normal((TOKENS, TOKENS))), scaled_mask(g, low)], "")], ""
    ),
    "chosen and scaled": lambda g, low: g.op(
        "Mul", [g.op("Where", [g.bools(), g.scores, g.number(low / 4)], ""), g.number(1.7)], ""
    ),
    "two masks added": lambda g, low: g.op(
        "Add", [g.scores, g.op("Add", [scaled_mask(g, low / 4), g.causal(low / 4)], "")], ""
    ),
    "one mask after the other": lambda g, low: g.op(
        "Add", [g.op("Add", [g.scores, g.causal(low / 4)], ""), scaled_mask(g, low / 4)], ""
    ),
    "kept over the lowest": lambda g, low: g.op(
        "Max", [g.op("Add", [g.op("Add", [g.scores, g.causal(low / 4)], ""), scaled_mask(g, low / 4)], ""),
                g.number(low / 4)], ""
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("lowest", [LOWEST, -1e12])
def test_masks_in_every_spelling(name: str, lowest: float) -> None:
    graph = Graph()
    model = graph.attend(SPELLINGS[name](graph, lowest)).model()
    found = effect(RULE, model, feeds())
    assert len(found.repairs) == 1
    assert found.bit_identical
    assert found.after < 1.0 < found.before


@pytest.mark.parametrize("size", [30.0, 100.0])
@pytest.mark.parametrize("name", ["(1 - mask) * lowest", "scores - mask", "masked_fill of the inverted mask"])
def test_what_a_mask_leaves_of_large_scores_is_left(name: str, size: float) -> None:
    """-1e9 swallows all of a score but multiples of 64, and so ranks what is masked throughout."""
    graph = Graph()
    found = effect(RULE, graph.attend(SPELLINGS[name](graph, -1e9)).model(), feeds(size))
    assert found.repairs[0].parameters["spacing"] == 64.0
    assert found.bit_identical
    assert found.after < 5.0 < found.before  # large scores have large roundings


def test_a_mask_made_in_the_graph() -> None:
    graph = Graph()
    masked = graph.op("Add", [graph.op("Add", [graph.scores, triangle(graph, -1e12)], ""), filled(graph, -1e12)], "")
    found = effect(RULE, graph.attend(masked).model(), feeds())
    assert found.bit_identical
    assert found.after < 1.0 < found.before
    fills = [
        node.attributes["value"].as_tensor().numpy()
        for node in found.repaired.nodes
        if node.op_type == "ConstantOfShape"
    ]
    assert [float(fill[0]) for fill in fills] == [-16384.0]


def test_a_softmax_written_out() -> None:
    graph = Graph()
    masked = graph.op("Add", [graph.scores, scaled_mask(graph, LOWEST)], "")
    shifted = graph.op("Sub", [masked, graph.op("ReduceMax", [masked], "", axes=[-1])], "")
    power = graph.op("Exp", [shifted], "")
    total = graph.op("ReduceSum", [power, graph.number([-1], np.int64)], "")
    graph.output(graph.op("Div", [power, total], ""), "y", ["rows", TOKENS, TOKENS])
    found = effect(RULE, graph.model(), feeds())
    assert len(found.repairs) == 1
    assert found.bit_identical
    assert found.after < 1.0 < found.before


def test_layers_share_one_comparison_and_constants_of_others_stay() -> None:
    graph = Graph()
    low = graph.number(-1e12)
    mask = graph.op("Mul", [graph.inverted(), low], "")
    x = graph.scores
    for _ in range(3):
        x = graph.op("Softmax", [graph.op("Add", [x, mask], "")], "", axis=-1)
    graph.output(graph.op("Max", [x, low], ""), "y", ["rows", TOKENS, TOKENS])
    found = effect(RULE, graph.model(), feeds())
    assert len(found.repairs) == 1
    assert found.bit_identical
    assert found.ops().count("Less") == 1
    assert found.ops().count("Where") == 3
    numbers = [float(value.const_value.numpy()) for value in found.repaired.initializers()
               if value.const_value is not None and value.const_value.size == 1]  # fmt: skip
    assert -1e12 in [pytest.approx(number) for number in numbers]
    assert -32768.0 in numbers


@pytest.mark.parametrize("lowest", [-65504.0, -1e5, -1e6])
def test_small_stand_ins_change_only_their_size(lowest: float) -> None:
    graph = Graph()
    masked = graph.op("Add", [graph.scores, scaled_mask(graph, lowest)], "")
    found = effect(
        RULE, graph.attend(masked).model(), [{**feed, "mask": np.ones_like(feed["mask"])} for feed in feeds()]
    )
    assert "Where" not in found.ops()
    assert found.bit_identical
    assert found.after < 1.0


# -- what is left alone -----------------------------------------------------------------------------------------------


def near_misses() -> dict[str, Graph]:
    def graph(build: Callable[[Graph], str]) -> Graph:
        made = Graph()
        return made.attend(build(made))

    def shown() -> Graph:
        made = Graph()
        mask = scaled_mask(made, -1e9)
        made.attend(made.op("Add", [made.scores, mask], ""))
        made.output(mask, "mask_out", ["rows", 1, TOKENS])
        return made

    def log_softmax() -> Graph:
        made = Graph()
        masked = made.op("Add", [made.scores, scaled_mask(made, -1e9)], "")
        made.output(made.op("LogSoftmax", [masked], "", axis=-1), "y", ["rows", TOKENS, TOKENS])
        return made

    def compared(g: Graph) -> str:
        mask = scaled_mask(g, -1e9)
        used = g.op("Cast", [g.op("Less", [mask, g.number(-1.0)], "")], "", to=TensorProto.FLOAT)
        return g.op("Mul", [g.op("Add", [g.scores, mask], ""), used], "")

    def cancelled(g: Graph) -> str:
        """0 behind the repair, and -5e9 in front of it."""
        one, other = scaled_mask(g, -1e12), g.causal(-1.005e12)
        same = g.op("Equal", [g.op("Sub", [one, other], ""), g.number(0.0)], "")
        masked = g.op("Add", [g.op("Add", [g.scores, one], ""), other], "")
        return g.op("Where", [same, masked, g.scores], "")

    def nowhere() -> Graph:
        made = Graph()
        chosen = made.op("Where", [made.bools(), made.scores, made.number(-1e9)], "")
        made.output(made.op("ReduceMax", [chosen], "", axes=[-1]), "y", ["rows", TOKENS, 1])
        return made

    return {
        "fits as it is": graph(lambda g: g.op("Add", [g.scores, scaled_mask(g, -1e4)], "")),
        "chosen and nothing else": graph(lambda g: g.op("Where", [g.bools(), g.scores, g.number(-1e9)], "")),
        "infinity": graph(lambda g: g.op("Add", [g.scores, scaled_mask(g, -np.inf)], "")),
        "a large positive number": graph(lambda g: g.op("Add", [g.scores, scaled_mask(g, 1e9)], "")),
        "a computed factor": graph(
            lambda g: g.op("Add", [g.scores, g.op("Mul", [g.op("Sigmoid", [g.mask()], ""), g.number(-1e9)], "")], "")
        ),
        "masks of two sizes": graph(
            lambda g: g.op("Add", [g.scores, g.op("Add", [scaled_mask(g, -1e12), g.causal(-1e9)], "")], "")
        ),
        "two large numbers in one constant": graph(
            lambda g: g.op("Add", [g.scores, g.number(np.linspace(-1e9, -1e6, TOKENS))], "")
        ),
        "compared with": graph(compared),
        "compared with one another": graph(cancelled),
        "shown": shown(),
        "the logarithm is shown": log_softmax(),
        "no softmax": nowhere(),
    }


@pytest.mark.parametrize("name", near_misses())
def test_near_misses_are_left_alone(name: str) -> None:
    assert RULE.find(load(near_misses()[name].model()), SEEN) == ()


@pytest.mark.parametrize(
    "ranges",
    [Ranges(), Ranges({"mask": 3.0}, {"mask": 1.0}), Ranges({"mask": 1.0}, {"mask": 1e-4})],
    ids=["never seen", "more than one", "almost zero"],
)
def test_a_mask_must_be_known_to_be_zeros_and_ones(ranges: Ranges) -> None:
    graph = Graph()
    model = load(graph.attend(graph.op("Add", [graph.scores, scaled_mask(graph, -1e9)], "")).model())
    assert RULE.find(model, ranges) == ()
    assert len(RULE.find(model, SEEN)) == 1


def test_scores_as_large_as_masks_are_left_alone() -> None:
    graph = Graph()
    model = load(graph.attend(graph.op("Add", [graph.scores, scaled_mask(graph, -1e9)], "")).model())
    assert RULE.find(model, Ranges({"mask": 1.0, "scores": 2e4}, {"mask": 1.0})) == ()


def test_a_mask_that_a_branch_reads_is_left_alone() -> None:
    inner = helper.make_graph(
        [helper.make_node("Add", ["scores", "/Mul_output_0"], ["inner"])], "then", [],
        [helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)],
    )  # fmt: skip
    other = helper.make_graph(
        [helper.make_node("Identity", ["scores"], ["same"])], "else", [],
        [helper.make_tensor_value_info("same", TensorProto.FLOAT, None)],
    )  # fmt: skip
    graph = Graph()
    scaled_mask(graph, -1e9)
    flag = graph.input("flag", [], TensorProto.BOOL)
    model = graph.attend(graph.op("If", [flag], "", then_branch=inner, else_branch=other)).model()
    assert RULE.find(load(model), SEEN) == ()


def test_a_place_that_changed_meanwhile_is_not_touched() -> None:
    graph = Graph()
    model = load(graph.attend(graph.op("Add", [graph.scores, scaled_mask(graph, -1e9)], "")).model())
    (repair,) = RULE.find(model, SEEN)
    once, done = repaired(model, [(RULE, repair)])
    assert done == (repair,)
    assert repaired(once, [(RULE, repair)])[1] == ()
    assert RULE.find(once, SEEN) == ()


@settings(deadline=None, max_examples=40)
@given(
    name=st.sampled_from(sorted(SPELLINGS)),
    lowest=st.sampled_from([LOWEST, -1e30, -3e15]),
    size=st.sampled_from([0.0, 1e-3, 1.0, 30.0, 500.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_fp32_answer_stays_bit_by_bit(name: str, lowest: float, size: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = Graph()
    model = graph.attend(SPELLINGS[name](graph, lowest)).model()
    mask = rng.integers(0, 2, (ROWS, 1, TOKENS)).astype(np.float32)
    mask[0] = 0.0
    mask[1, 0, 0] = 1.0
    feed = {"scores": (size * rng.standard_normal((ROWS, TOKENS, TOKENS))).astype(np.float32), "mask": mask}
    found = effect(RULE, model, [feed])
    assert len(found.repairs) == 1
    assert found.bit_identical


# -- the failing models -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mask_minus_1e9", "mask_float_min", "mask_where_scaled", "two_masks_added"])
def test_the_failing_shapes_need_no_fp32_node(name: str) -> None:
    case = SHAPES[name]()
    found = effect(RULE, case.model, case.inputs, case.tolerance)
    assert len(found.repairs) == 1
    assert found.bit_identical
    assert found.after < 0.5 < 1.0 < found.before
