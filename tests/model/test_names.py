"""Node names: what TensorRT's parser would give, unique, and the given ones kept."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from halfwise.model.model import Model, load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto

NAMES = st.sampled_from(["", "a", "b", "a_0", "node_of_t1", "node_of_t2"])


def chain(names: list[str]) -> Model:
    """A chain of Relus with these names; node i writes t{i}."""
    tensors = ["x", *(f"t{i}" for i in range(len(names)))]
    nodes = [helper.make_node("Relu", [tensors[i]], [tensors[i + 1]], name=name) for i, name in enumerate(names)]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info(tensors[-1], TensorProto.FLOAT, [2])],
    )
    return load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


def names_of(model: Model) -> list[str | None]:
    return [node.name for node in model.nodes]


def test_unnamed_nodes_are_called_by_their_first_output() -> None:
    model = chain(["", "mine", ""])
    assert names_of(model) == ["node_of_t0", "mine", "node_of_t2"]
    assert model.renamed_nodes == 2


def test_a_duplicate_gets_a_counter_that_is_global() -> None:
    assert names_of(chain(["a", "a", "b", "b", "a"])) == ["a", "a_0", "b", "b_1", "a_2"]


def test_a_counter_skips_names_that_are_taken() -> None:
    assert names_of(chain(["a", "a_0", "a"])) == ["a", "a_0", "a_1"]


def test_nodes_of_branches_share_the_names() -> None:
    def branch(op: str) -> onnx.GraphProto:
        out = helper.make_tensor_value_info("inner", TensorProto.FLOAT, [2])
        return helper.make_graph([helper.make_node(op, ["x"], ["inner"])], op, [], [out])

    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("Relu"), else_branch=branch("Neg"))
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    model = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    assert sorted(str(name) for name in names_of(model)) == ["node_of_inner", "node_of_inner_0", "node_of_y"]


@given(st.lists(NAMES, min_size=1, max_size=8))
def test_every_name_is_unique_and_the_first_of_its_kind_is_kept(names: list[str]) -> None:
    model = chain(names)
    found = names_of(model)
    assert len(set(found)) == len(found)
    assert all(found)
    assert found[0] == (names[0] or "node_of_t0")
    assert model.renamed_nodes == sum(now != before for now, before in zip(found, names, strict=True))
    assert [model.node_by_name[str(name)] for name in found] == list(model.nodes)


def test_tensors_leave_their_names_to_those_that_onnx_runtime_makes() -> None:
    """It writes a Gemm between two Reshapes for this product and sum, puts casts around, and saves such models, too."""
    weights = {
        "w": np.eye(8, dtype=np.float32),
        "b": np.ones(8, dtype=np.float32),
        "gemm_input_shape": np.array([1, 4, 8]),
        "gemm_output_shape_token_3": np.array([4, 8]),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["a"]),
        helper.make_node("Relu", ["a"], ["InsertedPrecisionFreeCast_gemm_output_reshape_arg"]),
        helper.make_node(
            "Reshape", ["InsertedPrecisionFreeCast_gemm_output_reshape_arg", "gemm_output_shape_token_3"], ["r"]
        ),
        helper.make_node("Reshape", ["r", "gemm_input_shape"], ["y"]),
    ]
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 8])] for name in "xy"]
    graph = helper.make_graph(nodes, "g", *ends, [numpy_helper.from_array(w, name) for name, w in weights.items()])
    model = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    written = typed_proto(Assignment.all_narrow(Sites(model)))
    session = onnxruntime.InferenceSession(written.SerializeToString(), providers=["CPUExecutionProvider"])
    assert np.array_equal(session.run(None, {"x": np.zeros((1, 4, 8), np.float32)})[0], np.ones((1, 4, 8)))
