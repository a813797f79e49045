"""The forms that a model may have: sparse weights, functions, sequences, custom operators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from halfwise.core.errors import InputError
from halfwise.core.notes import Note, NoteKind
from halfwise.emulation.emulate import Emulator
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.verify import verify
from tests.models.build import f32, model, node, value, weight
from tests.models.model_cases import refusal, relu
from tests.support.model_runs import run
from tests.support.says import Says

# -- forms of a model ------------------------------------------------------------------------------------------------


def test_an_initializer_that_is_also_an_input_is_no_input() -> None:
    proto = model(
        [node("Add", "x w", "y")], [value("x"), value("w")], [value("y")], [weight("w", f32(1, 2, 3, 4))], ir_version=3
    )
    loaded = load(proto)
    assert [spec.name for spec in loaded.inputs] == ["x"]
    typed = typed_proto(Assignment.all_narrow(Sites(loaded)))
    onnx.checker.check_model(typed, full_check=True)


def test_a_sparse_initializer_becomes_dense() -> None:
    proto = model([node("Add", "x s", "y")], [value("x")], [value("y")])
    sparse = helper.make_sparse_tensor(weight("s", f32(5, 7)), weight("s_at", np.array([1, 3])), [4])
    proto.graph.sparse_initializer.append(sparse)
    before = proto.SerializeToString()
    assert np.array_equal(run(proto, {"x": np.zeros(4, np.float32)})["y"], f32(0, 5, 0, 7))
    assert proto.SerializeToString() == before


def test_a_sparse_constant_with_two_dimensional_indices_becomes_dense() -> None:
    sparse = helper.make_sparse_tensor(weight("", f32(5, 7)), weight("", np.array([[0, 1], [1, 0]])), [2, 2])
    proto = model(
        [node("Constant", "", "s", sparse_value=sparse), node("Add", "x s", "y")],
        [value("x", shape=[2, 2])],
        [value("y", shape=[2, 2])],
    )
    assert np.array_equal(run(proto, {"x": np.zeros((2, 2), np.float32)})["y"], [[0, 5], [7, 0]])


@pytest.mark.parametrize("dense", [0, 1])
def test_a_sparse_initializer_that_is_there_twice_is_refused(dense: int, says: Says) -> None:
    """Of two readers one takes the first, and one the last."""
    proto = model([node("Add", "x s", "y")], [value("x")], [value("y")], [weight("s", f32(1, 2, 3, 4))] * dense)
    sparse = helper.make_sparse_tensor(weight("s", f32(5, 7)), weight("s_at", np.array([1, 3])), [4])
    proto.graph.sparse_initializer.extend([sparse] * (2 - dense))
    says(refusal(proto))


def test_of_initializers_of_one_name_the_last_counts(tmp_path: Path) -> None:
    """As for ONNX Runtime and ONNX's reference; TensorRT refuses such a file, and halfwise writes one of them."""
    held = [weight("s", f32(1, 2, 3, 4)), weight("t", f32(9)), weight("s", f32(5, 6, 7, 8))]
    proto = model([node("Add", "x s", "a"), node("Mul", "a t", "y")], [value("x")], [value("y")], held)
    x = f32(1, 1, 1, 1)
    onnx.save(proto, tmp_path / "m.onnx")
    session = ort.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    assert np.array_equal(session.run(None, {"x": x})[0], f32(54, 63, 72, 81))
    assert np.array_equal(run(proto, {"x": x})["y"], f32(54, 63, 72, 81))
    assert len(proto.graph.initializer) == 3, "what was given is changed"
    out = tmp_path / "out"
    assert fix(tmp_path / "m.onnx", [{"x": x}], out=out).met
    written = onnx.load(next(out.glob("*.onnx")))
    assert sorted(tensor.name for tensor in written.graph.initializer) == ["s", "t"]


