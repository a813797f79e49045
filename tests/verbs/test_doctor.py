"""The five articles' files, and any other mix: what is named, in the first lines, and the one next command."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import halfwise
from halfwise.core.english import say
from halfwise.core.errors import InputError
from halfwise.core.files.kinds import FileKind
from halfwise.core.finding import Finding
from halfwise.core.notes import NoteKind
from halfwise.model.model import load
from halfwise.report.doctor import show_doctor
from halfwise.report.terminal import Terminal
from halfwise.verbs.doctor import Diagnosed, doctor
from halfwise.verbs.doctor.culprits import find_culprits
from halfwise.verbs.doctor.measured import measure
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.runners import EmulatedRunner
from tests.models.build import model, node, value, weight
from tests.models.quantised import layers, quantised, samples
from tests.models.zoo import SHAPES, cnn_tiny_weights, norm_log_head
from tests.support import articles
from tests.support.command_line import CommandLine, save
from tests.support.documents import check
from tests.support.foreign_files import FILES, engine
from tests.support.messages import kinds
from tests.support.says import Says


@pytest.fixture
def halfwise_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def first_lines(result: Diagnosed, capsys: pytest.CaptureFixture[str]) -> str:
    terminal = Terminal()
    show_doctor(terminal, result)
    terminal.flush()
    return "\n".join(capsys.readouterr().out.splitlines()[:10])


def of(result: Diagnosed, rule: str) -> Finding:
    (found,) = [finding for finding in result.findings if finding.rule == rule]
    return found


# -- the five articles -------------------------------------------------------------------------------------------------


def test_tiny_weights_are_acquitted_and_the_input_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = doctor(articles.subnormal_weights(tmp_path))
    assert result.findings[0].rule == "HW312" and result.findings[0].where.name == "readings"
    assert of(result, "HW611").numbers["nodes"] == ["/embed/MatMul"]
    warned = of(result, "HW607")
    assert (warned.severity, warned.numbers) == ("info", {"weights": 115, "names": []})
    assert "readings" in first_lines(result, capsys)
    assert result.next.command.endswith("--target trt-10.0.1+weak@t4")


def test_a_layernorm_that_a_region_swallowed_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = doctor(articles.swallowed_layernorm(tmp_path))
    lost = result.findings[0]
    assert (lost.rule, lost.severity) == ("HW605", "error")
    assert set(lost.numbers["nodes"]) >= {"/norm/Pow", "/norm/ReduceMean_1"}
    assert lost.note and lost.note.kind is NoteKind.NORM_SWALLOWED
    assert {"TRT-LN-MYELIN-86"} <= {f.where.name for f in result.findings if f.rule == "HW606"}
    assert "LayerNorm" in first_lines(result, capsys) and "/norm/Pow" in first_lines(result, capsys)


def test_a_kernel_that_is_wrong_in_this_version_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = doctor(articles.fused_attention(tmp_path))
    defect = of(result, "HW606")
    assert (defect.severity, defect.numbers["id"], defect.numbers["fixed_in"]) == ("error", "TRT-MHA-V2-1000", "10.0.1")
    assert "_gemm_mha_v2" in first_lines(result, capsys)


def test_attention_that_is_right_in_parts_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = doctor(articles.tracker(tmp_path))
    error = of(result, "HW612")
    assert error.numbers["nodes"][0] == "/filter_predictor/self_attn/MatMul"
    assert error.numbers["module"] == "/filter_predictor/self_attn"
    assert 2 < error.numbers["load"] < 10
    assert "/filter_predictor/self_attn" in first_lines(result, capsys)


def test_pixels_that_a_relative_error_hides_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = doctor(articles.box_regression(tmp_path))
    coarse = of(result, "HW613")
    assert (coarse.where.name, coarse.numbers["step"]) == ("boxes", 4.0)
    assert 3 < coarse.numbers["change"] < 8 and coarse.numbers["error"] < 0.001
    assert set(coarse.numbers["nodes"]) == {"/box/Add", "/box/Mul", "/box/Sub"}
    assert of(result, "HW601").numbers["names"] == ["bbox_head.*"]
    assert "/box/Add" in first_lines(result, capsys)
    assert "--tol 'boxes:max_abs<=0.5'" in result.next.command


# -- other mixes -------------------------------------------------------------------------------------------------------


def test_a_model_that_fp16_keeps_is_acquitted(halfwise_cli: CommandLine, tmp_path: Path) -> None:
    model, inputs = save(SHAPES["healthy_mlp"](), tmp_path)
    ended = halfwise_cli("doctor", model, inputs, "--json")
    assert ended.code == 0
    check(ended.document, "doctor")
    assert [finding["rule"] for finding in ended.document["findings"]] == ["HW614"]
    assert ended.document["next"]["message"]["kind"] == "next-proof"


def test_a_version_that_takes_strongly_typed_networks_only_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """As `log` tells it; a version that also takes weakly typed ones says nothing of it."""
    logs = Path(__file__).parents[1] / "data" / "logs"
    result = doctor(logs / "strong_11_failure.log")
    assert [note.subject for note in result.notes if note.kind is NoteKind.STRONG_ONLY] == ["TensorRT 11.2.1"]
    assert "stated, strongly typed" in first_lines(result, capsys)
    weak = doctor(logs / "strategies_10.16_weak.log")
    assert NoteKind.STRONG_ONLY not in kinds(weak.notes) and "strongly" not in first_lines(weak, capsys)


@pytest.mark.parametrize(
    ("shape", "seen", "rule", "beside"),
    [
        ("healthy_mlp", "fp32", "HW616", None),
        ("healthy_mlp", "scaled", "HW615", NoteKind.SAVED_ABOVE_FP16),
        ("mask_minus_1e9", "fp16", "HW615", NoteKind.SAVED_AS_FP16),
    ],
)
def test_what_an_engine_answered_is_compared(
    tmp_path: Path, shape: str, seen: str, rule: str, beside: NoteKind | None
) -> None:
    model, inputs = save(SHAPES[shape](), tmp_path)
    runner = EmulatedRunner(load(model), narrow=seen == "fp16")
    (tmp_path / "engine").mkdir()
    feeds = [dict(np.load(path)) for path in sorted(Path(inputs).glob("*.npz"))]
    for index, feed in enumerate(feeds):
        answer = {name: array * (1.2 if seen == "scaled" else 1.0) for name, array in runner.run(index, feed).items()}
        np.savez(tmp_path / "engine" / f"{index}.npz", **answer)
    found = of(doctor(model, inputs, tmp_path / "engine"), rule)
    assert found.note is not None
    assert (found.note.values["beside"].kind if beside else None) is beside
    fewer = doctor(model, inputs, tmp_path / "engine" / "0.npz")
    assert kinds(fewer.notes) == [NoteKind.SAVED_NOT_COMPARED]


def test_overflows_are_named_in_the_order_of_execution(tmp_path: Path) -> None:
    names = [f"/branch_{index}/Mul" for index in range(12)]
    nodes = [helper.make_node("Mul", ["x", "big"], [name[:-4]], name=name) for name in names]
    total = helper.make_node("Sum", [name[:-4] for name in names], ["y"], name="/Sum")
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 4]) for name in "xy"]
    big = onnx.numpy_helper.from_array(np.float32([1e5]), "big")
    graph = helper.make_graph([*nodes, total], "branches", ends[:1], ends[1:], [big])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(proto, tmp_path / "branches.onnx")
    np.savez(tmp_path / "0.npz", x=np.float32([[1, 2, 3, 4]]))
    found = of(doctor(tmp_path / "branches.onnx", tmp_path / "0.npz"), "HW611")
    assert found.numbers["nodes"] == names[:3]


def test_a_node_that_reads_the_shape_of_an_input_overflows_nowhere(tmp_path: Path) -> None:
    nodes = [node("Shape", "x", "s"), node("Sub", "x far", "h"), node("Reshape", "h s", "y")]
    proto = model(nodes, [value("x", shape=(1, 4))], [value("y", shape=(1, 4))], [weight("far", np.float32([1e5]))])
    onnx.save(proto, tmp_path / "far.onnx")
    np.savez(tmp_path / "0.npz", x=np.float32([[1e5, 1.1e5, 1.2e5, 1.3e5]]))
    found = of(doctor(tmp_path / "far.onnx", tmp_path / "0.npz"), "HW611")
    assert found.numbers["nodes"] == [load(tmp_path / "far.onnx").nodes[1].name]


def test_outputs_without_inputs_are_told_to_need_them(tmp_path: Path) -> None:
    model, _ = save(SHAPES["healthy_mlp"](), tmp_path)
    name = load(model).output_names[0]
    told = [{"name": name, "dimensions": "1x2", "values": [1.0, 2.0]}]
    (tmp_path / "out.json").write_text(json.dumps(told))
    result = doctor(model, tmp_path / "out.json")
    assert kinds(result.notes) == [NoteKind.SAVED_NOT_COMPARED]
    assert "out.json" not in result.next.command


def test_the_last_step_is_told_when_the_culprits_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int] | str] = []
    monkeypatch.setattr(
        "halfwise.verbs.doctor.measured.find_culprits", lambda *given: told.append("culprits") or find_culprits(*given)
    )
    zoo = norm_log_head()
    measure(load(zoo.model), zoo.inputs[:2], lambda done, total: told.append((done, total)))
    assert told == [(1, 5), (2, 5), (3, 5), (4, 5), "culprits", (5, 5)]


def test_a_link_whose_file_is_gone_stops_no_folder(tmp_path: Path) -> None:
    save(SHAPES["healthy_mlp"](), tmp_path)
    (tmp_path / "weights.bin").symlink_to("gone")
    result = doctor(tmp_path)
    assert FileKind.MISSING in {each.kind for each in result.files}
    assert any(each.kind is FileKind.ONNX for each in result.files)
    with pytest.raises(InputError, match="no such file"):
        doctor(tmp_path / "weights.bin")


@pytest.mark.parametrize("content", [b"", bytes(range(256)) * 9])
def test_a_damaged_model_is_to_be_copied_again(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.onnx").write_bytes(content)
    following = doctor(tmp_path / "model.onnx").next
    assert following.why.kind is NoteKind.NEXT_ONNX
    assert "halfwise" not in following.command


def test_a_model_that_lacks_something_is_not_to_be_exported_again(tmp_path: Path, says: Says) -> None:
    """What it lacks is in the note."""
    path, _ = save(SHAPES["healthy_mlp"](), tmp_path)
    proto = onnx.load(path)
    onnx.save(proto, path, save_as_external_data=True, size_threshold=0, location="weights.bin")
    (tmp_path / "weights.bin").unlink()
    result = doctor(path)
    says(say(result.notes[0]))
    says(result.next.command)


def test_an_image_by_the_name_of_a_model_gets_its_way_on(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    assert doctor(tmp_path / "model.onnx").next.command == "give its folder with --images"


def test_a_folder_is_opened(halfwise_cli: CommandLine, tmp_path: Path, says: Says) -> None:
    save(SHAPES["healthy_mlp"](), tmp_path)
    (tmp_path / "net.pt").write_bytes(FILES["checkpoint"][1])
    ended = halfwise_cli("doctor", tmp_path)
    assert ended.code == 0
    says(ended.out, "a folder of", "a PyTorch checkpoint")


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for name, (_, _, kind) in FILES.items() if name in ("checkpoint", "tflite", "lfs pointer", "page")],
)
def test_what_is_no_model_yet_gets_its_way_on(name: str, kind: FileKind, tmp_path: Path) -> None:
    path = tmp_path / FILES[name][0]
    path.write_bytes(FILES[name][1])
    result = halfwise.doctor(path)
    assert result.files[0].kind is kind and result.next.command == result.files[0].way
    assert result.next.why.kind is NoteKind.NEXT_ONNX


def test_steps_of_quantisers_are_told_and_no_node_is_blamed() -> None:
    """FP32 misses the tolerance, too, once what is quantised moves by less than TF32 rounds."""
    wide = load(quantised(layers(8, 64), step=0.05))
    found = measure(wide, samples(64), lambda done, total: None).findings
    assert [each.rule for each in found] == ["HW620"]


def test_what_stands_before_a_plugin_is_cut_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime hands TensorRT's plugins to TensorRT only, so that nothing here runs the whole model."""
    nodes = [
        node("Mul", "x x", "boxes"),
        node("ReduceMax", "boxes", "scores", axes=[2]),
        node("EfficientNMS_TRT", "boxes scores", "n b s c", plugin_version="1"),
    ]
    outputs = [value("n", TensorProto.INT32), value("b"), value("s"), value("c", TensorProto.INT32)]
    onnx.save(model(nodes, [value("x", shape=(1, 8, 4))], outputs, []), tmp_path / "det.onnx")
    np.savez(tmp_path / "0.npz", x=np.ones((1, 8, 4), np.float32))
    assert [each.rule for each in halfwise.scan(tmp_path / "det.onnx").findings] == ["HW303"]
    found = doctor([tmp_path / "det.onnx", tmp_path / "0.npz"])
    assert found.next.why.kind is NoteKind.NEXT_CUT
    monkeypatch.chdir(tmp_path)
    subprocess.run([sys.executable, *shlex.split(found.next.command)[1:]], check=True)
    assert fix(tmp_path / "det.part.onnx", [{"x": np.ones((1, 8, 4), np.float32)}]).met


