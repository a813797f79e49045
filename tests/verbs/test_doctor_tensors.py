"""Doctor and what trtexec saves of an engine's inside and ends: debug tensors, raw bindings, files that flags name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper, save

import halfwise
from halfwise.core.english import say
from halfwise.core.files.kinds import FileKind
from halfwise.core.finding import Finding
from halfwise.core.notes import NoteKind
from halfwise.model.model import load
from halfwise.verbs.doctor import Diagnosed, doctor
from halfwise.verbs.runners import EmulatedRunner
from tests.support.media import image, sound
from tests.support.messages import kinds
from tests.support.trtexec_tensors import binding_file, save_bindings, save_tensors

Tensors = dict[str, NDArray[Any]]
_LONG = "/blocks.11/" + "very_long_module_name/" * 9 + "Add_output_0"


@pytest.fixture
def case(tmp_path: Path) -> Path:
    """A folder with a model of four layers, and three samples; names as exporters write them, one of them long."""
    draw = np.random.default_rng(5)
    weights = [numpy_helper.from_array(draw.normal(size=(8, 8)).astype(np.float32) / 3, f"w{index}") for index in "01"]
    nodes = [
        helper.make_node("MatMul", ["x:0", "w0"], ["/fc/MatMul_output_0"], name="/fc/MatMul"),
        helper.make_node("Tanh", ["/fc/MatMul_output_0"], ["/act/Tanh_output_0"], name="/act/Tanh"),
        helper.make_node("Add", ["/act/Tanh_output_0", "x:0"], [_LONG], name="/Add"),
        helper.make_node("MatMul", [_LONG, "w1"], ["/head/out"], name="/head/MatMul"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 8]) for name in ("x:0", "/head/out")]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], weights)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "net.onnx")
    (tmp_path / "samples").mkdir()
    for index in range(3):
        np.savez(tmp_path / "samples" / f"{index}.npz", **{"x:0": draw.normal(size=(2, 8)).astype(np.float32)})
    return tmp_path


def engine(case: Path, sample: int = 1, narrow: bool = True) -> Tensors:
    """Every tensor, as an FP16 engine has it on one sample."""
    model = load(case / "net.onnx")
    names = tuple(value.name or "" for node in model.ir.graph for value in node.outputs)
    runner = EmulatedRunner(replace(model, watched=names), narrow=narrow)
    answer = runner.run(0, dict(np.load(case / "samples" / f"{sample}.npz")))
    return {name: answer[name].astype(np.float16 if narrow else np.float32) for name in names}


def of(result: Diagnosed, rule: str) -> Finding:
    (found,) = [finding for finding in result.findings if finding.rule == rule]
    return found


FORMATS = [("summary",), ("numpy",), ("raw",), ("summary", "numpy", "raw")]


@pytest.mark.parametrize("formats", FORMATS, ids="+".join)
def test_the_first_tensor_that_fp16_does_not_explain_is_named(case: Path, formats: tuple[str, ...]) -> None:
    tensors = engine(case)
    for name in (_LONG, "/head/out"):
        tensors[name] = tensors[name] * np.float16(1.25)
    save_tensors(case, tensors, formats, runs=2)
    result = doctor(case)
    departs = of(result, "HW618")
    assert (departs.where.name, departs.numbers["node"]) == (_LONG, "/Add")
    assert departs.numbers["error"] == pytest.approx(0.25, rel=0.05) and departs.numbers["before"] < 0.01
    assert result.next.command == f"halfwise fix {case}/net.onnx --inputs {case}/samples --out out/"


@pytest.mark.parametrize("formats", FORMATS, ids="+".join)
def test_tensors_of_plain_fp16_are_acquitted(case: Path, formats: tuple[str, ...]) -> None:
    save_tensors(case, engine(case), formats)
    fine = of(doctor(case), "HW619")
    assert fine.numbers["count"] == 4 and fine.numbers["error"] < 0.01


@pytest.mark.parametrize("formats", FORMATS, ids="+".join)
def test_the_first_tensor_that_is_not_finite_is_named(case: Path, formats: tuple[str, ...]) -> None:
    tensors = engine(case)
    tensors["/act/Tanh_output_0"][0, 3] = np.nan
    tensors["/head/out"][:] = np.inf
    save_tensors(case, tensors, formats)
    broken = of(doctor(case), "HW617")
    assert broken.where.name == "/act/Tanh_output_0"
    assert (broken.numbers["count"], broken.numbers["total"]) == (2, 4)


def test_a_summary_alone_tells_what_is_not_finite(case: Path) -> None:
    tensors = engine(case)
    tensors["/act/Tanh_output_0"][0, 3] = np.inf
    (case / "dump").mkdir()
    save_tensors(case / "dump", tensors, ["summary"])
    result = halfwise.doctor(case / "dump" / "tensor_summary.json")
    assert [each.kind for each in result.files] == [FileKind.TENSOR_SUMMARY]
    assert of(result, "HW617").where.name == "/act/Tanh_output_0"
    assert result.next.why.kind is NoteKind.NEXT_MODEL


def test_tensors_of_other_inputs_are_told(case: Path) -> None:
    """Without --loadInputs trtexec runs on random values."""
    np.savez(case / "samples" / "9.npz", **{"x:0": np.random.default_rng(77).normal(size=(2, 8)).astype(np.float32)})
    save_tensors(case, engine(case, 9), ["numpy"])
    (case / "samples" / "9.npz").unlink()
    result = doctor(case)
    assert kinds(result.notes) == [NoteKind.TENSORS_OF_OTHERS]
    assert not {"HW618", "HW619"} & {each.rule for each in result.findings}


def test_a_folder_of_numbered_inputs_stays_one(case: Path) -> None:
    (case / "numbered").mkdir()
    for index, name in enumerate(("dog", "cat")):
        np.save(case / "numbered" / f"{index:04}_{name}.npy", np.ones((2, 8), np.float32))
    result = doctor(case / "net.onnx", case / "numbered")
    assert [each.rule for each in result.findings] == ["HW614"]


@pytest.mark.parametrize("scale", [1.0, 1.5])
def test_dumped_bindings_are_inputs_and_answers(case: Path, scale: float) -> None:
    """Beside other files, and with a name that is no file's."""
    feed = dict(np.load(case / "samples" / "1.npz"))
    save_bindings(case, feed, {"/head/out": engine(case)["/head/out"] * np.float16(scale)})
    result = doctor(case / "net.onnx", *case.glob("*.raw"))
    assert of(result, "HW616" if scale == 1.0 else "HW615").numbers["load"] < 1000
    assert result.next.command.split("--inputs ")[1].startswith(f"x:0:{case}/x_0.input.2.8.fp32.raw")