@pytest.mark.parametrize("axis", [{}, {"axis": 1}])
def test_a_vector_is_dequantised_along_the_one_axis_that_it_has(axis: dict[str, int]) -> None:
    """ONNX Runtime refuses it by itself, and runs the model where it takes it into a product."""
    held = [weight("q", np.array([3, -4, 5, 6], np.int32)), weight("s", f32(0.5, 0.25, 2, 1))]
    proto = model(
        [node("DequantizeLinear", "q s", "b", **axis), node("Add", "x b", "y")], [value("x")], [value("y")], held
    )
    assert np.array_equal(run(proto, {"x": f32(1, 1, 1, 1)})["y"], f32(2.5, 0, 11, 7))
    assert [each.i for each in proto.graph.node[0].attribute] == list(axis.values()), "what was given is changed"


def test_a_domain_of_no_version_does_not_end_what_is_known_of_shapes() -> None:
    """ONNX Runtime takes its own version of its own operators."""
    proto = model(
        [node("Relu", "x", "a"), node("Gelu", "a", "b", domain="com.microsoft"), node("Neg", "b", "y")],
        [value("x", shape=("n", 4))],
        [value("y", shape=None)],
    )
    found = load(proto)
    assert [str(each.outputs[0].shape) for each in found.graph] == ["[n,4]"] * 3
    assert [entry.domain for entry in proto.opset_import] == [""], "what was given is changed"


def test_an_attribute_that_holds_no_tensor_is_refused(says: Says) -> None:
    """One reader takes it for a tensor without a type, another for none."""
    proto = model([node("Constant", "", "c"), node("Add", "x c", "y")], [value("x")], [value("y")])
    proto.graph.node[0].attribute.add(name="value", type=onnx.AttributeProto.TENSOR)
    says(refusal(proto))


def test_a_sparse_initializer_outside_its_shape(says: Says) -> None:
    proto = model([node("Add", "x s", "y")], [value("x")], [value("y")])
    sparse = helper.make_sparse_tensor(weight("s", f32(5, 7)), weight("s_at", np.array([1, 4])), [4])
    proto.graph.sparse_initializer.append(sparse)
    says(refusal(proto))


def test_functions_are_inlined() -> None:
    body = [helper.make_node("LeakyRelu", ["a"], ["b"], name="inside")]
    body[0].attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT))
    function = helper.make_function("mine", "Leaky", ["a"], ["b"], body, [helper.make_opsetid("", 17)], ["slope"])
    proto = model([node("Leaky", "x", "y", domain="mine", slope=0.25)], [value("x")], [value("y")], domains=["mine"])
    proto.functions.append(function)
    loaded = load(proto)
    assert [n.op_type for n in loaded.nodes] == ["LeakyRelu"]
    assert loaded.stored_nodes == 1
    assert np.array_equal(run(proto, {"x": f32(-4, 4, 0, -1)})["y"], f32(-1, 4, 0, -0.25))


# The function's opset, the model's, and the function's body.
OTHER_OPSETS = {
    "the same operator": (13, 14, [node("LeakyRelu", "a", "b")]),
    "an older one": (13, 15, [node("Relu", "a", "b")]),
    "older axes": (12, 18, [node("ReduceSum", "a", "s", axes=[1]), node("Add", "a s", "b")]),
    "a newer one": (18, 13, [node("ReduceMean", "a k", "b"), node("Constant", "", "k", value_ints=[0])][::-1]),
}


@pytest.mark.parametrize("which", OTHER_OPSETS)
def test_a_function_may_use_another_opset(which: str) -> None:
    inner, outer, body = OTHER_OPSETS[which]
    function = helper.make_function("mine", "F", ["a"], ["b"], body, [helper.make_opsetid("", inner)], [])
    given = value("x", shape=(2, 3, 2))
    nodes = [node("F", "x", "f", domain="mine"), node("ReduceMean", "f", "r", axes=[1])]
    proto = model(
        [*nodes[: 1 + (outer < 18)], node("Sub", "f x" if outer >= 18 else "r x", "y")],
        [given],
        [value("y")],
        opset=outer,
        domains=["mine"],
    )
    proto.functions.append(function)
    feed = {"x": np.random.default_rng(3).standard_normal((2, 3, 2)).astype(np.float32)}
    wanted = ReferenceEvaluator(proto).run(None, feed)[0]
    assert np.allclose(run(proto, feed)["y"], wanted, rtol=1e-6, atol=1e-6)