def test_a_plugin_in_a_branch_is_not_cut_out(tmp_path: Path) -> None:
    """The main graph has no tensor of that name, which onnx.utils.extract_model would not find."""
    inner = [node("Mul", "x x", "boxes"), node("EfficientNMS_TRT", "boxes", "then")]
    branch = helper.make_graph(inner, "branch", [], [value("then")])
    other = helper.make_graph([node("Neg", "x", "else")], "other", [], [value("else")])
    nodes = [node("If", "taken", "y", then_branch=branch, else_branch=other)]
    inputs = [value("x", shape=(1, 8)), value("taken", TensorProto.BOOL, ())]
    onnx.save(model(nodes, inputs, [value("y")], []), tmp_path / "det.onnx")
    assert doctor([tmp_path / "det.onnx"]).next.why.kind is NoteKind.NEXT_SCAN


def test_an_engine_alone_leads_to_its_layers(tmp_path: Path) -> None:
    (tmp_path / "net.engine").write_bytes(engine(10, 0, 1, 6))
    result = doctor(tmp_path / "net.engine")
    assert result.next.why.kind is NoteKind.NEXT_LAYERS and "--exportLayerInfo=" in result.next.command
    assert str(result.target) == "trt-10.0.1"


def test_a_log_alone_is_read_and_leads_to_its_model(tmp_path: Path) -> None:
    log = Path(__file__).parents[1] / "data" / "logs" / "weights_10.0_trtexec.log"
    result = doctor([log])
    assert {"HW701", "HW702"} <= {finding.rule for finding in result.findings}
    assert result.next.why.kind is NoteKind.NEXT_MODEL and not result.good


