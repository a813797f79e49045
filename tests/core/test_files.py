"""What a file is, told by its bytes, and the way on from a file that was not wanted."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from halfwise.core.files.absent import absent
from halfwise.core.files.identify import identify, not_wanted
from halfwise.core.files.kinds import WORDS, FileKind
from tests.models.zoo import SHAPES
from tests.support.foreign_files import FILES, engine, zipped
from tests.support.says import Says


@pytest.mark.parametrize("name", FILES)
def test_each_is_known_by_its_content(name: str, tmp_path: Path) -> None:
    file, content, kind = FILES[name]
    (tmp_path / file).write_bytes(content)
    assert identify(tmp_path / file).kind is kind


def test_every_kind_has_its_words() -> None:
    assert set(WORDS) == set(FileKind)


@pytest.mark.parametrize("name", ["net", "net.bin", "net.pt", "net.onnx"])
def test_a_model_is_one_under_any_name(name: str, tmp_path: Path) -> None:
    onnx.save(SHAPES["healthy_mlp"]().model, tmp_path / name)
    assert identify(tmp_path / name).kind is FileKind.ONNX


@pytest.mark.parametrize(("content", "version"), [(engine(10, 0, 1, 6), "10.0.1"), (b"ftrt" + bytes(60), "")])
def test_the_version_of_an_engine(content: bytes, version: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(content)
    assert identify(tmp_path / "a").detail == version


def test_folders_and_what_is_not_there(tmp_path: Path) -> None:
    assert identify(tmp_path).kind is FileKind.FOLDER
    assert identify(tmp_path / "none").kind is FileKind.MISSING
    (tmp_path / "saved_model.pb").write_bytes(b"\x08\x01")
    assert identify(tmp_path).kind is FileKind.SAVED_MODEL


def test_an_archive_that_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_bytes(zipped("a/data.pkl")[:30])
    assert identify(tmp_path / "a.pt").kind is FileKind.CUT_OFF


@pytest.mark.parametrize("share", [0.3, 0.7, 0.99])
def test_a_model_that_is_cut_off(share: float, tmp_path: Path) -> None:
    whole = SHAPES["rms_norm_overflow"]().model.SerializeToString()
    (tmp_path / "a.onnx").write_bytes(whole[: int(share * len(whole))])
    assert identify(tmp_path / "a.onnx").kind is FileKind.CUT_OFF_ONNX


def test_a_name_with_braces_is_told_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "{option}.tflite"
    path.write_bytes(FILES["tflite"][1])
    assert not_wanted(path, "an ONNX model", "").endswith("--tflite {option}.tflite --output model.onnx)")


def test_a_model_where_something_else_is_wanted_is_named(tmp_path: Path, says: Says) -> None:
    onnx.save(SHAPES["healthy_mlp"]().model, tmp_path / "m.onnx")
    path = tmp_path / "m.onnx"
    says(not_wanted(path, "a plan", ""))
    assert not_wanted(path, "an ONNX model", "no graph in it") == "no graph in it"


@pytest.mark.parametrize(
    ("typed", "meant"), [("modle.onnx", "'model.onnx'"), ("Model.ONNX", "'model.onnx'"), ("build", "'build.log'")]
)
def test_a_name_that_was_mistyped_is_told_from_what_lies_there(typed: str, meant: str, tmp_path: Path) -> None:
    for name in ("model.onnx", "build.log", "x"):
        (tmp_path / name).touch()
    assert str(absent(tmp_path / typed)).endswith(f" (did you mean {meant}?)")
    assert "did you mean" not in str(absent(tmp_path / "quite another"))
    assert "did you mean" not in str(absent(tmp_path / "no folder" / "model.onnx"))