def test_constants_of_every_spelling_become_initializers() -> None:
    nodes = [
        node("Constant", "", "a", value_float=2.0),
        node("Constant", "", "b", value_floats=[1.0, 2.0, 3.0, 4.0]),
        node("Constant", "", "shape", value_ints=[4]),
        node("Constant", "", "i", value_int=3),
        node("Mul", "x a", "m"),
        node("Add", "m b", "s"),
        node("Reshape", "s shape", "y"),
        node("Gather", "x i", "z"),
    ]
    proto = model(nodes, [value("x")], [value("y"), value("z", shape=[])])
    loaded = load(proto)
    assert sorted(loaded.graph.initializers) == ["a", "b", "i", "shape"]
    answer = run(proto, {"x": f32(1, 1, 1, 5)})
    assert np.array_equal(answer["y"], f32(3, 4, 5, 14))
    assert answer["z"] == 5


def test_other_types_are_left_alone() -> None:
    nodes = [
        node("Add", "d d", "dd"),
        node("Add", "i i", "ii"),
        node("Not", "b", "bb"),
        node("Identity", "s", "ss"),
        node("Relu", "x", "y"),
    ]
    kinds = {"d": TensorProto.DOUBLE, "i": TensorProto.INT64, "b": TensorProto.BOOL, "s": TensorProto.STRING}
    proto = model(
        nodes,
        [value("x"), *(value(name, kind, [2]) for name, kind in kinds.items())],
        [value("y"), *(value(name * 2, kind, [2]) for name, kind in kinds.items())],
    )
    assignment = Assignment.all_narrow(Sites(load(proto)))
    typed = typed_proto(assignment)
    onnx.checker.check_model(typed, full_check=True)
    assert [(o.name, o.type.tensor_type.elem_type) for o in typed.graph.output[1:]] == [
        (name * 2, kind) for name, kind in kinds.items()
    ]
    feeds = {
        "x": f32(-1, 0, 1, 2),
        "d": np.array([1e300, 1e-300]),
        "i": np.array([1 << 40, -3]),
        "b": np.array([True, False]),
        "s": np.array(["a", "b"], dtype=object),
    }
    answer = Emulator().session(assignment).run(feeds)
    assert np.array_equal(answer["dd"], [2e300, 2e-300])
    assert np.array_equal(answer["ii"], [1 << 41, -6])
    assert np.array_equal(answer["bb"], [False, True])
    assert answer["ss"].tolist() == ["a", "b"]


def test_a_custom_operator_is_an_fp32_island() -> None:
    proto = model(
        [node("Relu", "x", "a"), node("Magic", "a", "b", domain="acme"), node("Neg", "b", "y")],
        [value("x")],
        [value("y")],
        domains=["acme"],
    )
    sites = Sites(load(proto))
    assert [site.pinned for site in sites.all] == [
        None,
        Note.of(NoteKind.FOREIGN_DOMAIN, "acme"),
        None,
    ]
    typed = typed_proto(Assignment.all_narrow(sites))
    onnx.checker.check_model(typed, full_check=True)
    assert [n.op_type for n in typed.graph.node] == ["Cast", "Relu", "Cast", "Magic", "Cast", "Neg", "Cast"]
    assert {v.name: v.type.tensor_type.elem_type for v in typed.graph.value_info} == {"b": TensorProto.FLOAT}


def test_the_type_behind_many_custom_operators_is_known() -> None:
    """Guessed from what goes in, and from there on by schema; the declared type of `k` is kept."""
    nodes, last = [], "x"
    for index in range(20):
        nodes += [node("Magic", last, f"m{index}", domain="acme"), node("Relu", f"m{index}", f"r{index}")]
        last = f"r{index}"
    nodes += [node("Magic", last, "k", domain="acme"), node("Cast", "k", "y", to=TensorProto.FLOAT)]
    proto = model(nodes, [value("x")], [value("y")], domains=["acme"])
    proto.graph.value_info.append(value("k", TensorProto.INT32))
    loaded = load(proto)
    types = {v.name: v.dtype for n in loaded.nodes for v in n.outputs}
    assert types.pop("k") is ir.DataType.INT32
    assert set(types.values()) == {ir.DataType.FLOAT}
    assert sum(site.free for site in Sites(loaded).all) == 21