def test_weights_that_do_harm_are_named(tmp_path: Path) -> None:
    model, _ = save(cnn_tiny_weights("tensors"), tmp_path)
    (tmp_path / "build.log").write_text(
        "&&&& RUNNING TensorRT.trtexec [TensorRT v100001] # trtexec --onnx=m.onnx --fp16\n"
        "[02/03/2025-10:11:12] [W] [TRT] - 3 weights are affected by this issue: Detected subnormal FP16 values.\n"
    )
    warned = of(doctor(model, tmp_path / "build.log"), "HW607")
    assert warned.severity == "warning" and warned.numbers["names"]


def test_the_model_of_the_command_is_examined(tmp_path: Path) -> None:
    small, large = SHAPES["healthy_mlp"]().model, norm_log_head().model
    onnx.save(small, tmp_path / "small.onnx")
    onnx.save(large, tmp_path / "large.onnx")
    (tmp_path / "build.sh").write_text("trtexec --onnx=export/small.onnx --fp16\n")
    result = doctor(tmp_path)
    assert "small.onnx" in result.next.command and kinds(result.notes) == [NoteKind.ONE_MODEL_EXAMINED]


def test_inputs_of_another_model_are_told_and_the_rest_is_done(tmp_path: Path) -> None:
    model, _ = save(SHAPES["healthy_mlp"](), tmp_path)
    np.savez(tmp_path / "other.npz", elsewhere=np.ones(3, np.float32))
    result = doctor(model, tmp_path / "other.npz")
    assert kinds(result.notes) == [NoteKind.NOT_RUN_HERE] and "halfwise fix" in result.next.command


