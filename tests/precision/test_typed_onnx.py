"""The typed model: valid, named as the model was, casts only at borders and each once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from hypothesis import given, settings
from onnx import TensorProto, numpy_helper

from halfwise.core.formats import Format
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.ort import Session
from halfwise.model.model import load
from halfwise.precision import typed_onnx
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto, write_typed
from tests.models.build import f32, graph, model, node, value, weight
from tests.models.dags import FEEDS, WEIGHTS, Dag, dags
from tests.support.assignments import narrow
from tests.support.backend_cases import same_bits


def ops(proto: onnx.ModelProto) -> list[str]:
    return [n.op_type for n in proto.graph.node]


def types(values: Any) -> dict[str, int]:
    return {v.name: v.type.tensor_type.elem_type for v in values}


# -- any small model, any decision -----------------------------------------------------------------------------------


@given(dag=dags())
@settings(max_examples=150, deadline=None)
def test_it_is_valid_and_casts_stand_at_borders_only(dag: Dag) -> None:
    typed = typed_proto(dag.loaded())
    onnx.checker.check_model(typed, full_check=True)
    casts = [n for n in typed.graph.node if n.op_type == "Cast"]
    made_by = {name: n for n in typed.graph.node for name in n.output}
    read = Counter(name for n in typed.graph.node for name in n.input)
    read.update(v.name for v in typed.graph.output)
    directions = [(n.input[0], n.attribute[0].i) for n in casts]
    assert len(set(directions)) == len(directions)  # shared, never doubled
    for cast in casts:
        assert read[cast.output[0]]  # never idle
        assert cast.input[0] not in made_by or made_by[cast.input[0]].op_type != "Cast"  # never a chain
        assert cast.input[0] not in {t.name for t in typed.graph.initializer}  # weights have the type that reads them
    formats = {f"n_t{i}": step.fmt for i, step in enumerate(dag.steps)}
    widened = [n for n in casts if n.attribute[0].i == TensorProto.FLOAT]
    for cast in widened:  # only what a narrow node (or a narrow input) makes is widened
        maker = made_by.get(cast.input[0])
        assert dag.io is Format.FP16 if maker is None else formats[maker.name] is Format.FP16
    assert len({n.name for n in typed.graph.node}) == len(typed.graph.node)


@given(dag=dags())
@settings(max_examples=60, deadline=None)
def test_names_and_border_types_are_the_models(dag: Dag) -> None:
    given_model = dag.proto()
    typed = typed_proto(dag.loaded())
    assert [n.name for n in typed.graph.node if n.op_type != "Cast"] == [n.name for n in given_model.graph.node]
    assert [v.name for v in typed.graph.input] == ["x", "z"]
    assert [v.name for v in typed.graph.output] == list(dag.outputs)
    wanted = TensorProto.FLOAT16 if dag.io is Format.FP16 else TensorProto.FLOAT
    assert set(types(typed.graph.input).values()) == {wanted}
    assert set(types(typed.graph.output).values()) == {wanted}


@given(dag=dags(), feeds=FEEDS)
@settings(max_examples=40, deadline=None)
def test_it_runs(dag: Dag, feeds: dict[str, Any]) -> None:
    answer = Session(typed_proto(dag.loaded())).run({k: v.astype(dag.io.dtype) for k, v in feeds.items()})
    assert set(answer) == set(dag.outputs)
    assert {array.dtype for array in answer.values()} == {dag.io.dtype}


# -- casts -----------------------------------------------------------------------------------------------------------


def test_no_cast_between_fp32_nodes() -> None:
    chain = [node("Relu", "x", "a"), node("Neg", "a", "b"), node("Abs", "b", "c"), node("Floor", "c", "y")]
    proto = model(chain, [value("x")], [value("y")])
    assert ops(typed_proto(narrow(proto, "n_b", "n_c"))) == [
        "Cast",
        "Relu",
        "Cast",
        "Neg",
        "Abs",
        "Cast",
        "Floor",
        "Cast",
    ]
    assert ops(typed_proto(narrow(proto, "n_a", "n_b", "n_c", "n_y"))) == ["Relu", "Neg", "Abs", "Floor"]


def test_one_cast_serves_all_that_read_a_tensor() -> None:
    proto = model(
        [node("Relu", "x", "a"), node("Neg", "a", "b"), node("Abs", "a", "c"), node("Add", "b c", "y")],
        [value("x")],
        [value("y")],
    )
    assert Counter(ops(typed_proto(narrow(proto, "n_a"))))["Cast"] == 2  # one behind Relu, one at the output


def test_one_cast_outside_serves_both_branches() -> None:
    then = graph([node("Relu", "a", "t")], [], [value("t")])
    other = graph([node("Neg", "a", "e")], [], [value("e")])
    proto = model(
        [node("Abs", "x", "a"), node("If", "c", "y", then_branch=then, else_branch=other)],
        [value("x"), value("c", TensorProto.BOOL, [])],
        [value("y")],
    )
    typed = typed_proto(narrow(proto, "n_a"))
    onnx.checker.check_model(typed, full_check=True)
    assert ops(typed) == ["Abs", "Cast", "If", "Cast"]  # into both branches, and out of both
    for branch in typed.graph.node[2].attribute:
        assert len(branch.g.node) == 1
        assert set(types(branch.g.output).values()) == {TensorProto.FLOAT16}


def test_the_models_own_cast_takes_what_is_stored() -> None:
    """No FP16 -> FP32 -> FP16 and no FP16 -> FP32 -> INT64 is made of what the model had in one step."""
    proto = model(
        [
            node("Relu", "x", "a"),
            node("Cast", "a", "h", to=TensorProto.FLOAT16),
            node("Cast", "a", "i", to=TensorProto.INT64),
        ],
        [value("x")],
        [value("h", TensorProto.FLOAT16), value("i", TensorProto.INT64)],
    )
    assert ops(typed_proto(narrow(proto))) == ["Cast", "Relu", "Cast", "Cast"]


def test_a_cast_to_fp32_becomes_one_to_fp16() -> None:
    """An image of bytes goes to FP16 in one step."""
    proto = model(
        [node("Cast", "x", "f", to=TensorProto.FLOAT), node("Neg", "f", "y")],
        [value("x", TensorProto.UINT8)],
        [value("y")],
    )
    typed = typed_proto(narrow(proto))
    assert ops(typed) == ["Cast", "Neg", "Cast"]
    assert typed.graph.node[0].attribute[0].i == TensorProto.FLOAT16


def test_the_count_of_casts() -> None:
    proto = model([node("Relu", "x", "a"), node("Neg", "a", "y")], [value("x")], [value("y")])
    for kept in ((), ("n_a",), ("n_y",), ("n_a", "n_y")):
        assignment = narrow(proto, *kept)
        expected = Counter(ops(typed_proto(assignment)))["Cast"]
        assert typed_onnx.rewrite(assignment, typed_onnx.TypedWriter()).casts == expected


# -- what is kept ----------------------------------------------------------------------------------------------------


def test_metadata_doc_strings_and_versions_are_kept() -> None:
    proto = model([node("Relu", "x", "y", doc_string="bends")], [value("x")], [value("y")], opset=18, ir_version=9)
    proto.producer_name, proto.producer_version, proto.domain = "maker", "2.1", "org.example"
    proto.model_version, proto.doc_string, proto.graph.doc_string = 7, "a model", "a graph"
    proto.metadata_props.add(key="author", value="somebody")
    proto.opset_import.add(domain="com.microsoft", version=1)
    proto.graph.input[0].doc_string = "pixels"
    typed = typed_proto(narrow(proto))
    for field in ("producer_name", "producer_version", "domain", "model_version", "doc_string", "ir_version"):
        assert getattr(typed, field) == getattr(proto, field), field
    assert typed.graph.name == proto.graph.name
    assert typed.graph.doc_string == "a graph"
    assert typed.graph.input[0].doc_string == "pixels"
    assert list(typed.metadata_props) == list(proto.metadata_props)
    assert list(typed.opset_import) == list(proto.opset_import)
    assert next(n for n in typed.graph.node if n.op_type == "Relu").doc_string == "bends"


def test_an_old_file_version_that_wants_initializers_as_inputs_is_raised() -> None:
    proto = model(
        [node("Add", "x w", "y")], [value("x"), value("w")], [value("y")], [weight("w", f32(1, 2, 3, 4))], ir_version=3
    )
    typed = typed_proto(narrow(proto))
    assert typed.ir_version == 4
    onnx.checker.check_model(typed, full_check=True)


def test_dynamic_dimensions_are_kept() -> None:
    shape = ["batch", None, 3]
    proto = model([node("Relu", "x", "y")], [value("x", shape=shape)], [value("y", shape=shape)])
    typed = typed_proto(narrow(proto))
    for info in (typed.graph.input[0], typed.graph.output[0]):
        assert [d.dim_param or d.dim_value for d in info.type.tensor_type.shape.dim] == ["batch", 0, 3]


def test_inputs_and_outputs_in_fp16_on_request() -> None:
    proto = model(
        [node("Relu", "x", "y"), node("Add", "i i", "j")],
        [value("x"), value("i", TensorProto.INT64)],
        [value("y"), value("j", TensorProto.INT64), value("x")],
    )
    typed = typed_proto(narrow(proto, io=Format.FP16))
    onnx.checker.check_model(typed, full_check=True)
    assert types(typed.graph.input) == {"x": TensorProto.FLOAT16, "i": TensorProto.INT64}
    assert types(typed.graph.output) == {"y": TensorProto.FLOAT16, "j": TensorProto.INT64, "x": TensorProto.FLOAT16}
    assert "Cast" not in ops(typed)


def test_a_weight_that_is_an_output_keeps_its_name_and_type() -> None:
    for io, kind in ((Format.FP32, TensorProto.FLOAT), (Format.FP16, TensorProto.FLOAT16)):
        proto = model(
            [node("Add", "x w", "y"), node("Sub", "x w", "z")],
            [value("x")],
            [value("y"), value("z"), value("w"), value("w")],
            [weight("w", f32(1 / 3, 1, 2, 3))],
        )
        typed = typed_proto(narrow(proto, "n_z", io=io))
        onnx.checker.check_model(typed, full_check=True)
        assert [(v.name, v.type.tensor_type.elem_type) for v in typed.graph.output][2:] == [("w", kind)] * 2
        assert {t.name: t.data_type for t in typed.graph.initializer}["w"] == kind


# -- weights ---------------------------------------------------------------------------------------------------------


def test_weights_have_the_type_that_reads_them() -> None:
    proto = model(
        [node("Add", "x w", "a"), node("Mul", "a w", "b"), node("Mul", "b v", "y")],
        [value("x")],
        [value("y")],
        [weight("w", f32(1 / 3, 1, 2, 3)), weight("v", f32(1, 1, 1, 1)), weight("unused", f32(1))],
    )
    typed = typed_proto(narrow(proto, "n_b"))
    stored = {t.name: t.data_type for t in typed.graph.initializer}
    assert stored == {
        "w": TensorProto.FLOAT16,
        "w_fp32": TensorProto.FLOAT,
        "v": TensorProto.FLOAT16,
    }


def test_a_weight_that_nobody_reads_may_share_its_name_with_a_body() -> None:
    """As inlined branches leave it; handed over by memory, the runtime would look for it in vain."""
    branches = {
        name: graph([node("Add", "x val", f"y_{name}")], [], [value(f"y_{name}")], [weight("val", f32(*[number] * 4))])
        for name, number in (("then", 1), ("else", 2))
    }
    choice = node("If", "yes", "y", then_branch=branches["then"], else_branch=branches["else"])
    inputs = [value("x"), value("yes", TensorProto.BOOL, ())]
    proto = model([choice], inputs, [value("y")], [weight("val", np.zeros(4000, np.float32))])
    sites = Sites(load(proto))
    feed = {"x": f32(1, 2, 3, 4), "yes": np.array(True)}
    assert np.array_equal(Emulator().session(Assignment(sites, {})).run(feed)["y"], f32(2, 3, 4, 5))
    assert not typed_proto(Assignment.all_narrow(sites)).graph.initializer


def test_what_is_clamped_is_said_whatever_its_size(tmp_path: Path) -> None:
    fill = onnx.helper.make_tensor("", TensorProto.FLOAT, [1], [-1e9])
    big = np.zeros(2000, np.float32)
    big[1999] = 1e6
    proto = model(
        [
            node("ConstantOfShape", "s", "fill", value=fill),
            node("Add", "x scalar", "a"),
            node("Add", "a fill", "b"),
            node("Add", "b big", "c"),
            node("Add", "c fine", "y"),
        ],
        [value("x", shape=[2000]), value("s", TensorProto.INT64, [1])],
        [value("y", shape=None)],
        [weight("scalar", np.float32(-3.4e38)), weight("big", big), weight("fine", np.float32(65519))],
    )
    written = write_typed(narrow(proto), tmp_path / "typed.onnx")
    assert set(written.clamped) == {"scalar", "big", "fill"}
    stored = {t.name: numpy_helper.to_array(t) for t in onnx.load(written.path).graph.initializer}
    assert stored["scalar"] == -65504
    assert stored["big"][1999] == 65504
    assert stored["fine"] == 65504  # nearest, not clamped


# -- real models -----------------------------------------------------------------------------------------------------


def test_real_models_stay_valid_and_mean_what_their_emulation_means(shared_models: Path, tmp_path: Path) -> None:
    for path in sorted(shared_models.glob("*/model.onnx")):
        loaded = load(path)
        sites = Sites(loaded)
        feeds = dict(np.load(path.with_name("inputs_0.npz")))
        keep = frozenset(site.node for site in sites.free[::3])
        assignment = Assignment.all_narrow(sites, keep)
        written = write_typed(assignment, tmp_path / f"{path.parent.name}.onnx")
        onnx.checker.check_model(str(written.path), full_check=True)
        Session(onnx.load(written.path)).run(feeds)
        one = Emulator().session(assignment).run(feeds)
        reloaded = load(written.path)
        assert reloaded.output_names == loaded.output_names
        assert [spec.name for spec in reloaded.inputs] == [spec.name for spec in loaded.inputs]
        assert set(loaded.node_by_name) <= set(reloaded.node_by_name)
        other = Emulator().session(Assignment(Sites(reloaded), {})).run(widen_feeds(feeds))
        for name in one:
            assert same_bits(one[name], other[name]), (path.parent.name, name)


def test_weights_of_the_walk_are_the_weights_of_the_dag() -> None:
    """The generator would prove little if its numbers fitted FP16."""
    assert float(np.float16(WEIGHTS["w0"])) != WEIGHTS["w0"]
    assert WEIGHTS["w1"] > 65504
    assert abs(WEIGHTS["w2"]) < 2.0**-14
