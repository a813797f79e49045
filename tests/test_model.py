"""Loading: every form a model comes in, and one clear line for what is no sound model."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from halfwise.emit.typed_onnx import typed_proto
from halfwise.emulate import Emulator
from halfwise.engine.ort import Session
from halfwise.errors import HalfwiseError, InputError
from halfwise.fix import fix
from halfwise.model import load
from halfwise.precision import Assignment
from halfwise.sites import Sites
from halfwise.verify import verify
from tests.build import f32, graph, model, node, value, weight


def refusal(source: Any) -> str:
    with pytest.raises(InputError) as caught:
        load(source)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def run(proto: onnx.ModelProto | Path, feeds: dict[str, Any]) -> dict[str, Any]:
    return Emulator().session(Assignment(Sites(load(proto)), {})).run(feeds)


def relu(**changes: Any) -> onnx.ModelProto:
    return model([node("Relu", "x", "y")], [value("x")], [value("y")], **changes)


# -- versions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", range(7, onnx.defs.onnx_opset_version() + 1))
def test_every_opset_from_7_on_loads_runs_and_emits(opset: int) -> None:
    proto = model(
        [node("MatMul", "x w", "m"), node("Softmax", "m", "y", axis=1)],
        [value("x", shape=[2, 3])],
        [value("y", shape=[2, 3])],
        [weight("w", np.eye(3, dtype=np.float32))],
        opset=opset,
    )
    given_answer = Session(proto).run({"x": np.ones((2, 3), np.float32)})["y"]
    assert given_answer == pytest.approx(1 / 3)
    assignment = Assignment.all_narrow(Sites(load(proto)))
    assert len(assignment.formats) == 2
    answer = Emulator().session(assignment).run({"x": np.ones((2, 3), np.float32)})["y"]
    assert np.array_equal(answer, np.full((2, 3), np.float16(1 / 3), np.float32))
    typed = typed_proto(assignment)
    onnx.checker.check_model(typed, full_check=True)
    assert [(o.domain, o.version) for o in typed.opset_import] == [("", opset)]


def test_an_opset_before_7_is_refused() -> None:
    assert refusal(relu(opset=6)) == (
        "the model uses opset 6; the oldest understood is 7: raise it with onnx.version_converter.convert_version"
    )


def test_an_opset_of_the_future_is_refused() -> None:
    newest = onnx.defs.onnx_opset_version()
    assert refusal(relu(opset=newest + 1)) == (
        f"the model uses opset {newest + 1}; the installed onnx package knows up to {newest}: upgrade onnx"
    )


def test_a_model_without_an_opset_is_refused() -> None:
    proto = relu()
    proto.ClearField("opset_import")
    assert refusal(proto) == "the model does not say which opset it uses; export it again"


def test_the_long_name_of_the_default_domain_is_understood() -> None:
    proto = relu()
    proto.opset_import[0].domain = proto.graph.node[0].domain = "ai.onnx"
    loaded = load(proto)
    assert loaded.nodes[0].domain == ""
    assert loaded.opset() == 17
    assert Sites(loaded).all[0].free


# -- files that are no model -----------------------------------------------------------------------------------------


def test_a_missing_file(tmp_path: Path) -> None:
    assert refusal(tmp_path / "no.onnx") == f"{tmp_path}/no.onnx: there is no such file"


def test_a_folder(tmp_path: Path) -> None:
    assert refusal(tmp_path) == f"{tmp_path} is a folder; name the .onnx file in it"


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").touch()
    assert refusal(tmp_path / "m.onnx") == f"{tmp_path}/m.onnx is empty; export or copy the model again"


@pytest.mark.parametrize("content", [b"hello world\n", b"{}", b"\x89PNG\r\n", b"\x00" * 64, b"PK\x03\x04"])
def test_a_file_of_another_kind(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    assert refusal(path).startswith(f"{path} is not an ONNX model (")


def test_a_file_that_cannot_be_a_protobuf(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    with path.open("wb") as file:
        file.truncate(1 << 31)
    assert refusal(path) == f"{path} is larger than an ONNX file can be (2 GB); save it with external data"


def test_a_model_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(relu().SerializeToString()[:-7])
    assert refusal(path) == f"{path} is not an ONNX model (its bytes are no protobuf of one)"


def test_a_named_pipe(tmp_path: Path) -> None:
    import os

    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no named pipes")
    os.mkfifo(tmp_path / "m.onnx")
    assert refusal(tmp_path / "m.onnx") == f"{tmp_path}/m.onnx is no regular file"


THEN = graph([node("Relu", "c", "t")], [], [value("t", shape=None)])
ELSE = graph([node("Neg", "c", "e")], [], [value("e", shape=None)])
SOUND = model(
    [node("Conv", "x w b", "c"), node("If", "p", "y", then_branch=THEN, else_branch=ELSE)],
    [value("x", shape=[1, 2, 4, 4]), value("p", TensorProto.BOOL, [])],
    [value("y", shape=None)],
    [weight("w", np.ones((2, 2, 3, 3), np.float32)), weight("b", f32(1, 2))],
).SerializeToString()


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cut=st.integers(0, len(SOUND)),
    flips=st.lists(st.tuples(st.integers(0, len(SOUND) - 1), st.integers(0, 255)), max_size=4),
)
@example(cut=0, flips=[])
@example(cut=0, flips=[(137, 128)])  # a name of a body that is no text
def test_a_damaged_model_is_refused_in_one_line_or_works(
    tmp_path: Path, cut: int, flips: list[tuple[int, int]]
) -> None:
    content = bytearray(SOUND)
    for position, byte in flips:
        content[position] = byte
    path = tmp_path / "m.onnx"
    path.write_bytes(bytes(content[: cut if not flips else len(content)]))
    try:
        loaded = load(path)
    except InputError as error:
        assert str(error).startswith(str(path))
        assert "\n" not in str(error)
        return
    with contextlib.suppress(HalfwiseError):  # but no other error
        Emulator().session(Assignment.all_narrow(Sites(loaded)))
        typed_proto(Assignment.all_narrow(Sites(loaded)))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200))
def test_random_bytes_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    assert refusal(path).startswith(str(path))


# -- graphs that are not sound ---------------------------------------------------------------------------------------


def test_a_cycle() -> None:
    proto = model([node("Add", "x b", "a"), node("Relu", "a", "b")], [value("x")], [value("a")])
    assert refusal(proto) == "the model: the graph has a cycle"


def test_an_input_that_nothing_produces() -> None:
    assert refusal(model([node("Add", "x ghost", "y")], [value("x")], [value("y")])) == (
        "the model: node 'n_y' reads 'ghost', which nothing produces"
    )


def test_an_output_that_nothing_produces() -> None:
    assert refusal(model([node("Relu", "x", "y")], [value("x")], [value("z")])) == (
        "the model: the graph output 'z' is produced by nothing"
    )


def test_no_outputs() -> None:
    assert refusal(model([node("Relu", "x", "y")], [value("x")], [])) == (
        "the model has no outputs: there is nothing to compare"
    )


def test_a_tensor_produced_twice() -> None:
    proto = model([node("Relu", "x", "y"), node("Neg", "x", "y", name="other")], [value("x")], [value("y")])
    assert refusal(proto) == "the model: the tensor 'y' is produced twice"


def test_a_node_cannot_write_an_input() -> None:
    proto = model([node("Relu", "x", "x")], [value("x")], [value("x")])
    assert refusal(proto).startswith("the model")


def test_a_body_that_hands_out_an_outer_tensor_gets_a_node_for_it() -> None:
    passed = graph([], [], [value("x")])
    other = graph([node("Neg", "x", "x_inner")], [], [value("x_inner")])
    nested = graph([node("If", "c", "r", then_branch=passed, else_branch=other)], [], [value("r")])
    proto = model(
        [node("If", "c", "y", then_branch=nested, else_branch=passed)],
        [value("x"), value("c", TensorProto.BOOL, [])],
        [value("y")],
    )
    before = proto.SerializeToString()
    assert sorted(n.op_type for n in load(proto).nodes) == ["Identity", "Identity", "If", "If", "Neg"]
    assert proto.SerializeToString() == before
    feeds = {"x": f32(1, -2, 3, 4), "c": np.array(True)}
    assert np.array_equal(run(proto, feeds)["y"], feeds["x"])


def test_a_body_cannot_read_its_sibling() -> None:
    then = graph([node("Relu", "x", "t")], [], [value("t")])
    other = graph([node("Neg", "t", "e")], [], [value("e")])
    proto = model(
        [node("If", "c", "y", then_branch=then, else_branch=other)],
        [value("x"), value("c", TensorProto.BOOL, [])],
        [value("y")],
    )
    assert refusal(proto) == "the model: node 'n_e' reads 't', which nothing produces"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"raw_data": b"\0" * 7}, "the tensor 'w' does not hold the content that its shape (4) and type ask for"),
        ({"dims": [-4]}, "the tensor 'w' has a negative dimension"),
        ({"dims": [1 << 60, 1 << 60]}, "does not hold the content"),
        ({"data_type": 99}, "the tensor 'w' has an element type (99) that nobody knows"),
        ({"data_type": 0}, "the tensor 'w' has no element type"),
    ],
)
def test_a_weight_that_does_not_fit_its_declaration(change: dict[str, Any], says: str) -> None:
    proto = model([node("Add", "x w", "y")], [value("x")], [value("y")], [weight("w", np.ones(4, np.float32))])
    for field, content in change.items():
        proto.graph.initializer[0].ClearField(field)
        if isinstance(content, list):
            proto.graph.initializer[0].dims.extend(content)
        else:
            setattr(proto.graph.initializer[0], field, content)
    assert says in refusal(proto)


def test_a_model_without_nodes_is_a_model() -> None:
    loaded = load(model([], [value("x")], [value("x")]))
    assert loaded.nodes == ()
    assert loaded.output_names == ("x",)
    typed = typed_proto(Assignment.all_narrow(Sites(loaded)))
    onnx.checker.check_model(typed, full_check=True)
    assert np.array_equal(run(typed, {"x": f32(1, 2, 3, 4)})["x"], f32(1, 2, 3, 4))


# -- external data ---------------------------------------------------------------------------------------------------


def external(folder: Path, location: str, *, content: bytes | None = None, offset: str = "0", **fields: str) -> Path:
    """A model whose weight of 4 floats stands in `location`."""
    proto = model([node("Add", "x w", "y")], [value("x")], [value("y")])
    tensor = proto.graph.initializer.add(
        name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL
    )
    for key, text in {"location": location, "offset": offset, **fields}.items():
        tensor.external_data.add(key=key, value=text)
    folder.mkdir(exist_ok=True)
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    if content is not None:
        (folder / location).parent.mkdir(exist_ok=True)
        (folder / location).write_bytes(content)
    return path


DATA = f32(1, 2, 3, 4).tobytes()


@pytest.mark.parametrize("location", ["w.bin", "weights/w.bin"])
def test_external_data_is_read(tmp_path: Path, location: str) -> None:
    path = external(tmp_path, location, content=b"\0" * 8 + DATA, offset="8", length="16")
    loaded = load(path)
    assert loaded.files == (tmp_path / location,)
    assert loaded.weight_bytes == 16
    assert np.array_equal(run(path, {"x": np.zeros(4, np.float32)})["y"], f32(1, 2, 3, 4))


def test_missing_external_data(tmp_path: Path) -> None:
    path = external(tmp_path, "w.bin")
    assert refusal(path) == (
        f"{path}: the external data file 'w.bin' of initializer 'w' is missing; put it beside the model"
    )


def test_external_data_that_is_too_short(tmp_path: Path) -> None:
    path = external(tmp_path, "w.bin", content=DATA[:-1])
    assert refusal(path) == (
        f"{path}: the external data file 'w.bin' ends before initializer 'w' (16 bytes needed, 15 there); "
        "copy the file again"
    )


@pytest.mark.parametrize("fields", [{"offset": "x"}, {"length": "1e3"}])
def test_external_data_with_offsets_that_are_no_numbers(tmp_path: Path, fields: dict[str, str]) -> None:
    path = external(tmp_path, "w.bin", content=DATA, **fields)
    assert "has an external offset or length that is no number" in refusal(path)


def test_external_data_before_the_file(tmp_path: Path) -> None:
    assert "ends before initializer 'w'" in refusal(external(tmp_path, "w.bin", content=DATA, offset="-4"))


@pytest.mark.parametrize(
    "location", ["../secret.bin", "sub/../../secret.bin", "/etc/hostname", "C:\\secret.bin", "..\\secret.bin"]
)
def test_external_data_outside_the_folder_is_never_read(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret.bin").write_bytes(DATA)
    path = external(tmp_path / "model", location)
    assert refusal(path) == (
        f"{path}: initializer 'w' points outside the model's folder ({location!r}); "
        "such files are never read; put the data beside the model"
    )


def test_a_link_out_of_the_folder_is_never_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(DATA)
    path = external(tmp_path / "model", "w.bin")
    (tmp_path / "model" / "w.bin").symlink_to(tmp_path / "secret.bin")
    assert "points outside the model's folder" in refusal(path)


def test_a_link_within_the_folder_is_followed(tmp_path: Path) -> None:
    path = external(tmp_path, "w.bin")
    (tmp_path / "real.bin").write_bytes(DATA)
    (tmp_path / "w.bin").symlink_to(tmp_path / "real.bin")
    assert np.array_equal(run(path, {"x": np.zeros(4, np.float32)})["y"], f32(1, 2, 3, 4))


def test_integers_and_strings_stay_as_they_are_in_external_data(tmp_path: Path) -> None:
    proto = model(
        [node("Gather", "w i", "y")],
        [value("w", shape=[600])],
        [value("y", shape=[600])],
        [weight("i", np.arange(600)[::-1].copy())],
    )
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    feed = np.arange(600, dtype=np.float32)
    assert np.array_equal(run(tmp_path / "m.onnx", {"w": feed})["y"], feed[::-1])


BIG = """
    import resource, sys
    from pathlib import Path
    from halfwise.emit.typed_onnx import write_typed
    from halfwise.model import load
    from halfwise.precision import Assignment
    from halfwise.sites import Sites
    path = Path(sys.argv[1])
    import onnxruntime  # what is imported on the way counts as there before
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    written = write_typed(Assignment.all_narrow(Sites(load(path))), path.with_name("typed.onnx"))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, written.data.stat().st_size)
"""


def test_more_than_2_gb_of_weights_in_bounded_memory(tmp_path: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("memory is measured as Linux counts it")
    rows, columns = 20_000, 27_000
    length = rows * columns * 4
    assert length > 1 << 31
    proto = model([node("MatMul", "x w", "y")], [value("x", shape=[1, rows])], [value("y", shape=[1, columns])])
    tensor = proto.graph.initializer.add(
        name="w", data_type=TensorProto.FLOAT, dims=[rows, columns], data_location=TensorProto.EXTERNAL
    )
    tensor.external_data.add(key="location", value="w.bin")
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(length)  # a hole: takes no room on the disk
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    command = [sys.executable, "-c", textwrap.dedent(BIG), str(tmp_path / "m.onnx")]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    grown_kib, written = map(int, answer.stdout.split())
    (tmp_path / "typed.onnx.data").unlink()
    assert written == length // 2
    assert grown_kib < 300 << 10


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


def test_a_sparse_initializer_outside_its_shape() -> None:
    proto = model([node("Add", "x s", "y")], [value("x")], [value("y")])
    sparse = helper.make_sparse_tensor(weight("s", f32(5, 7)), weight("s_at", np.array([1, 4])), [4])
    proto.graph.sparse_initializer.append(sparse)
    assert refusal(proto) == "the model: the sparse tensor 's' has indices outside its shape"


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


@pytest.mark.parametrize(("op", "refused"), [("LeakyRelu", False), ("Relu", True)])
def test_a_function_may_use_another_opset_if_its_operators_are_the_same_there(op: str, refused: bool) -> None:
    """LeakyRelu did not change from opset 8 to 15; Relu did at 14."""
    body = [helper.make_node(op, ["a"], ["b"])]
    function = helper.make_function("mine", "F", ["a"], ["b"], body, [helper.make_opsetid("", 13)], [])
    proto = model(
        [node("F", "x", "y", domain="mine")], [value("x")], [value("y")], opset=15 if refused else 14, domains=["mine"]
    )
    proto.functions.append(function)
    if refused:
        assert refusal(proto) == (
            "the model: the function mine:F uses opset 13 and the model 15, and Relu differs between them; "
            "export with one opset"
        )
    else:
        assert [n.op_type for n in load(proto).nodes] == [op]


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
        "an operator of the domain 'acme': what it accepts is not known",
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


def test_a_contrib_operator_of_the_runtime_runs_in_fp32() -> None:
    proto = model(
        [node("Relu", "x", "a"), node("Gelu", "a", "y", domain="com.microsoft")],
        [value("x")],
        [value("y")],
        domains=["com.microsoft"],
    )
    answer = Emulator().session(Assignment.all_narrow(Sites(load(proto)))).run({"x": f32(-1, 0, 1, 1.0002)})["y"]
    assert answer[3] == answer[2]
    assert answer[2] == pytest.approx(0.8413447, abs=1e-7)


def test_dynamic_dimensions_are_told() -> None:
    proto = model([node("Relu", "x", "y")], [value("x", shape=["batch", None, 3])], [value("y", shape=None)])
    (spec,) = load(proto).inputs
    assert (spec.name, spec.dtype, spec.shape) == ("x", np.dtype(np.float32), ("batch", None, 3))


def test_an_input_that_is_no_tensor_cannot_be_fed() -> None:
    sequence = helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, None)
    zero = weight("zero", np.array(0))
    loaded = load(model([node("SequenceAt", "x zero", "y")], [sequence], [value("y", shape=None)], [zero]))
    with pytest.raises(InputError, match="the model's input 'x' is no tensor; only tensor inputs can be fed"):
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
def test_an_output_that_is_no_tensor(verb: str) -> None:
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    loaded = load(model([node("SequenceConstruct", "x x", "s")], [value("x")], [sequence]))
    with pytest.raises(InputError, match="the model's output 's' is no tensor; only tensors can be compared"):
        fix(loaded) if verb == "fix" else verify(loaded, loaded)


def test_external_data_without_a_file(tmp_path: Path) -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    onnx.save(model([node("Add", "x w", "y")], [value("x")], [value("y")], [tensor]), tmp_path / "m.onnx")
    with pytest.raises(InputError, match="initializer 'w' lies in external data, but no file is named"):
        load(tmp_path / "m.onnx")
