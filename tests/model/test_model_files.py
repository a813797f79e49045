"""Model files: what is none, what is damaged, and weights that lie beside the file."""

from __future__ import annotations

import contextlib
import copy
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto

from halfwise.core.errors import HalfwiseError, InputError
from halfwise.emulation.emulate import Emulator
from halfwise.model.model import Model, load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto
from tests.models.build import f32, graph, model, node, value, weight
from tests.models.model_cases import refusal, relu
from tests.support.says import Says


def run(proto: onnx.ModelProto | Path, feeds: dict[str, Any]) -> dict[str, Any]:
    return Emulator().session(Assignment(Sites(load(proto)), {})).run(feeds)


# -- files that are no model -----------------------------------------------------------------------------------------


def test_a_missing_file(tmp_path: Path, says: Says) -> None:
    says(refusal(tmp_path / "no.onnx"))


def test_a_folder(tmp_path: Path, says: Says) -> None:
    says(refusal(tmp_path))


def test_an_empty_file(tmp_path: Path, says: Says) -> None:
    (tmp_path / "m.onnx").touch()
    says(refusal(tmp_path / "m.onnx"))


@pytest.mark.parametrize("content", [b"hello world\n", b"{}", b"\x89PNG\r\n", b"\x00" * 64])
def test_a_file_of_another_kind(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    assert refusal(path).startswith(f"{path} is not an ONNX model")


def test_a_file_that_cannot_be_a_protobuf(tmp_path: Path, says: Says) -> None:
    path = tmp_path / "m.onnx"
    with path.open("wb") as file:
        file.truncate(1 << 31)
    says(refusal(path))


def test_a_model_cut_off(tmp_path: Path, says: Says) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(relu().SerializeToString()[:-7])
    says(refusal(path))


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


def held(loaded: Model) -> NDArray[Any]:
    """What its only weight holds."""
    (found,) = (each.const_value for each in loaded.initializers())
    assert found is not None
    return np.asarray(found.numpy())


@pytest.mark.parametrize("location", ["w.bin", "weights/w.bin"])
def test_external_data_is_read(tmp_path: Path, location: str) -> None:
    path = external(tmp_path, location, content=b"\0" * 8 + DATA, offset="8", length="16")
    loaded = load(path)
    assert loaded.files == (tmp_path / location,)
    assert loaded.weight_bytes == 16
    assert np.array_equal(run(path, {"x": np.zeros(4, np.float32)})["y"], f32(1, 2, 3, 4))


def test_missing_external_data(tmp_path: Path, says: Says) -> None:
    path = external(tmp_path, "w.bin")
    says(refusal(path))


def test_external_data_that_is_too_short(tmp_path: Path, says: Says) -> None:
    path = external(tmp_path, "w.bin", content=DATA[:-1])
    says(refusal(path))


@pytest.mark.parametrize("fields", [{"offset": "x"}, {"length": "1e3"}])
def test_external_data_with_offsets_that_are_no_numbers(tmp_path: Path, fields: dict[str, str], says: Says) -> None:
    path = external(tmp_path, "w.bin", content=DATA, **fields)
    says(refusal(path))


def test_external_data_before_the_file(tmp_path: Path) -> None:
    assert "ends before initializer 'w'" in refusal(external(tmp_path, "w.bin", content=DATA, offset="-4"))


@pytest.mark.parametrize(
    "location", ["../secret.bin", "sub/../../secret.bin", "/etc/hostname", "C:\\secret.bin", "..\\secret.bin"]
)
def test_external_data_outside_the_folder_is_never_read(tmp_path: Path, location: str, says: Says) -> None:
    (tmp_path / "secret.bin").write_bytes(DATA)
    path = external(tmp_path / "model", location)
    says(refusal(path))


def test_a_link_out_of_the_folder_is_never_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(DATA)
    path = external(tmp_path / "model", "w.bin")
    (tmp_path / "model" / "w.bin").symlink_to(tmp_path / "secret.bin")
    assert "points outside the model's folder" in refusal(path)


@pytest.mark.parametrize("bits", [32, 4])
def test_weights_with_a_second_name_are_read(tmp_path: Path, bits: int) -> None:
    """Hard links, as backups, build sandboxes and package managers make them; some kinds are mapped, others read."""
    stored, content = (TensorProto.FLOAT, DATA) if bits == 32 else (TensorProto.INT4, b"\x21\x43")
    path = external(tmp_path / "model", "w.bin", content=content)
    proto = onnx.load(path, load_external_data=False)
    proto.graph.initializer[0].data_type = stored
    path.write_bytes(proto.SerializeToString())
    for name in ("m.onnx", "w.bin"):
        (tmp_path / name).hardlink_to(tmp_path / "model" / name)
    loaded = load(path)
    assert held(loaded).astype(np.float32).tolist() == [1, 2, 3, 4]
    assert loaded.files == (tmp_path / "model" / "w.bin",)


def test_a_model_with_linked_weights_is_emulated_and_written(tmp_path: Path) -> None:
    path = external(tmp_path / "model", "w.bin", content=DATA)
    (tmp_path / "second.bin").hardlink_to(tmp_path / "model" / "w.bin")
    assert np.array_equal(run(path, {"x": np.zeros(4, np.float32)})["y"], f32(1, 2, 3, 4))


def test_weights_of_another_user_with_a_second_name_are_refused(
    tmp_path: Path, says: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may write into a folder may give a file of somebody else a name in it, as long as the system lets them."""
    path = external(tmp_path / "model", "w.bin", content=DATA)
    monkeypatch.setattr("halfwise.model.external._owner", lambda file: int(file == path))
    assert load(path).weight_bytes == 16
    (tmp_path / "second.bin").hardlink_to(tmp_path / "model" / "w.bin")
    says(refusal(path))


def test_a_link_within_the_folder_is_followed(tmp_path: Path) -> None:
    path = external(tmp_path, "w.bin")
    (tmp_path / "real.bin").write_bytes(DATA)
    (tmp_path / "w.bin").symlink_to(tmp_path / "real.bin")
    assert np.array_equal(run(path, {"x": np.zeros(4, np.float32)})["y"], f32(1, 2, 3, 4))


def test_a_model_and_its_data_may_be_links_into_one_folder(tmp_path: Path, says: Says) -> None:
    """As Hugging Face's cache keeps them. What lies outside the folders of both stays unread."""
    contents = tmp_path / "blobs"
    external(contents, "w.bin").rename(contents / "1f")
    (contents / "2e").write_bytes(DATA)
    (tmp_path / "snapshot").mkdir()
    path, data = tmp_path / "snapshot" / "m.onnx", tmp_path / "snapshot" / "w.bin"
    path.symlink_to("../blobs/1f")
    data.symlink_to("../blobs/2e")
    assert np.array_equal(run(path, {"x": np.zeros(4, np.float32)})["y"], f32(1, 2, 3, 4))
    (contents / "2e").rename(tmp_path / "secret.bin")
    (contents / "2e").symlink_to(tmp_path / "secret.bin")
    says(refusal(path))


@pytest.mark.parametrize("beside", [False, True])
def test_the_data_of_a_link_may_lie_beside_the_file_it_leads_to(tmp_path: Path, beside: bool) -> None:
    """A plain link to a model elsewhere; data beside the link comes first."""
    external(tmp_path / "store", "w.bin", content=DATA)
    (tmp_path / "work").mkdir()
    path = tmp_path / "work" / "m.onnx"
    path.symlink_to("../store/m.onnx")
    if beside:
        (tmp_path / "work" / "w.bin").write_bytes(f32(5, 6, 7, 8).tobytes())
    loaded = load(path)
    assert held(loaded).tolist() == ([5, 6, 7, 8] if beside else [1, 2, 3, 4])
    assert [file.resolve().parent.name for file in loaded.files] == ["work" if beside else "store"]


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


def test_shapes_are_known_where_their_constants_lie_in_external_data(tmp_path: Path) -> None:
    """Some exporters leave nothing inside the file, not even a scalar or an empty list of axes."""
    proto = model(
        [node("Reshape", "x sizes", "a"), node("Unsqueeze", "a axis", "b"), node("ReduceSum", "b none", "y")],
        [value("x", shape=[12])],
        [value("y", shape=None)],
        [weight("sizes", np.array([3, 4])), weight("axis", np.array([0])), weight("none", np.zeros(0, np.int64))],
    )
    onnx.save(copy.deepcopy(proto), tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    shapes = [
        {each.name: tuple(each.shape or ()) for made in loaded.nodes for each in made.outputs}
        for loaded in (load(tmp_path / "m.onnx"), load(proto))
    ]
    assert shapes[0] == shapes[1] and shapes[0]["b"] == (1, 3, 4)


BIG = """
    import resource, sys
    from pathlib import Path
    from halfwise.precision.typed_onnx import write_typed
    from halfwise.model.model import load
    from halfwise.precision.assignment import Assignment
    from halfwise.precision.sites import Sites
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
