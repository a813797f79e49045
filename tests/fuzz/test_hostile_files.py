"""What an attacker or an accident puts into a file: one line and nothing written, or an answer."""

from __future__ import annotations

import json
import os
import struct
import time
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper

from halfwise.cli.plan_hook import main as plan_hook
from halfwise.core import limits
from halfwise.core.errors import InputError
from halfwise.core.targets import Target
from halfwise.model.model import load
from halfwise.precision.plan import read_plan
from halfwise.repair import check_repairs, reapplied
from tests.models.build import f32, model, node, value, weight
from tests.support.command_line import CommandLine
from tests.support.says import Says


@pytest.fixture
def halfwise_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    return CommandLine(monkeypatch, capsys)


def saved(proto: onnx.ModelProto, name: str = "m.onnx") -> str:
    Path(name).write_bytes(proto.SerializeToString())
    return name


def refused(cli: CommandLine, *words: object) -> str:
    """One line, and no file that was not there before."""
    before = sorted(Path().rglob("*"))
    ended = cli(*words)
    assert (ended.code, ended.out) == (2, ""), ended
    assert sorted(Path().rglob("*")) == before
    return ended.told


def exp(**sizes: Any) -> onnx.ModelProto:
    return model([node("Exp", "x", "y")], [value("x", **sizes)], [value("y", **sizes)])


# -- what is no file --------------------------------------------------------------------------------------------------

