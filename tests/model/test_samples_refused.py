"""Inputs that do not fit or cannot be read: one line each, with the file and the input."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from halfwise.model.input_spec import InputSpec
from halfwise.model.inputs.samples import load_samples
from tests.support.sample_cases import F32, IDS, X, encoded, refused, x

# -- what does not fit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("feed", "message"),
    [
        ({"x": x(1)}, "inputs[0]: lacks 'ids'; the model takes 'x', 'ids'"),
        (
            {"x": x(1), "ids": [1], "mask": [1], "y": [2]},
            "inputs[0]: holds 'mask', 'y', but the model takes 'x', 'ids'",
        ),
        ({"x": np.ones(2), "ids": [1]}, "inputs[0]: input 'x' has shape (2,), the model takes (N, 3)"),
        ({"x": np.ones((1, 4)), "ids": [1]}, "inputs[0]: input 'x' has shape (1, 4), the model takes (N, 3)"),
        ({"x": x(1, rows=2), "ids": [1]}, "inputs[0]: dimension 'N' is 2 in input 'x' and 1 in input 'ids'"),
    ],
)
def test_what_does_not_fit_the_model(feed: dict[str, Any], message: str) -> None:
    assert refused([X, IDS], [feed]) == message


def test_unknown_dimensions_and_ranks_take_anything() -> None:
    specs = [InputSpec("a", F32, (None, 2)), InputSpec("b", F32, None)]
    feeds = [{"a": np.ones((5, 2)), "b": np.ones(3)}, {"a": np.ones((4, 2)), "b": np.ones((1, 1))}]
    assert load_samples(specs, feeds).validation[0]["b"].shape == (1, 1)
    assert refused(specs, [{"a": np.ones((5, 3)), "b": 1}]) == (
        "inputs[0]: input 'a' has shape (5, 3), the model takes (?, 2)"
    )


def test_a_symbol_may_differ_between_samples() -> None:
    samples = load_samples([X, IDS], [{"x": x(1), "ids": [1]}, {"x": x(1, rows=2), "ids": [1, 2]}])
    assert samples.validation[0]["x"].shape == (2, 3)


def test_messages_name_the_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=x(1))
    assert refused([X, IDS], tmp_path) == f"{tmp_path / 'a.npz'}: lacks 'ids'; the model takes 'x', 'ids'"
    (tmp_path / "b.json").write_text(json.dumps([{"x": encoded(x(1)[:, :2])}]))
    assert refused([X], tmp_path / "b.json") == (
        f"{tmp_path / 'b.json'}[0]: input 'x' has shape (1, 2), the model takes (N, 3)"
    )


def test_nothing_given() -> None:
    for sources in ([], iter(())):
        assert refused([X], sources) == (
            "no input samples were given; give files with --inputs, or leave it out for synthetic ones"
        )


def test_neither_a_path_nor_a_feed() -> None:
    assert refused([X], [x(1)]) == ("inputs[0]: is of type ndarray, not a path or a mapping from input names to arrays")


def test_what_is_no_array() -> None:
    class Broken:
        def __array__(self, *_: Any, **__: Any) -> np.ndarray:
            raise RuntimeError("still on the device")

    assert refused([X], [{"x": Broken()}]) == (
        "inputs[0]: input 'x' cannot be turned into an array: still on the device"
    )


# -- files that cannot be read ----------------------------------------------------------------------------------------


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    assert refused([X], tmp_path / "gone") == f"{tmp_path / 'gone'}: there is no such file or folder"
    assert refused([X], tmp_path) == f"{tmp_path}: there is no .npz, .npy or .json file in this folder"
    (tmp_path / "x.pt").write_bytes(b"")
    assert refused([X], tmp_path / "x.pt") == (
        f"{tmp_path / 'x.pt'}: inputs are .npz, .npy or Polygraphy's .json files, or folders of these"
    )


def test_npy_for_a_model_with_two_inputs(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", x(1))
    assert refused([X, IDS], tmp_path / "a.npy") == (
        f"{tmp_path / 'a.npy'}: an .npy file holds one array, but the model takes 'x', 'ids'; give an .npz"
    )


class Trap:
    """Leaves a mark if it is ever unpickled."""

    sprung = False

    def __reduce__(self) -> tuple[Any, ...]:
        return (setattr, (Trap, "sprung", True))


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_pickles_are_never_loaded(tmp_path: Path, name: str) -> None:
    trapped = np.array([Trap()], object)
    np.save(tmp_path / "a.npy", trapped, allow_pickle=True)
    np.savez(tmp_path / "a.npz", x=trapped)
    assert refused([X], tmp_path / name) == (
        f"{tmp_path / name}: holds Python objects, which are never loaded; save plain arrays"
    )
    assert not Trap.sprung


def test_a_pickle_in_polygraphys_json_is_never_loaded(tmp_path: Path) -> None:
    stream = io.BytesIO()
    np.save(stream, np.array([Trap()], object), allow_pickle=True)
    node = {"array": base64.b64encode(stream.getvalue()).decode(), "polygraphy_class": "ndarray"}
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"x": node}))
    assert refused([X], path) == f"{path}: input 'x': holds Python objects, which are never loaded; save plain arrays"
    assert not Trap.sprung


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
@pytest.mark.parametrize("content", [b"", b"not an array at all", b"\x93NUMPY\x01", b"PK\x03\x04", b"\x80\x04N."])
def test_files_that_are_not_what_they_say(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    message = refused([X], tmp_path / name)
    assert message.startswith(f"{tmp_path / name}: is damaged, or not what its name says: ")
    assert "\n" not in message


@pytest.mark.parametrize("compressed", [False, True])
def test_a_damaged_archive(tmp_path: Path, compressed: bool) -> None:
    path = tmp_path / "a.npz"
    (np.savez_compressed if compressed else np.savez)(path, x=np.arange(3000, dtype=np.float32).reshape(1000, 3))
    content = bytearray(path.read_bytes())
    for at in range(200, 400):
        content[at] ^= 0xFF
    path.write_bytes(content)
    assert refused([X], path).startswith(f"{path}: is damaged, or not what its name says: ")


def test_an_npz_with_something_else_inside(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x", b"readme")
    assert refused([X], tmp_path / "a.npz") == f"{tmp_path / 'a.npz'}: 'x' in it is not an array"


def test_a_file_that_may_not_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "a.npy", x(1))

    def denied(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    assert refused([X], tmp_path / "a.npy") == f"{tmp_path / 'a.npy'}: cannot be read: Permission denied"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "{path}: is damaged, or not what its name says: Expecting property name"),
        ("3", "{path}: is not a list of Polygraphy's feeds (mappings from input names to arrays)"),
        ("[[]]", "{path}: is not a list of Polygraphy's feeds (mappings from input names to arrays)"),
        (
            '{"array": "", "polygraphy_class": "ndarray"}',
            "{path}: is not a list of Polygraphy's feeds (mappings from input names to arrays)",
        ),
        (
            '{"lst": [], "polygraphy_class": "RunResults"}',
            "{path}: holds the outputs of a Polygraphy run, not inputs; save inputs with --save-inputs",
        ),
        ('[{"x": [1, 2]}]', "{path}[0]: input 'x' is not an array in Polygraphy's encoding"),
        (
            '{"x": {"tensor": "", "polygraphy_class": "Tensor"}}',
            "{path}: input 'x' is a pickled torch tensor, which is never loaded; save it as a NumPy array",
        ),
        (
            '{"x": {"array": "!", "polygraphy_class": "ndarray"}}',
            "{path}: input 'x': is damaged, or not what its name says: ",
        ),
        (
            '{"x": {"polygraphy_class": "ndarray"}}',
            "{path}: input 'x': is damaged, or not what its name says: 'array'",
        ),
        ('{"x": {"polygraphy_class": "LazyArray"}}', "{path}: input 'x' is not an array in Polygraphy's encoding"),
        ("[]", "no input samples were given; give files with --inputs, or leave it out for synthetic ones"),
    ],
)
def test_json_that_is_not_polygraphys(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    assert refused([X], path).startswith(message.format(path=path))


def test_json_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"\xff\xfe")
    assert refused([X], path).startswith(f"{path}: is damaged, or not what its name says: ")
