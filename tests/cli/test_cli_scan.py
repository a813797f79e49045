"""`halfwise scan` prints one plain screen or one JSON document, whatever names a model brings along."""

from __future__ import annotations

import io
import json
import shlex
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import onnx
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from halfwise.cli import scan as verb
from halfwise.core.errors import InputError
from halfwise.report.text import safe, width_of
from tests.models.build import model, node, value
from tests.models.zoo import cnn_tiny_weights, encoder
from tests.models.zoo.graph_writer import GraphWriter
from tests.support.says import Says

app = typer.Typer()
app.command()(verb.command)


def run(*arguments: str, **environment: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False, env=environment)
    assert result.exit_code == 0
    return result.stdout


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("models") / "tiny.onnx"
    onnx.save(cnn_tiny_weights("tensors").model, path)
    return str(path)


def hostile(path: Path, name: str) -> str:
    writer = GraphWriter("hostile")
    weight = writer.weight(name, np.full((4, 4), 1e-7))
    writer.output(writer.op("MatMul", [writer.input("x", [1, 4]), weight], ""), "y", [1, 4])
    onnx.save(writer.model(), path)
    return str(path)


def test_one_screen_of_plain_text(tiny: str, says: Says) -> None:
    lines = run(tiny).splitlines()
    says(lines[0])
    assert lines[2].split() == ["weight", "values", "subnormal", "below", "6e-08", "largest"]
    assert lines[3].startswith("stages.")
    assert lines[3].split()[0].endswith(".shrink.weight")
    says(run(tiny), "error  ")
    says(run(tiny), "info  ")
    assert sum(line.startswith("        -> ") for line in lines) == 2
    assert len(lines) < 40
    assert all(line.isprintable() for line in lines)


def test_long_tables_and_groups_are_cut(tmp_path: Path, says: Says) -> None:
    onnx.save(encoder(overflow=False).model, tmp_path / "model.onnx")
    output = run(str(tmp_path / "model.onnx"))
    says(output, "more weights")
    assert len(output.splitlines()) < 40

    writer = GraphWriter("many")
    x = writer.input("x", [1, 4])
    for index in range(5):
        x = writer.op("MatMul", [x, writer.weight(f"w{index}", np.full((4, 4), 1e-7))], "")
    writer.output(x, "y", [1, 4])
    onnx.save(writer.model(), tmp_path / "many.onnx")
    output = run(str(tmp_path / "many.onnx"))
    assert output.count("error   HW102") == 3
    says(output, "... and 2 more")


def test_nothing_found(tmp_path: Path, says: Says) -> None:
    writer = GraphWriter("good")
    writer.output(writer.op("Relu", [writer.input("x", [1, 4])], ""), "y", [1, 4])
    onnx.save(writer.model(), tmp_path / "good.onnx")
    says(run(str(tmp_path / "good.onnx")).splitlines()[1])


def test_json(tiny: str) -> None:
    document = json.loads(run(tiny, "--json"))
    assert document["schema"] == "halfwise.scan/1"
    assert len(document["weights"]["initializers"]) == 15
    assert {finding["rule"] for finding in document["findings"]} == {"HW101", "HW102"}


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\xff\xff not a model")
    result = CliRunner().invoke(app, [str(path)])
    assert isinstance(result.exception, InputError)
    assert "is not an ONNX model" in str(result.exception)
    assert result.stdout == ""


@pytest.mark.parametrize("width", [60, 90])
def test_tables_keep_to_the_width(tmp_path: Path, width: int) -> None:
    path = hostile(tmp_path / "model.onnx", "model/" + "very_long_scope/" * 20 + "weight")
    lines = run(path, COLUMNS=str(width)).splitlines()
    assert all(len(line) <= width for line in lines if not line.startswith("next"))  # a command to copy stays whole
    first = next(index for index, line in enumerate(lines) if line.startswith("weight    "))
    table = lines[first : first + 2]
    assert table[1].startswith("model/")
    assert "..." in table[1]
    assert "weight  " in table[1]


NAMES = ["\x1b[31mred\x1b[0m", "[bold red]x[/]", "[/nothing]", "line\nbreak", "\u202eright", "\x07bell\x08", ":smile:"]


@pytest.mark.parametrize("name", NAMES)
def test_hostile_names_are_shown_not_obeyed(tmp_path: Path, name: str) -> None:
    path = hostile(tmp_path / "model.onnx", name)
    output = run(path)
    assert safe(name) in output
    assert not any(unicodedata.category(c) in ("Cc", "Cf") for c in output if c != "\n")
    assert json.loads(run(path, "--json"))["weights"]["initializers"][0]["name"] == name


def terminal(path: str, **environment: str) -> str:
    """What a terminal would get."""
    return run(path, FORCE_COLOR="1", TERM="xterm-256color", **environment)


def test_a_terminal_gets_colours_and_wrapped_lines(tiny: str) -> None:
    screen = terminal(tiny, COLUMNS="64")
    assert "\x1b[1;31merror" in screen
    plain = screen.replace("\x1b[1;31m", "").replace("\x1b[36m", "").replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert max(len(line.rstrip()) for line in plain.splitlines() if not line.startswith("next")) <= 64