WITHOUT_A_PLAN = (
    "doctor m.onnx odd.log",
    "scan odd.safetensors",
    "scan odd.pt",
    "scan odd.onnx",
    "verify m.onnx odd.onnx",
)
DOCUMENTS = (
    "fix m.onnx --plan odd.json --out o",
    "gate m.onnx --plan odd.json",
    "gate m.onnx --plan p.json --baseline odd.json",
    "compare odd.json odd.json",
    "audit odd.json",
    "audit layers.json --plan odd.json",
    "log odd.log",
    "fleet run odd.toml",
)
INPUTS = tuple(f"trace m.onnx --inputs odd{suffix}" for suffix in (".npz", ".npy", ".json"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
@pytest.mark.parametrize("words", [*WITHOUT_A_PLAN, *DOCUMENTS, *INPUTS, "doctor ."])
def test_a_pipe_is_no_file(words: str, halfwise_cli: CommandLine) -> None:
    """Nobody writes to it: whoever opened it would wait for ever."""
    saved(exp())
    Path("p.json").write_text('{"schema": "halfwise.plan/1", "fp32_nodes": []}')
    Path("layers.json").write_text('{"Layers": ["a"]}')
    for suffix in {Path(word).suffix for word in words.split() if word.startswith("odd")} or {".log"}:
        os.mkfifo(f"odd{suffix}")
    assert "odd" in refused(halfwise_cli, *words.split())


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no devices here")
@pytest.mark.parametrize(
    "words",
    [
        "fix m.onnx --plan odd.json --out o", "gate m.onnx --plan odd.json", "compare odd.json odd.json",
        "audit odd.json", "log odd.json", "fleet run odd.json",
    ],
)  # fmt: skip
def test_a_device_without_an_end_is_no_document(
    words: str, halfwise_cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LARGEST_JSON", 1 << 16)
    saved(exp())
    Path("odd.json").symlink_to("/dev/zero")
    assert "odd.json" in refused(halfwise_cli, *words.split())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_pipes_among_other_files_are_left_alone(halfwise_cli: CommandLine) -> None:
    for name in ("odd.json", "odd.plan.json"):
        os.mkfifo(name)
    assert halfwise_cli("profiles", ".").code == 0
    assert plan_hook(["m.onnx"]) == 0


# -- models -----------------------------------------------------------------------------------------------------------


def test_an_attribute_of_a_caller_outside_a_function_is_refused(halfwise_cli: CommandLine, says: Says) -> None:
    proto = model([node("LeakyRelu", "x", "y", alpha=0.1)], [value("x")], [value("y")])
    attribute = proto.graph.node[0].attribute[0]
    attribute.ClearField("f")
    attribute.ref_attr_name = "alpha"
    told = refused(halfwise_cli, "fix", saved(proto), "--out", "out")
    says(told)


def test_an_attribute_that_no_caller_gives_is_left_out(halfwise_cli: CommandLine) -> None:
    inner = node("LeakyRelu", "a", "o")
    inner.attribute.append(AttributeProto(name="alpha", ref_attr_name="slope", type=AttributeProto.FLOAT))
    function = helper.make_function("local", "F", ["a"], ["o"], [inner], [helper.make_opsetid("", 17)], ["slope"])
    proto = model([node("F", "x", "y", domain="local")], [value("x")], [value("y")], domains=("local",))
    proto.functions.append(function)
    assert halfwise_cli("fix", saved(proto), "--out", "out").code == 0


@pytest.mark.parametrize("axes", [[1.0], "1", ["a"], weight("t", np.array([1]))], ids=str)
def test_axes_of_another_type_are_refused(axes: Any, halfwise_cli: CommandLine, says: Says) -> None:
    nodes = [node("ReduceMean", "x", "m", axes=axes), node("Sub", "x m", "y")]
    told = refused(halfwise_cli, "scan", saved(model(nodes, [value("x", shape=[2, 4])], [value("y", shape=None)])))
    says(told)


@pytest.mark.parametrize(
    "nodes",
    [
        [helper.make_node("Cast", [], ["y"], name="n", to=1)],
        [helper.make_node("Add", ["x", ""], ["y"], name="n")],
        [node("Exp", "x", "y", name="n", axis=1)],
        [helper.make_node("Exp", ["x"], ["y", "z"], name="n")],
    ],
    ids=["no input", "an input left out", "an unknown attribute", "an output more"],
)
def test_nodes_that_no_runtime_takes_are_refused(
    nodes: list[onnx.NodeProto], says: Says, halfwise_cli: CommandLine
) -> None:
    says(refused(halfwise_cli, "scan", saved(model(nodes, [value("x")], [value("y")]))))


@pytest.mark.parametrize("size", [1 << 40, 1 << 62, (1 << 63) - 1])
@pytest.mark.parametrize("verb", ["fix", "trace", "verify"])
def test_inputs_too_large_to_generate_are_refused(verb: str, size: int, halfwise_cli: CommandLine) -> None:
    name = saved(exp(shape=[size, 4]))
    more = {"fix": ("--out", "out"), "verify": (name,)}.get(verb, ())
    assert "give real inputs with --inputs" in refused(halfwise_cli, verb, name, *more)


def test_a_size_below_zero_is_an_unknown_one(halfwise_cli: CommandLine) -> None:
    """As ONNX Runtime reads it."""
    ended = halfwise_cli("fix", saved(exp(shape=[-1, 4])), "--out", "out", "--json")
    assert ended.code == 0, ended.err
    written = onnx.load("out/m.fp16.onnx")
    assert not written.graph.input[0].type.tensor_type.shape.dim[0].HasField("dim_value")


def test_a_curve_of_a_model_without_arithmetic(halfwise_cli: CommandLine) -> None:
    proto = model([node("Transpose", "x", "y", perm=[1, 0])], [value("x", shape=[2, 3])], [value("y", shape=[3, 2])])
    ended = halfwise_cli("fix", saved(proto), "--out", "out", "--curve", "--json")
    assert ended.code == 0, ended.err


def test_an_epsilon_that_is_no_number(halfwise_cli: CommandLine) -> None:
    nodes = [node("Mul", "x loud", "h"), node("LayerNormalization", "h g", "y", epsilon=float("nan"))]
    weights = [weight("loud", f32(900.0)), weight("g", f32(1, 2, 3, 4))]
    told = refused(halfwise_cli, "fix", saved(model(nodes, [value("x")], [value("y")], weights)), "--out", "out")
    assert "hold no finite value" in told


# -- external data ----------------------------------------------------------------------------------------------------


def outside(*entries: tuple[str, str]) -> onnx.ModelProto:
    proto = model([node("Add", "x w", "y")], [value("x")], [value("y")])
    tensor = proto.graph.initializer.add(name="w", data_type=1, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, text in entries:
        tensor.external_data.add(key=key, value=text)
    Path("w.bin").write_bytes(bytes(16))
    return proto


@pytest.mark.parametrize("other", ["/etc/passwd", "w.bin", "pipe"])
@pytest.mark.parametrize("first", [True, False])
def test_a_place_said_twice_is_refused(other: str, first: bool, halfwise_cli: CommandLine, says: Says) -> None:
    entries = [("location", "w.bin"), ("location", other)]
    name = saved(outside(*(entries[::-1] if first else entries)))
    says(refused(halfwise_cli, "scan", name))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes")
def test_a_pipe_and_a_folder_are_no_external_data(halfwise_cli: CommandLine) -> None:
    os.mkfifo("pipe")
    for place in ("pipe", "."):
        assert "is no regular file" in refused(halfwise_cli, "scan", saved(outside(("location", place))))


# -- plans, results, other documents ----------------------------------------------------------------------------------

NORM = [
    node("Mul", "x loud", "h"),
    node("Pow", "h two", "q"),
    node("ReduceMean", "q", "v", axes=[-1]),
    node("Add", "v e", "s"),
    node("Sqrt", "s", "r"),
    node("Div", "h r", "y"),
]


def a_plan() -> tuple[str, dict[str, Any]]:
    """A model whose repair is in its plan."""
    weights = [weight("loud", f32(900.0)), weight("two", np.float32(2)), weight("e", np.float32(1e-5))]
    name = saved(model(NORM, [value("x", shape=[2, 4])], [value("y", shape=[2, 4])], weights))
    from halfwise.verbs.fix.fix import fix

    document = json.loads(fix(name).plan.text())
    assert document["repairs"]
    return name, document


ODD = (None, True, -1, 1 << 70, 1e308, "nan", "x", [], {}, [[]], ["a"], {"way": ["Pow"]})


def test_what_a_plan_holds_of_repairs_is_not_trusted(halfwise_cli: CommandLine, says: Says) -> None:
    name, plan = a_plan()
    read = load(name)
    for key in plan["repairs"][0]["parameters"]:
        for odd in ODD:
            changed = json.loads(json.dumps(plan))
            changed["repairs"][0]["parameters"][key] = odd
            Path("p.json").write_text(json.dumps(changed))
            stated = read_plan("p.json")
            with suppress(InputError):  # and nothing else
                check_repairs(stated.repairs, Target.parse("trt-8.6"))
                reapplied(read, stated.repairs)
    changed["repairs"][0]["parameters"] = {"way": ["LayerNormalization"]}
    Path("p.json").write_text(json.dumps(changed))
    told = refused(halfwise_cli, "fix", name, "--plan", "p.json", "--out", "out")
    says(told)


@pytest.mark.parametrize("depth", [150, 3000, 200_000])
@pytest.mark.parametrize(
    "words",
    [
        ("audit", "layers.json", "--plan", "d.json"),
        ("fix", "m.onnx", "--out", "out", "--plan", "d.json"),
        ("compare", "d.json", "d.json"),
        ("gate", "m.onnx", "--plan", "p.json", "--baseline", "d.json"),
        ("trace", "m.onnx", "--inputs", "d.json"),
        ("scan", "d.index.json"),
        ("audit", "d.json"),
    ],
    ids=lambda words: "-".join(words[:2]),
)
def test_deep_json_is_refused(words: tuple[str, ...], depth: int, halfwise_cli: CommandLine) -> None:
    saved(exp())
    deep = '{"schema": "halfwise.plan/1", "fp32_nodes": ' + '[{"a":' * depth + "1" + "}]" * depth + "}"
    for name in ("d.json", "d.index.json"):
        Path(name).write_text(deep)
    Path("p.json").write_text('{"schema": "halfwise.plan/1", "fp32_nodes": []}')
    Path("layers.json").write_text('{"Layers": ["a"]}')
    refused(halfwise_cli, *words)


TWICE = '{"schema": "halfwise.plan/1", "fp32_nodes": ["n_y"], "fp32_nodes": []}'


@pytest.mark.parametrize(
    "words",
    [
        ("fix", "m.onnx", "--out", "out", "--plan", "d.json"),
        ("gate", "m.onnx", "--plan", "d.json"),
        ("gate", "m.onnx", "--plan", "p.json", "--baseline", "d.json"),
        ("compare", "d.json", "p.json"),
        ("audit", "layers.json", "--plan", "d.json"),
        ("trace", "m.onnx", "--inputs", "d.json"),
        ("scan", "d.index.json"),
    ],
    ids=lambda words: "-".join(words[:2]),
)
def test_a_key_that_is_there_twice_is_refused(words: tuple[str, ...], halfwise_cli: CommandLine) -> None:
    """Of two readers one may take the first, and one the second."""
    saved(exp())
    for name in ("d.json", "d.index.json"):
        Path(name).write_text(TWICE)
    Path("p.json").write_text('{"schema": "halfwise.plan/1", "fp32_nodes": []}')
    Path("layers.json").write_text('{"Layers": ["a"]}')
    assert "'fp32_nodes' twice; write it" in refused(halfwise_cli, *words)


def test_many_keys_that_are_there_twice_are_refused_at_once(halfwise_cli: CommandLine) -> None:
    saved(exp())
    keys = ", ".join(f'"k{index}": 0' for index in (*range(200_000), 199_999))
    Path("d.json").write_text(f"{{{keys}}}")
    begun = time.process_time()
    assert "names 'k199999' twice" in refused(halfwise_cli, "fix", "m.onnx", "--out", "out", "--plan", "d.json")
    assert time.process_time() - begun < 10


def test_a_plan_with_a_mark_of_its_encoding_is_read(halfwise_cli: CommandLine) -> None:
    """As Windows editors write it."""
    name = saved(exp())
    Path("p.json").write_text('\ufeff{"schema": "halfwise.plan/1", "fp32_nodes": []}', encoding="utf-8")
    assert halfwise_cli("gate", name, "--plan", "p.json", "--json").code in (0, 1)


# -- arrays -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["U5", "S5", "M8[s]", "i4,f4", "c8", "V8"])
def test_saved_outputs_of_any_type(kind: str, halfwise_cli: CommandLine) -> None:
    np.savez("a.npz", y=np.zeros(3, np.dtype(kind)), n=f32(1, 2))
    np.savez("b.npz", y=f32(1, 2, 3), n=f32(1, 2))
    for words in (("a.npz", "b.npz"), ("b.npz", "a.npz"), ("a.npz", "a.npz")):
        ended = halfwise_cli("verify", *words, "--json")
        assert ended.code in (0, 1) if kind in ("U5", "S5") else "no numbers and no text" in ended.told


def test_an_array_that_is_there_twice_is_refused(halfwise_cli: CommandLine) -> None:
    np.savez("a.npz", x=f32(1, 2, 3, 4))
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile("a.npz", "a") as archive:
        archive.writestr("x.npy", archive.read("x.npy"))
    name = saved(exp())
    assert "it holds 'x.npy' twice" in refused(halfwise_cli, "trace", name, "--inputs", "a.npz")
    refused(halfwise_cli, "verify", "a.npz", "a.npz")


def test_an_archive_that_spans_disks_is_refused(halfwise_cli: CommandLine) -> None:
    np.savez("a.npz", x=f32(1, 2, 3, 4))
    content = bytearray(Path("a.npz").read_bytes())
    end = content.rindex(b"PK\x05\x06")
    content[end:end] = struct.pack("<4sIQI", b"PK\x06\x07", 0, 0, 2)  # where the long end record is: on one of two
    Path("a.npz").write_bytes(bytes(content))
    with pytest.raises(zipfile.BadZipFile, match="multiple disks"):
        zipfile.ZipFile("a.npz")
    name = saved(exp())
    for words in (("verify", "a.npz", "a.npz"), ("trace", name, "--inputs", "a.npz")):
        refused(halfwise_cli, *words)


# -- command lines ----------------------------------------------------------------------------------------------------

LONG = "n" * 300


@pytest.mark.parametrize(
    "words",
    [
        ("scan", LONG), ("fix", LONG, "--out", "o"), ("fix", "m.onnx", "--out", LONG),
        ("trace", "m.onnx", "--inputs", LONG),
        ("audit", LONG), ("log", LONG), ("compare", LONG, LONG), ("verify", LONG, LONG),
        ("verify", "m.onnx", LONG + ".npz"),
        ("gate", "m.onnx", "--plan", LONG), ("scan", "m.onnx", "--sarif", LONG), ("demo", "--out", LONG),
        ("bisect", "m.onnx", "--check", "true", "--out", LONG), ("stages", "m.onnx", "--emit-plan", LONG),
        ("fix", "m.onnx", "--out", "o", "--markdown", LONG),
    ],
    ids=lambda words: "-".join(word[:8] for word in words),
)  # fmt: skip
def test_names_that_are_too_long(words: tuple[str, ...], halfwise_cli: CommandLine) -> None:
    saved(exp())
    refused(halfwise_cli, *words)


def test_a_program_with_an_open_quotation_is_refused(halfwise_cli: CommandLine) -> None:
    assert "--backend cmd:': No closing quotation" in refused(halfwise_cli, "prove", "--backend", "cmd:'")


def test_what_could_not_be_written_is_refused_before_a_backend_runs(halfwise_cli: CommandLine) -> None:
    Path("file").touch()
    words = ("prove", "--backend", "cmd:sh -c 'touch ran'", "--out", "file/machine.json")
    assert "file/machine.json cannot be written" in refused(halfwise_cli, *words)


@pytest.mark.parametrize("command", ["absent-program", "./m.onnx", "sh -c 'exit 77'"])
def test_a_check_that_cannot_start_leaves_nothing(command: str, halfwise_cli: CommandLine) -> None:
    name = saved(exp())
    assert "--check" in refused(halfwise_cli, "bisect", name, "--check", command, "--backend", "ort-cpu")
    assert "--check" in refused(halfwise_cli, "bisect", name, "--check", command)