def test_verify_and_bindings_by_their_safe_names(case: Path) -> None:
    for index in range(3):
        (case / "engine" / str(index)).mkdir(parents=True)
        save_bindings(case / "engine" / str(index), {}, {"/head/out": engine(case, index)["/head/out"]})
    assert halfwise.verify(case / "net.onnx", case / "engine", case / "samples").met


def test_half_inputs_that_were_dumped_are_widened(case: Path) -> None:
    feed = dict(np.load(case / "samples" / "1.npz"))
    save_bindings(case, {"x:0": feed["x:0"].astype(np.float16)}, {})
    assert (case / "x_0.input.2.8.fp16.raw").is_file()
    assert of(doctor(case / "net.onnx", case / "x_0.input.2.8.fp16.raw"), "HW614")


def test_long_names_lose_their_middle(case: Path) -> None:
    name = binding_file(_LONG, np.zeros((2, 8), np.float32), "output")
    assert len(name) <= 150 and "..." in name and name.endswith(".output.2.8.fp32.raw")


def test_files_that_the_command_names_are_read(case: Path) -> None:
    tensors = engine(case)
    np.load(case / "samples" / "1.npz")["x:0"].tofile(case / "feed.bin")
    (tensors["/act/Tanh_output_0"] * np.float16(2)).tofile(case / "tanh.raw")
    tensors["/fc/MatMul_output_0"].tofile(case / "fc.dat")
    (case / "run.sh").write_text(
        "trtexec --onnx=net.onnx --fp16 --markDebug=/fc/MatMul_output_0,/act/Tanh_output_0 --loadInputs='x:0':feed.bin "
        "--saveDebugTensors=/fc/MatMul_output_0:out/fc.dat,/act/Tanh_output_0:out/tanh.raw\n"
    )
    result = doctor(case / "net.onnx", case / "run.sh", case / "feed.bin", case / "tanh.raw", case / "fc.dat")
    assert of(result, "HW618").where.name == "/act/Tanh_output_0"
    assert f"x:0:{case}/feed.bin" in result.next.command