def test_no_color_is_heeded(tiny: str) -> None:
    screen = terminal(tiny, NO_COLOR="1")
    assert "31m" not in screen
    assert "36m" not in screen


def test_letters_that_the_output_lacks_do_not_end_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = hostile(tmp_path / "model.onnx", "gewicht_\xf6_\u91cd")
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", narrow)
    with pytest.raises(typer.Exit):
        verb.command(Path(path))
    narrow.flush()
    shown = narrow.buffer.getvalue().decode("ascii")  # type: ignore[attr-defined]
    assert "gewicht_\\xf6_\\u91cd" in shown


# -- safe -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("/layers.0/Conv", "/layers.0/Conv"),
        ("a\tb", "a\\tb"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("user\u202egnp.exe", "user\\u202egnp.exe"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("\ud800", "\\ud800"),
        ("\u2028", "\\u2028"),
        ("größe_重み", "größe_重み"),
    ],
)
def test_safe_shows_what_would_act(name: str, shown: str) -> None:
    assert safe(name) == shown


@given(st.text(), st.integers(0, 40))
def test_safe_fits_and_never_acts(name: str, width: int) -> None:
    shown = safe(name, width)
    assert width_of(shown) <= width
    assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in shown)
    assert safe(name, 10_000) == safe(name)


def test_safe_keeps_both_ends() -> None:
    assert safe("model.decoder.layers.11.attention.weight", 20) == "model.de...on.weight"


# -- checkpoints ------------------------------------------------------------------------------------------------------


def checkpoint(path: Path, **tensors: np.ndarray) -> str:
    header, body = {}, b""
    for name, array in tensors.items():
        kind = {"float32": "F32", "float16": "F16", "int64": "I64"}[array.dtype.name]
        offsets = [len(body), len(body) + array.nbytes]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": offsets}
        body += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)
    return str(path)


def test_one_of_a_thing_is_no_plural(tmp_path: Path, says: Says) -> None:
    path = checkpoint(tmp_path / "w.safetensors", w=np.ones(1, np.float32))
    says(run(path).splitlines()[0])
    model = hostile(tmp_path / "m.onnx", "w")
    assert run(model).splitlines()[0].startswith(f"{model}: 1 node, opset ")


def test_a_checkpoint_is_one_screen_too(tmp_path: Path, says: Says) -> None:
    weight = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    tiny = (weight * 1e-8).astype(np.float32)
    half = np.ones(3, np.float16)
    path = checkpoint(
        tmp_path / "w.safetensors", **{"a.weight": weight, "b.weight": tiny, "c": half, "ids": np.arange(2)}
    )
    lines = run(path).splitlines()
    says(lines[0])
    says(lines, "HW102 b.weight")
    document = json.loads(run(path, "--json", "--rounding"))
    assert [sorted(set(entry) - {"rounding"}) for entry in document["weights"]["initializers"]][2] == sorted(
        ["name", "count", "subnormal", "underflow", "overflow", "nonfinite", "max_abs", "min_abs", "dtype"]
    )
    changes = {entry["name"]: entry["rounding"] for entry in document["weights"]["initializers"]}
    assert changes["c"] == dict.fromkeys(changes["c"], 0.0)
    assert changes["b.weight"]["max_rel_change"] == 1.0
    assert 0 < changes["a.weight"]["rel_l2_change"] < 2.0**-11
    shown = run(path, "--rounding").splitlines()
    assert shown[2].split()[-3:] == ["change", "energy", "affected"]
    assert shown[3].startswith("b.weight")


def test_a_checkpoint_that_is_none(tmp_path: Path, says: Says) -> None:
    (tmp_path / "w.safetensors").write_bytes(b"\x05\0\0\0\0\0\0\0hello")
    result = CliRunner().invoke(app, [str(tmp_path / "w.safetensors")])
    assert isinstance(result.exception, InputError)
    says(result.exception)
    (tmp_path / "folder").mkdir()
    result = CliRunner().invoke(app, [str(tmp_path / "folder")])
    assert isinstance(result.exception, InputError)
    says(result.exception)


@pytest.mark.parametrize("inputs", ["boxes scores", "x y"])
def test_next_is_the_part_that_the_runtime_runs(inputs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here fixes a model with a plugin of TensorRT; in front of one that reads the inputs there is no part."""
    made = model(
        [
            node("Relu", "x", "boxes"),
            node("Sigmoid", "y", "scores"),
            node("EfficientNMS_TRT", inputs, "n", plugin_version="1"),
        ],
        [value("x", shape=(1, 8, 4)), value("y", shape=(1, 8, 2))],
        [value("n", onnx.TensorProto.INT32, (1, 1))],
    )
    onnx.save(made, tmp_path / "m.onnx")
    monkeypatch.chdir(tmp_path)
    said = [line.removeprefix("next").strip() for line in run("m.onnx").splitlines() if line.startswith("next")]
    if inputs == "x y":
        assert said == []
        return
    subprocess.run([sys.executable, *shlex.split(said[0])[1:]], check=True)
    part = onnx.load("m.part.onnx")
    assert [each.op_type for each in part.graph.node] == ["Relu", "Sigmoid"]
    assert [each.name for each in part.graph.output] == ["boxes", "scores"]