def test_a_file_that_cannot_be_read_is_told_and_the_rest_is_done(tmp_path: Path) -> None:
    model, _ = save(SHAPES["healthy_mlp"](), tmp_path)
    (tmp_path / "layers.json").write_text(json.dumps({"Layers": []}))
    result = doctor(model, tmp_path / "layers.json")
    assert kinds(result.notes) == [NoteKind.FILE_NOT_READ] and not result.good
    assert say(result.notes[0]).count("layers.json") == 1


@pytest.mark.parametrize("left", [150, 0])
def test_a_model_that_is_cut_off_is_a_problem(left: int, tmp_path: Path) -> None:
    model, _ = save(SHAPES["healthy_mlp"](), tmp_path)
    assert doctor(model).good
    model.write_bytes(model.read_bytes()[:left])
    assert not doctor(model).good


def test_weights_that_are_cut_off_are_a_problem(tmp_path: Path) -> None:
    proto = SHAPES["healthy_mlp"]().model
    path, data = tmp_path / "model.onnx", tmp_path / "weights"
    onnx.save(proto, str(path), save_as_external_data=True, location=data.name, size_threshold=0)
    assert doctor(path).good
    data.write_bytes(data.read_bytes()[:100])
    assert not doctor(path).good


@pytest.mark.parametrize("words", [(), ("nowhere.onnx",), ("empty",)])
def test_nothing_to_look_at_is_one_line(
    words: tuple[str, ...],
    says: Says,
    halfwise_cli: CommandLine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    ended = halfwise_cli("doctor", *words)
    assert (ended.code, ended.out) == (2, "")
    says(ended.told)


def test_python_is_told_what_it_gave_wrongly() -> None:
    with pytest.raises(InputError, match="5 is no path"):
        doctor(5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="give files or folders"):
        doctor()
