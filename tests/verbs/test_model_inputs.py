"""Inputs in FP16: what that does to their values and to the outputs; memory layouts that a target can take."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.core.notes import NoteKind
from halfwise.core.targets import Target
from halfwise.deploy.layouts import layouts_of
from halfwise.model.model import load
from halfwise.precision.plan import read_plan
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.fix.model_inputs import InputEffect, input_effects, input_findings, refuse_ids
from halfwise.verbs.trace import trace
from tests.models.build import model, node, value, weight
from tests.support.command_line import CommandLine
from tests.support.messages import only
from tests.support.says import Says


def one_input(shape: tuple[int, ...] = (4,)) -> onnx.ModelProto:
    return model([node("Neg", "x", "y")], [value("x", shape=shape)], [value("y", shape=shape)])


def lookup(table: int = 30_000) -> onnx.ModelProto:
    nodes = [node("Reshape", "x s", "r"), node("Cast", "r", "i", to=TensorProto.INT64), node("Gather", "t i", "y")]
    weights = [weight("t", np.ones((table, 2), np.float32)), weight("s", np.array([4]))]
    return model(nodes, [value("x", shape=(1, 4))], [value("y", shape=(4, 2))], weights)


def effect(values: Any, proto: onnx.ModelProto | None = None) -> InputEffect:
    array = np.asarray(values, np.float32)
    (found,) = input_effects(load(proto or one_input(array.shape)), [{"x": array}])
    return found


def rule(values: Any, proto: onnx.ModelProto | None = None) -> str | None:
    found = list(input_findings([effect(values, proto)]))
    return found[0].rule if found else None


PIXELS = np.random.default_rng(0).uniform(0, 255, (1, 3, 8, 8))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.1, -0.5, 1.5, 2.0], None),
        ([[0.0, 3.0, 17.0, 2000.0]], None),  # whole numbers that FP16 has
        ([2049.0, 4097.0, 1.0, 0.0], "HW313"),
        ([1e5, 0.0, 1.0, 2.0], "HW312"),
        ([5000.0, 5000.5, 5001.0, 5001.5], "HW313"),  # a timestamp: steps of 4
        ([1000.25, 0.0, -700.0, 12.0], None),  # coordinates over a wide field keep FP16's own share
        (np.full(7, 0.7), None),  # a setting, the same in all inputs: nothing is told apart by it
        ([1e-9, 1e-9], "HW313"),  # which FP16 makes 0
        (PIXELS, "HW314"),
        (np.rint(PIXELS), "HW314"),
        (PIXELS / 255, None),
        (np.full((1, 3, 8, 8), np.nan), None),
    ],
)
def test_which_inputs_are_found(values: Any, expected: str | None) -> None:
    assert rule(values) == expected


def test_ids_are_known_by_their_use(says: Says) -> None:
    assert rule([[1, 5, 2048, 3]], lookup()) is None
    assert rule([[1, 5, 29_001, 3]], lookup()) == "HW311"
    with says.raises(InputError):
        refuse_ids([effect([[1, 5, 29_001, 3]], lookup())])
    refuse_ids([effect([[1, 5, 2048, 3]], lookup())])


def test_the_numbers_behind_a_finding() -> None:
    found = effect([5000.0, 5001.0, 5002.0, 5003.0])
    assert (found.kind, found.max_abs, found.step, found.change) == ("whole", 5003.0, 4.0, 2.0)
    assert found.relative == pytest.approx(np.sqrt((0 + 1 + 4 + 1) / 4) / np.std([0, 1, 2, 3]))
    assert effect(PIXELS).kind == "pixels"
    assert effect(np.rint(PIXELS)).change == 0.0
    assert effect([70_000.0, 1.0, 1.0, 1.0]).over == 1


def test_inputs_that_are_no_fp32_are_left_out() -> None:
    proto = model([node("Neg", "x", "y")], [value("x", TensorProto.DOUBLE)], [value("y", TensorProto.DOUBLE)])
    assert input_effects(load(proto), [{"x": np.ones(4)}]) == ()


# -- in fix and trace -------------------------------------------------------------------------------------------------


def clock() -> tuple[onnx.ModelProto, list[dict[str, Any]]]:
    """A harmless image, and a time of which only the last digits matter."""
    nodes = [node("Sub", "time start", "dt"), node("Sin", "dt", "s"), node("Add", "image s", "y")]
    inputs = [value("image", shape=(1, 3, 4, 4)), value("time", shape=(1,))]
    proto = model(nodes, inputs, [value("y", shape=(1, 3, 4, 4))], [weight("start", np.float32(50_000))])
    rng = np.random.default_rng(0)
    feeds = [
        {
            "image": rng.standard_normal((1, 3, 4, 4)).astype(np.float32),
            "time": np.array([50_000 + rng.uniform(0, 3)], np.float32),
        }
        for _ in range(5)
    ]
    return proto, feeds


def test_each_input_is_measured_alone() -> None:
    proto, feeds = clock()
    result = fix(load(proto), feeds, io_types=Format.FP16)
    loads = {found.name: found.ratio for found in result.measured.inputs}
    assert loads["image"] is not None and loads["image"] < 0.1
    assert loads["time"] is not None and loads["time"] > 1.0
    assert not result.met
    told = only(result.notes, NoteKind.INPUT_FINDING)
    assert (told.subject, told.values["rule"]) == ("time", "HW313")
    document = result.to_json()["io"]
    assert [entry["name"] for entry in document["inputs"]] == ["image", "time"]
    assert [entry["rule"] for entry in document["findings"]] == ["HW313"]
    assert "io" not in fix(load(proto), feeds).to_json()


def test_trace_says_it_before_anyone_asks() -> None:
    proto, feeds = clock()
    assert [(f.rule, f.where.name) for f in trace(load(proto), feeds).findings] == [("HW313", "time")]
    assert trace(load(proto), feeds, fmt=Format.BF16).findings == ()


def test_ids_end_the_job_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    onnx.save(lookup(), tmp_path / "model.onnx")
    np.savez(tmp_path / "x.npz", x=np.array([[1, 5, 29_001, 3]], np.float32))
    halfwise = CommandLine(monkeypatch, capsys)
    words = ["fix", tmp_path / "model.onnx", "--inputs", tmp_path / "x.npz", "--out", tmp_path / "out"]
    ended = halfwise(*words, "--io-types", "fp16")
    assert (ended.code, ended.out) == (2, "")
    says(ended.told)
    assert not (tmp_path / "out").exists()
    assert halfwise(*words).code == 0


# -- layouts ----------------------------------------------------------------------------------------------------------

TRT = Target.parse("trt-10.9@t4")


def test_a_layout_is_for_what_has_channels() -> None:
    proto, _ = clock()
    layouts = layouts_of(load(proto), TRT, Format.FP16, ["hwc8"])
    assert (layouts["image"], layouts["time"], layouts["y"]) == (("hwc8",), ("chw",), ("hwc8",))
    padded = layouts.notes[0]
    assert (padded.kind, padded.subject) == (NoteKind.CHANNELS_PADDED, "image")
    assert (padded.values["layout"], padded.values["channels"], padded.values["padded"]) == ("hwc8", 3, 8)
    some = layouts_of(load(proto), TRT, Format.FP16, ["image=chw+chw32"])
    assert (some["image"], some["y"]) == (("chw", "chw32"), ("chw",))
    assert not layouts_of(load(proto), TRT, Format.FP16, [])
    assert layouts_of(load(proto), TRT, Format.FP32, ["hwc"])["image"] == ("hwc",)


@pytest.mark.parametrize(
    ("text", "io", "target"),
    [
        ("hwc9", Format.FP16, TRT),
        ("chw16", Format.FP32, TRT),
        ("time=hwc8", Format.FP16, TRT),
        ("imag=hwc8", Format.FP16, TRT),
        ("image=chw", Format.FP32, Target.parse("ort-cuda")),
    ],
)
def test_layouts_that_cannot_be(text: str, io: Format, target: Target, says: Says) -> None:
    with says.raises(InputError):
        layouts_of(load(clock()[0]), target, io, [text])


def test_a_layout_of_a_newer_version() -> None:
    layouts = layouts_of(load(clock()[0]), Target.parse("trt-11.4@l4"), Format.FP16, ["y=cdhw32"])
    assert layouts["y"] == ("cdhw32",)


def test_the_command_for_trtexec_states_them(tmp_path: Path) -> None:
    proto, feeds = clock()
    onnx.save(proto, tmp_path / "model.onnx")
    given = tmp_path / "model.onnx"
    fix(given, feeds, out=tmp_path / "out", target="trt-8.6@t4", io_types=Format.FP16, io_formats=["hwc8"])
    command = (tmp_path / "out" / "model.trtexec.sh").read_text()
    assert "--inputIOFormats=fp16:hwc8,fp16:chw --outputIOFormats=fp16:hwc8" in command


@pytest.mark.parametrize(("target", "held"), [("trt-8.6@t4", "fp16"), ("trt-11.0@l4", None)])
def test_the_script_and_the_plan_have_them(tmp_path: Path, target: str, held: str | None, says: Says) -> None:
    proto, feeds = clock()
    onnx.save(proto, tmp_path / "model.onnx")
    given = tmp_path / "model.onnx"
    first = fix(given, feeds, out=tmp_path / "out", target=target, io_types=Format.FP16, io_formats=["hwc8"])
    assert first.plan_path is not None
    plan = read_plan(first.plan_path)
    layouts = {value.name: ("hwc8",) for value in (proto.graph.input[0], proto.graph.output[0])}
    assert plan.io_formats == layouts and plan == replace(first.plan, tolerance=plan.tolerance, nodes=plan.nodes)
    again = fix(given, feeds, out=tmp_path / "again", plan=plan)
    for result in (first, again):
        script = result.deploy_files.script
        assert script is not None and NoteKind.NO_SCRIPT not in [note.kind for note in result.notes]
        text = script.read_text()
        settings = json.loads(text[text.index('{\n  "target"') : text.index('\n""")')])
        said = {name: each for name, each in settings["model_io"].items() if each["layouts"] != ["chw"]}
        assert said == {name: {"type": held, "layouts": ["hwc8"]} for name in layouts}
    assert fix(given, feeds, plan=plan, target="onnx").plan.io_formats == {}  # ONNX Runtime has none
    with says.raises(InputError):
        fix(given, feeds, plan=replace(plan, io_formats={"nope": ("hwc8",)}))


def test_layouts_of_a_plan_are_lists(tmp_path: Path, says: Says) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"schema": "halfwise.plan/1", "fp32_nodes": [], "io_formats": {"x": "hwc8"}}))
    with says.raises(InputError):
        read_plan(path)
