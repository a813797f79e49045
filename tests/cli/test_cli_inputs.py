"""Images, sound, raw values and shapes on the command line; every option with what it refuses."""

from __future__ import annotations

import base64
import re
import shlex
import zlib
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.models.zoo.graph_writer import GraphWriter
from tests.support.command_line import CommandLine
from tests.support.media import image
from tests.support.says import Says


@pytest.fixture
def halfwise_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def picture_net(path: Path, height: int | str = 4, width: int | str = 6) -> Path:
    writer = GraphWriter("net")
    shape = [1, 3, height, width]
    writer.output(writer.op("Tanh", [writer.input("image", shape)], "/act"), "y", shape)
    onnx.save(writer.model(), path)
    return path


@pytest.mark.parametrize(
    "words",
    [
        ("--size", "4x6"),
        ("--mean", "0.5"),
        ("--std", "0.5"),
        ("--layout", "nchw"),
        ("--range", "0-1"),
        ("--stretch",),
        ("--rate", "8000"),
        ("--images", "none"),
        ("--audio", "none"),
        ("--images", ".", "--size", "640"),
        ("--images", ".", "--mean", "a,b"),
        ("--images", ".", "--std", ""),
        ("--images", ".", "--layout", "hw"),
        ("--images", ".", "--range", "1"),
        ("--shapes", "image"),
        ("--shapes", "image:1xa"),
        ("--shapes", "other:1x3"),
        ("--minShapes", "image:1x3x9x9"),
        ("--optShapes", "image"),
        ("--maxShapes", "image"),
        ("--inputs", "image:none.bin"),
    ],
)
def test_what_an_option_refuses(
    words: tuple[str, ...], says: Says, halfwise_cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    image(tmp_path / "a.png", np.zeros((4, 6, 3)))
    ended = halfwise_cli("trace", picture_net(tmp_path / "m.onnx"), *words)
    assert (ended.code, ended.out) == (2, "")
    says(ended.told)


def test_images_are_shown_as_the_network_sees_them(halfwise_cli: CommandLine, tmp_path: Path) -> None:
    pixels = np.random.default_rng(3).integers(0, 256, (4, 6, 3))
    for index in range(3):
        image(tmp_path / f"{index}.png", pixels // (index + 1))
    model, out = picture_net(tmp_path / "m.onnx", "h", "w"), tmp_path / "out"
    words = ("--images", tmp_path, "--size", "6x4", "--mean", "0.5,0.4,0.3", "--std", "0.2", "--range", "0-1")
    ended = halfwise_cli("fix", model, "--out", out, *words)
    assert ended.code == 0, ended.err
    following = shlex.split(next(line for line in ended.out.splitlines() if line.startswith("next")))
    assert following[5:] == [str(word) for word in words]
    page = next(out.glob("*.html")).read_text(encoding="utf-8")
    assert "img-src data:" in page and page.count("<img ") == 1
    found = re.search(r'src="data:image/png;base64,([^"]+)"', page)
    assert found
    content = base64.b64decode(found[1])
    start = content.index(b"IDAT") + 4
    rows = zlib.decompressobj().decompress(content[start:])
    shown = np.frombuffer(rows, np.uint8).reshape(4, 1 + 6 * 3)[:, 1:].reshape(4, 6, 3)
    assert any(np.abs(shown.astype(int) - pixels // (index + 1)).max() <= 1 for index in range(3))


def test_shapes_and_trtexecs_form_of_them(halfwise_cli: CommandLine, tmp_path: Path) -> None:
    model = picture_net(tmp_path / "m.onnx", "h", "w")
    ended = halfwise_cli("trace", model, "--shapes", "image:1x3x4x4", "--json")
    assert ended.code == 0 and ended.document["inputs"]["origin"] == "synthetic"
    three = ("--minShapes", "image:1x3x2x2", "--optShapes", "image:1x3x4x4", "--maxShapes", "image:1x3x8x8")
    assert halfwise_cli("trace", model, *three).code == 0


def test_raw_values_on_the_command_line(halfwise_cli: CommandLine, tmp_path: Path) -> None:
    model = picture_net(tmp_path / "m.onnx")
    np.ones(72, np.float32).tofile(tmp_path / "x.bin")
    ended = halfwise_cli("trace", model, "--inputs", f"image:{tmp_path / 'x.bin'}", "--json")
    assert ended.code == 0 and ended.document["inputs"] == {"origin": "given", "samples": 1}
