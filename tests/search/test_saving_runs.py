"""How many runs may go into saving FP32 nodes: more where a run takes next to no time."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from halfwise.model.inputs.feed import Feed
from halfwise.model.inputs.samples import Samples, load_samples
from halfwise.model.model import Model, load
from halfwise.search.run_counter import KEPT_BACK, SAVING_RUNS, SAVING_RUNS_LATER, RunCounter, Untried, saving_runs


def _chain(nodes: int = 4, weight: int = 8, given: int = 8) -> Model:
    """Of activations, and the sum of a weight."""
    steps = [helper.make_node("Relu", [f"x{index}"], [f"x{index + 1}"]) for index in range(nodes)]
    weight_of = helper.make_node("ReduceSum", ["w"], ["s"], keepdims=0)
    graph = helper.make_graph(
        [*steps, weight_of, helper.make_node("Add", [f"x{nodes}", "s"], ["y"])],
        "chain",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, [given])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [given])],
        [numpy_helper.from_array(np.zeros(weight, np.float32), "w")],
    )
    return load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


def _runs(nodes: int = 4, weight: int = 8, given: int = 8) -> float:
    model = _chain(nodes, weight, given)
    return saving_runs(model, load_samples(model.inputs, [{"x0": np.ones(given, np.float32)}]))


def test_a_small_model_may_take_more() -> None:
    assert _runs() > 2 * SAVING_RUNS


@pytest.mark.parametrize("large", [{"nodes": 60}, {"weight": 400_000}, {"given": 100_000}])
def test_many_nodes_weights_or_inputs_are_not_small(large: dict[str, int]) -> None:
    assert _runs(**large) == SAVING_RUNS


def test_tensors_of_a_sequence_are_counted_one_by_one() -> None:
    """They may have different shapes, which are no one array."""
    ragged = [np.ones(3, np.float32), np.ones((2, 40_000), np.float32)]
    samples = Samples((Feed(0, {"s": ragged}),), (), "given")  # type: ignore[dict-item]
    assert saving_runs(_chain(), samples) == SAVING_RUNS


def test_a_later_search_has_runs_of_its_own() -> None:
    """However many went into the one before, in whose answer only another judge finds fault."""
    counter = RunCounter(saving=SAVING_RUNS)
    counter.over(2)
    counter.add(2.0 * SAVING_RUNS)
    assert counter.spent(2) and not counter.within(1.0)
    counter.search_later()
    assert not counter.spent(2) and counter.within(1.0)
    own = 2.0 * (SAVING_RUNS_LATER - KEPT_BACK)  # of the samples of a pass
    assert not counter.spent(2, own - 1.0) and counter.spent(2, own)
    counter.add(own)
    assert counter.spent(2)


def test_a_later_search_of_a_short_job_is_short() -> None:
    counter = RunCounter(saving=12)
    counter.add(20.0)
    counter.search_later()
    assert counter.saving == 32.0


def test_a_later_search_takes_none_from_what_is_left() -> None:
    counter = RunCounter(saving=100.0)
    counter.search_later()
    assert counter.saving == 100.0


def test_a_stated_budget_is_for_all_searches() -> None:
    counter = RunCounter(budget=10.0)
    counter.add(10.0)
    counter.search_later()
    assert not counter.free(1.0, Untried.SETS)