def test_a_contrib_operator_of_the_runtime_narrows() -> None:
    proto = model(
        [node("Relu", "x", "a"), node("Gelu", "a", "y", domain="com.microsoft")],
        [value("x")],
        [value("y")],
        domains=["com.microsoft"],
    )
    answer = Emulator().session(Assignment.all_narrow(Sites(load(proto)))).run({"x": f32(-1, 0, 1, 1.0002)})["y"]
    assert answer[3] == answer[2]
    assert answer[2] == np.float16(0.8413447)


def test_dynamic_dimensions_are_told() -> None:
    proto = model([node("Relu", "x", "y")], [value("x", shape=["batch", None, 3])], [value("y", shape=None)])
    (spec,) = load(proto).inputs
    assert (spec.name, spec.dtype, spec.shape) == ("x", np.dtype(np.float32), ("batch", None, 3))


@pytest.mark.parametrize("written", ["?", "-1", "None", "*"])
def test_what_exporters_write_in_place_of_a_name_is_no_name(written: str) -> None:
    nodes = [node("MatMul", "x w", "m"), node("Relu", "m", "y")]
    shape: list[int | str | None] = [written, written, 3]
    unit = weight("w", np.eye(3, dtype=np.float32))
    proto = model(nodes, [value("x", shape=shape)], [value("y", shape=shape)], [unit])
    (spec,) = load(proto).inputs
    assert spec.shape == (None, None, 3)
    assert fix(proto, [{"x": np.ones((2, 5, 3), np.float32)}, {"x": np.ones((4, 1, 3), np.float32)}]).met


def test_an_input_that_is_no_tensor_cannot_be_fed(says: Says) -> None:
    sparse = helper.make_sparse_tensor_value_info("x", TensorProto.FLOAT, [4])
    loaded = load(model([node("Identity", "x", "y")], [sparse], [value("y", shape=None)]))
    with says.raises(InputError):
        _ = loaded.inputs


def test_a_node_may_come_before_what_it_reads() -> None:
    proto = model([node("Neg", "a", "y"), node("Relu", "x", "a")], [value("x")], [value("y")])
    assert [n.op_type for n in load(proto).nodes] == ["Relu", "Neg"]


def test_real_models_load(shared_models: Path) -> None:
    paths = sorted(shared_models.glob("*/model.onnx"))
    assert paths
    for path in paths:
        loaded = load(path)
        assert len(Sites(loaded).free) > 10
        assert all(v.type is not None for n in loaded.nodes for v in n.outputs if v.name)


def test_the_fingerprint_is_of_the_file(tmp_path: Path) -> None:
    import hashlib

    path = tmp_path / "m.onnx"
    path.write_bytes(relu().SerializeToString())
    assert load(path).sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_sequences_are_known_as_such_without_a_declaration() -> None:
    split = [node("SplitToSequence", "x", "s", axis=0), node("Identity", "s", "t"), node("SequenceAt", "t zero", "y")]
    loaded = load(model(split, [value("x")], [value("y", shape=None)], [weight("zero", np.int64(0))]))
    types = {each.name: type(each.type).__name__ for n in loaded.graph for each in n.outputs}
    assert types == {"s": "SequenceType", "t": "SequenceType", "y": "TensorType"}
    decided = fix(loaded, [{"x": np.full(4, i, np.float32)} for i in range(4)], tolerance="max_abs<=0")
    assert decided.verdict.met


@pytest.mark.parametrize("verb", ["fix", "verify"])
def test_an_output_that_can_not_be_compared(verb: str, says: Says) -> None:
    sparse = helper.make_sparse_tensor_value_info("s", TensorProto.FLOAT, (4,))
    loaded = load(model([node("Identity", "x", "s")], [value("x")], [sparse]))
    with says.raises(InputError):
        fix(loaded) if verb == "fix" else verify(loaded, loaded)


def test_external_data_without_a_file(tmp_path: Path, says: Says) -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    onnx.save(model([node("Add", "x w", "y")], [value("x")], [value("y")], [tensor]), tmp_path / "m.onnx")
    with says.raises(InputError):
        load(tmp_path / "m.onnx")
