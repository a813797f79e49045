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
from tests.support.says import Says

# -- what does not fit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "feed",
    [
        {"x": x(1)},
        {"x": x(1), "ids": [1], "mask": [1], "y": [2]},
        {"x": np.ones(2), "ids": [1]},
        {"x": np.ones((1, 4)), "ids": [1]},
        {"x": x(1, rows=2), "ids": [1]},
    ],
)
def test_what_does_not_fit_the_model(feed: dict[str, Any], says: Says) -> None:
    says(refused([X, IDS], [feed]))


def test_unknown_dimensions_and_ranks_take_anything(says: Says) -> None:
    specs = [InputSpec("a", F32, (None, 2)), InputSpec("b", F32, None)]
    feeds = [{"a": np.ones((5, 2)), "b": np.ones(3)}, {"a": np.ones((4, 2)), "b": np.ones((1, 1))}]
    assert load_samples(specs, feeds).validation[0]["b"].shape == (1, 1)
    says(refused(specs, [{"a": np.ones((5, 3)), "b": 1}]))


def test_a_symbol_may_differ_between_samples() -> None:
    samples = load_samples([X, IDS], [{"x": x(1), "ids": [1]}, {"x": x(1, rows=2), "ids": [1, 2]}])
    assert samples.validation[0]["x"].shape == (2, 3)


def test_messages_name_the_file(tmp_path: Path, says: Says) -> None:
    np.savez(tmp_path / "a.npz", x=x(1))
    says(refused([X, IDS], tmp_path))
    (tmp_path / "b.json").write_text(json.dumps([{"x": encoded(x(1)[:, :2])}]))
    says(refused([X], tmp_path / "b.json"))


def test_nothing_given(says: Says) -> None:
    for sources in ([], iter(())):
        says(refused([X], sources))


def test_neither_a_path_nor_a_feed(says: Says) -> None:
    says(refused([X], [x(1)]))


def test_what_is_no_array(says: Says) -> None:
    class Broken:
        def __array__(self, *_: Any, **__: Any) -> np.ndarray:
            raise RuntimeError("still on the device")

    says(refused([X], [{"x": Broken()}]))


# -- files that cannot be read ----------------------------------------------------------------------------------------


def test_paths_that_lead_nowhere(tmp_path: Path, says: Says) -> None:
    says(refused([X], tmp_path / "gone"))
    says(refused([X], tmp_path))
    (tmp_path / "x.pt").write_bytes(b"")
    says(refused([X], tmp_path / "x.pt"))


def test_npy_for_a_model_with_two_inputs(tmp_path: Path, says: Says) -> None:
    np.save(tmp_path / "a.npy", x(1))
    says(refused([X, IDS], tmp_path / "a.npy"))


class Trap:
    """Leaves a mark if it is ever unpickled."""

    sprung = False

    def __reduce__(self) -> tuple[Any, ...]:
        return (setattr, (Trap, "sprung", True))


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_pickles_are_never_loaded(tmp_path: Path, name: str, says: Says) -> None:
    trapped = np.array([Trap()], object)
    np.save(tmp_path / "a.npy", trapped, allow_pickle=True)
    np.savez(tmp_path / "a.npz", x=trapped)
    says(refused([X], tmp_path / name))
    assert not Trap.sprung


def test_a_pickle_in_polygraphys_json_is_never_loaded(tmp_path: Path, says: Says) -> None:
    stream = io.BytesIO()
    np.save(stream, np.array([Trap()], object), allow_pickle=True)
    node = {"array": base64.b64encode(stream.getvalue()).decode(), "polygraphy_class": "ndarray"}
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"x": node}))
    says(refused([X], path))
    assert not Trap.sprung


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
@pytest.mark.parametrize("content", [b"", b"not an array at all", b"\x93NUMPY\x01", b"PK\x03\x04", b"\x80\x04N."])
def test_files_that_are_not_what_they_say(tmp_path: Path, name: str, content: bytes, says: Says) -> None:
    (tmp_path / name).write_bytes(content)
    message = refused([X], tmp_path / name)
    says(message)
    assert "\n" not in message


@pytest.mark.parametrize("compressed", [False, True])
def test_a_damaged_archive(tmp_path: Path, compressed: bool, says: Says) -> None:
    path = tmp_path / "a.npz"
    (np.savez_compressed if compressed else np.savez)(path, x=np.arange(3000, dtype=np.float32).reshape(1000, 3))
    content = bytearray(path.read_bytes())
    for at in range(200, 400):
        content[at] ^= 0xFF
    path.write_bytes(content)
    says(refused([X], path))


def test_an_npz_with_something_else_inside(tmp_path: Path, says: Says) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x", b"readme")
    says(refused([X], tmp_path / "a.npz"))


def test_a_file_that_may_not_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says) -> None:
    np.save(tmp_path / "a.npy", x(1))

    def denied(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    says(refused([X], tmp_path / "a.npy"))


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "3",
        "[[]]",
        '{"array": "", "polygraphy_class": "ndarray"}',
        '{"lst": [], "polygraphy_class": "RunResults"}',
        '[{"x": [1, 2]}]',
        '{"x": {"tensor": "", "polygraphy_class": "Tensor"}}',
        '{"x": {"array": "!", "polygraphy_class": "ndarray"}}',
        '{"x": {"polygraphy_class": "ndarray"}}',
        '{"x": {"polygraphy_class": "LazyArray"}}',
        "[]",
    ],
)
def test_json_that_is_not_polygraphys(tmp_path: Path, content: str, says: Says) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    says(refused([X], path))


def test_json_that_is_not_text(tmp_path: Path, says: Says) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"\xff\xfe")
    says(refused([X], path))