def test_a_summary_that_is_none_is_told(case: Path) -> None:
    (case / "tensor_summary.json").write_text('{"metadata": {}, "tensors": [{"name": "x"}]}')
    notes = doctor(case).notes
    assert kinds(notes) == [NoteKind.FILE_NOT_READ] and say(notes[0]).count("tensor_summary.json") == 1


HUGE = b"{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999999, 8), }\n"
DAMAGED: dict[str, Callable[[Path], object]] = {
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "text": lambda path: np.save(path, np.array(["x"] * 4)),
    "objects": lambda path: np.save(path, np.array([{}] * 4, dtype=object), allow_pickle=True),
    "huge": lambda path: path.write_bytes(np.lib.format.magic(1, 0) + len(HUGE).to_bytes(2, "little") + HUGE),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_tensor_is_told_and_the_others_are_compared(case: Path, damage: str) -> None:
    save_tensors(case, engine(case), ("numpy",))
    assert of(doctor(case), "HW619").numbers["count"] == 4
    DAMAGED[damage](min(case.glob("0*.npy")))
    result = doctor(case)
    assert of(result, "HW619").numbers["count"] == 3 and kinds(result.notes) == [NoteKind.FILE_NOT_READ]
    assert say(result.notes[0]).count(min(case.glob("0*.npy")).name) == 1


@pytest.mark.parametrize("size", [64, 60])
def test_raw_values_of_the_size_of_the_only_input_are_inputs(case: Path, size: int) -> None:
    (case / "net.bin").write_bytes(np.zeros(size, np.uint8).tobytes())
    result = doctor(case / "net.onnx", case / "net.bin")
    assert (f"x:0:{case}/net.bin" in result.next.command) is (size == 64)


def pictured(path: Path, name: str, shape: list[int]) -> Path:
    node = helper.make_node("Tanh", [name], ["y"], name="/Tanh")
    ends = [helper.make_tensor_value_info(each, TensorProto.FLOAT, shape) for each in (name, "y")]
    graph = helper.make_graph([node], "net", ends[:1], ends[1:])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_images_and_sound_are_inputs(tmp_path: Path) -> None:
    for folder in ("pictures", "sounds"):
        (tmp_path / folder).mkdir()
    image(tmp_path / "pictures" / "0.png", np.full((9, 7, 3), 128))
    sound(tmp_path / "sounds" / "0.wav", np.linspace(-1, 1, 600), 16_000)
    seeing = doctor(pictured(tmp_path / "sees.onnx", "image", [1, 3, 8, 8]), tmp_path / "pictures")
    hearing = doctor(pictured(tmp_path / "hears.onnx", "wave", [1, 600]), tmp_path / "sounds")
    assert kinds(seeing.notes) == [NoteKind.IMAGES_READ] and kinds(hearing.notes) == [NoteKind.AUDIO_READ]
    assert f"--images {tmp_path}/pictures " in seeing.next.command
    assert f"--audio {tmp_path}/sounds " in hearing.next.command


def test_a_picture_beside_a_model_that_takes_none_is_left_alone(case: Path) -> None:
    image(case / "screenshot.png", np.full((9, 7, 3), 128))
    result = doctor(case / "net.onnx", case / "screenshot.png")
    assert kinds(result.notes) == [NoteKind.NOT_RUN_HERE] and "--inputs samples/" in result.next.command
