"""A wrong file, given to any verb, is met with its name and the way on, in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from halfwise.core.errors import InputError
from halfwise.core.files.kinds import WORDS, FileKind
from halfwise.model.checkpoints import read_checkpoint
from halfwise.model.model import load
from tests.support.command_line import CommandLine
from tests.support.foreign_files import FILES

ALWAYS_WRONG = [
    "checkpoint", "old checkpoint", "torchscript", "exported", "engine", "plan", "trt", "ultralytics engine",
    "lfs pointer", "tflite", "saved model", "frozen graph", "keras", "keras 3", "zipped model", "raw", "png", "jpeg",
    "safetensors", "page", "empty", "ort format", "gguf",
]  # fmt: skip


@pytest.fixture
def halfwise_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def written(name: str, folder: Path) -> tuple[Path, FileKind]:
    file, content, kind = FILES[name]
    (folder / file).write_bytes(content)
    return folder / file, kind


@pytest.mark.parametrize("name", ALWAYS_WRONG)
def test_for_a_model(name: str, tmp_path: Path) -> None:
    path, kind = written(name, tmp_path)
    with pytest.raises(InputError) as caught:
        load(path)
    assert WORDS[kind].name in str(caught.value)
    assert WORDS[kind].way.replace("{name}", path.name) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "words",
    [
        ("fix", "FILE", "--out", "FILE"),
        ("trace", "FILE"),
        ("verify", "FILE", "FILE"),
        ("stages", "FILE"),
        ("audit", "FILE"),
        ("log", "FILE"),
        ("advise", "--target", "trt-10.9", "FILE"),
        ("gate", "FILE", "--plan", "FILE"),
        ("compare", "FILE", "FILE"),
    ],
    ids=lambda words: words[0],
)
def test_at_every_verb(words: tuple[str, ...], halfwise_cli: CommandLine, tmp_path: Path) -> None:
    path, kind = written("engine", tmp_path)
    ended = halfwise_cli(*(str(path) if word == "FILE" else word for word in words))
    assert ended.code == 2
    assert WORDS[kind].name in ended.told and WORDS[kind].way.replace("{name}", path.name) in ended.told


@pytest.mark.parametrize("name", ["lfs pointer", "page", "engine", "tflite"])
@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_for_a_checkpoint(suffix: str, name: str, tmp_path: Path) -> None:
    path, kind = written(name, tmp_path)
    path = path.rename(path.with_suffix(suffix))
    with pytest.raises(InputError) as caught:
        read_checkpoint(path)
    assert str(caught.value).startswith(f"{path} is {WORDS[kind].name}")
