"""What the user decides is applied, shown as theirs, and refused where it cannot be; other tools' lists are data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.core.nearest import nearest
from halfwise.core.notes import Note, NoteKind
from halfwise.model.model import Model, load
from halfwise.model.ops import CLOSED
from halfwise.precision.lists import POLICIES, policy_named
from halfwise.precision.plan import read_plan
from halfwise.precision.selectors import Selection, choices_of, kept_by
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.fix.policies import compare_policies
from tests.models.build import model, node, value, weight
from tests.models.zoo import SHAPES, encoder
from tests.support.command_line import CommandLine
from tests.support.messages import kinds, only
from tests.support.says import Says


def small() -> onnx.ModelProto:
    """A network with scopes: /body/..., /head/... and a softmax; nothing in it needs FP32."""
    rng = np.random.default_rng(0)
    nodes = [
        node("MatMul", "x w1", "a", name="/body/fc/MatMul"),
        node("Relu", "a", "b", name="/body/Relu"),
        node("MatMul", "b w2", "c", name="/head/fc/MatMul"),
        node("Softmax", "c", "d", name="/head/Softmax", axis=-1),
        node("Cast", "d", "e", name="/head/Cast", to=7),
        node("Cast", "e", "f", name="/head/Cast_1", to=1),
        node("Add", "d f", "y", name="/head/Add"),
    ]
    weights = [
        weight("w1", rng.standard_normal((8, 16)).astype(np.float32)),
        weight("w2", rng.standard_normal((16, 4)).astype(np.float32)),
    ]
    return model(nodes, [value("x", shape=(2, 8))], [value("y", shape=(2, 4))], weights)


@pytest.fixture(scope="module")
def loaded() -> Model:
    return load(small())


@pytest.fixture
def halfwise(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


INPUTS = [{"x": np.random.default_rng(seed).standard_normal((2, 8)).astype(np.float32)} for seed in range(4)]


# -- selectors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("op:Softmax", ["/head/Softmax"]),
        ("op:Mat*", ["/body/fc/MatMul", "/head/fc/MatMul"]),
        ("scope:/head/*", ["/head/fc/MatMul", "/head/Softmax", "/head/Cast", "/head/Cast_1", "/head/Add"]),
        ("scope:/head/fc", ["/head/fc/MatMul"]),
        ("scope:/body", ["/body/fc/MatMul", "/body/Relu"]),
        ("name:/body/Relu", ["/body/Relu"]),
        ("pattern:softmax", ["/head/Softmax"]),
        ("policy:torch-autocast", ["/head/Softmax"]),
    ],
)
def test_what_a_selector_means(loaded: Model, selector: str, names: list[str]) -> None:
    assert Selection(loaded).of(selector, "--keep") == names


@pytest.mark.parametrize(
    "selector",
    [
        "Softmax",
        "op:",
        "layer:x",
        "op:Sofmax",
        "op:LSTM",
        "name:/head/Sofmax",
        "scope:/haed/*",
        "scope:/hea",
        "pattern:layernrom",
        "pattern:layernorm",
        "policy:autocast",
        "policy:modelopt",
    ],
)
def test_selectors_that_mean_nothing(loaded: Model, selector: str, says: Says) -> None:
    with says.raises(InputError):
        choices_of(loaded, [selector], [])


def test_contradictions_and_what_cannot_be_obeyed(loaded: Model, says: Says) -> None:
    with says.raises(InputError):
        choices_of(loaded, ["scope:/head/*"], ["op:Softmax"])
    with says.raises(InputError):
        choices_of(load(random_model()), [], ["op:RandomNormalLike"])
    with says.raises(InputError):
        choices_of(load(random_model()), ["name:ids"], [])
    chosen = choices_of(loaded, ["op:Softmax", "pattern:softmax"], ["scope:/body"])
    assert chosen.kept == {"/head/Softmax": "--keep op:Softmax"}
    assert chosen.forced == dict.fromkeys(["/body/fc/MatMul", "/body/Relu"], "--force scope:/body")


def random_model() -> onnx.ModelProto:
    """A node that cannot narrow, and one that works on integers alone."""
    nodes = [node("RandomNormalLike", "x", "r", name="noise"), node("Add", "x r", "y", name="add")]
    nodes.append(node("Add", "i i", "j", name="ids"))
    ids = value("i", onnx.TensorProto.INT64)
    return model(nodes, [value("x"), ids], [value("y"), value("j", onnx.TensorProto.INT64)])


def test_suggestions() -> None:
    assert nearest("softmax", ["Softmax", "Relu"]) == " (did you mean 'Softmax'?)"
    assert nearest("zzz", ["Softmax", "Relu"]) == ""
    assert nearest("", ["Softmax"]) == ""


# -- in the main job --------------------------------------------------------------------------------------------------


def test_what_is_kept_is_in_the_plan_as_the_users_own(tmp_path: Path) -> None:
    onnx.save(small(), tmp_path / "model.onnx")
    result = fix(tmp_path / "model.onnx", INPUTS, out=tmp_path / "out", keep=["op:Softmax", "scope:/body/fc"])
    assert result.met
    told = {planned.name: (planned.why, planned.because) for planned in result.plan.nodes}
    assert told == {
        "/body/fc/MatMul": ("wanted", (Note.of(NoteKind.USER_KEEPS, option="--keep scope:/body/fc"),)),
        "/head/Softmax": ("wanted", (Note.of(NoteKind.USER_KEEPS, option="--keep op:Softmax"),)),
    }
    assert result.plan.nodes[1].numbers["max_abs"] <= 1.0
    types = {
        info.name: info.type.tensor_type.elem_type
        for info in onnx.shape_inference.infer_shapes(onnx.load(tmp_path / "out" / "model.fp16.onnx")).graph.value_info
    }
    assert types["d"] == onnx.TensorProto.FLOAT
    assert types["b"] == onnx.TensorProto.FLOAT16
    again = fix(tmp_path / "model.onnx", INPUTS, plan=read_plan(tmp_path / "out" / "model.plan.json"))
    assert again.fp32_nodes == result.fp32_nodes


def test_kept_nodes_are_not_repaired_away() -> None:
    given = load(encoder(layers=1, overflow=True).model)
    free = fix(given)
    assert free.plan.repairs
    kept = fix(given, keep=["pattern:layernorm"])
    norms = set(Selection(given).by_pattern["layernorm"])
    assert norms <= set(kept.fp32_nodes)
    assert not kept.plan.repairs
    assert kept.met
    assert {planned.why for planned in kept.plan.nodes if planned.name in norms} == {"wanted"}


def test_what_is_forced_is_narrow_even_where_that_misses_the_tolerance() -> None:
    given = load(encoder(layers=1, overflow=True).model)
    result = fix(given, repairs=["none"], force=["op:Pow"])
    assert not result.met
    assert not {name for name in result.fp32_nodes if name.endswith("/Pow")}
    assert only(result.notes, NoteKind.FORCED_MISSES).values["option"] == "--force op:Pow"
    harmless = fix(given, repairs=["none"], force=["op:Softmax"])
    assert harmless.met
    assert not {NoteKind.FORCED_MISSES, NoteKind.FORCED_NOT_ALONE}.intersection(kinds(harmless.notes))


def test_what_a_repair_made_of_a_forced_node_is_said() -> None:
    zoo = SHAPES["layer_norm_overflow"]()
    result = fix(zoo.model, zoo.inputs, force=["op:Pow"])
    assert result.met and result.plan.repairs
    assert only(result.notes, NoteKind.FORCED_REPAIRED).values == {"option": "--force op:Pow", "nodes": ["/norm/Pow"]}


def test_the_command_line(tmp_path: Path, halfwise: CommandLine, says: Says) -> None:
    onnx.save(small(), tmp_path / "model.onnx")
    path, out = str(tmp_path / "model.onnx"), str(tmp_path / "out")
    ended = halfwise("fix", path, "--out", out, "--keep", "op:Softmax", "--json")
    assert ended.code == 0
    document = ended.document
    assert document["fp32_nodes"] == ["/head/Softmax"]
    assert [entry["why"] for entry in document["nodes"] if entry["name"] == "/head/Softmax"] == ["wanted"]
    assert {entry["policy"]: (entry["fp32_nodes"], entry["shared"]) for entry in document["policies"]} == {
        "torch-autocast": (1, 1), "onnxruntime": (0, 0), "modelopt": (0, 0),
    }  # fmt: skip
    ended = halfwise("fix", path, "--out", str(tmp_path / "other"), "--keep", "op:Sofmax")
    assert (ended.code, ended.out) == (2, "")
    says(ended.told)
    assert not (tmp_path / "other").exists()
    plan = str(tmp_path / "out" / "model.plan.json")
    ended = halfwise("fix", path, "--out", out, "--plan", plan, "--keep", "op:Softmax")
    assert ended.code == 2
    says(ended.told)


def test_other_tools_lists_are_told_where_all_is_asked_for(tmp_path: Path, halfwise: CommandLine) -> None:
    onnx.save(small(), tmp_path / "model.onnx")
    words = ("fix", str(tmp_path / "model.onnx"), "--out", str(tmp_path / "out"))
    assert ["policy:torch-autocast" in halfwise(*words, *more).out for more in ((), ("--full",))] == [False, True]


# -- the lists of other tools -----------------------------------------------------------------------------------------


def test_lists_name_operators_that_exist() -> None:
    known = {schema.name for schema in onnx.defs.get_all_schemas_with_history()} | set(CLOSED)
    # operators of ONNX's later opsets or of ONNX-ML that this onnx package may not know yet
    later = {"CumProd", "RMSNormalization", "TreeEnsemble"}
    for policy in POLICIES.values():
        assert policy.ops - known <= later
        assert policy.source
        assert policy_named(policy.name) is policy


def test_a_list_by_magnitude_needs_ranges(loaded: Model) -> None:
    from halfwise.core.counting import count

    selection = Selection(loaded)
    assert kept_by(POLICIES["modelopt"], selection) == []
    ranges = {"c": count(np.float32([1000.0])), "d": count(np.float32([1.0]))}
    assert kept_by(POLICIES["modelopt"], selection, ranges) == ["/head/fc/MatMul", "/head/Softmax"]


def test_a_decomposed_norm_is_one_operator_to_autocast() -> None:
    given = load(encoder(layers=1, overflow=False).model)
    (autocast, *_) = compare_policies(given, [])
    norms = Selection(given).by_pattern["layernorm"]
    assert autocast.nodes == len(norms) + 1  # and the softmax
    assert compare_policies(given, norms)[0].shared == len(norms)


def test_formats_stay_as_they_were() -> None:
    """Nodes that the user keeps are in FP32, whatever other formats there are."""
    result: Any = fix(load(small()), INPUTS, keep=["op:Softmax"])
    assert {planned.format for planned in result.plan.nodes} == {Format.FP32}
