"""The benchmarks' own parts: the strict judge gives exact answers, tables say what was measured, options work."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks import growth, main_job
from benchmarks.cases import FOLDS, REAL, Case, load_case
from benchmarks.contest import OURS, PEERS, TOOLS, Entry, ask, markdown
from benchmarks.peers.task import NOT_INSTALLED, Answer, Task, load_feeds
from benchmarks.strict import Census, Errors, InvalidModel, StrictSession, census, judge, rel_l2
from tests.support.says import Says

FLOAT, HALF, BOOL, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BOOL, TensorProto.INT64


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, int],
    outputs: dict[str, int],
    weights: dict[str, np.ndarray] | None = None,
    shape: tuple[int | str, ...] = ("n",),
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind, shape) for name, kind in inputs.items()],
        [helper.make_tensor_value_info(name, kind, shape) for name, kind in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def cast(source: str, target: str, kind: int) -> onnx.NodeProto:
    return helper.make_node("Cast", [source], [target], to=kind)


def squared(kind: int) -> onnx.ModelProto:
    """x * x * w, where the products are of the type `kind`."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    nodes = [
        cast("x", "h", kind),
        helper.make_node("Mul", ["h", "h"], ["s"], "square"),
        helper.make_node("Mul", ["s", "w"], ["p"], "scale"),
        cast("p", "y", FLOAT),
    ]
    return model(nodes, {"x": FLOAT}, {"y": FLOAT}, {"w": np.array(2.0**-10, dtype)})


X = np.array([1 + 2.0**-10, 300.0, 2.0**-13], dtype=np.float32)


def test_an_fp16_tensor_is_rounded_once_behind_its_node() -> None:
    (y,) = StrictSession(squared(HALF)).run({"x": X})
    assert y.dtype == np.float32
    assert y.tolist() == [(1 + 2.0**-9) * 2.0**-10, np.inf, 0.0]  # 2^-26 is below the smallest subnormal


def test_an_fp32_tensor_is_not_rounded() -> None:
    (y,) = StrictSession(squared(FLOAT)).run({"x": X})
    assert y.tolist() == (X * X * np.float32(2.0**-10)).tolist()


def test_fp16_inputs_and_outputs_are_carried_in_fp32() -> None:
    typed = model([helper.make_node("Neg", ["x"], ["y"])], {"x": HALF}, {"y": HALF})
    (y,) = StrictSession(typed).run({"x": np.array([1 + 2.0**-12, 65536.0], dtype=np.float32)})
    assert (y.dtype, y.tolist()) == (np.float32, [-1.0, -np.inf])


def test_constants_and_bodies_are_rounded_too() -> None:
    constant = numpy_helper.from_array(np.array([3.0], np.float16), "c")

    def branch(name: str, op: str) -> onnx.GraphProto:
        nodes = [
            helper.make_node("Constant", [], [f"{name}_c"], value=constant),
            helper.make_node(op, ["h", f"{name}_c"], [f"{name}_y"]),
        ]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", HALF, ["n"])])

    nodes = [
        cast("x", "h", HALF),
        helper.make_node("If", ["which"], ["i"], then_branch=branch("a", "Div"), else_branch=branch("b", "Mul")),
        cast("i", "y", FLOAT),
    ]
    typed = model(nodes, {"x": FLOAT, "which": BOOL}, {"y": FLOAT})
    typed.graph.input[1].type.tensor_type.ClearField("shape")
    typed.graph.input[1].type.tensor_type.shape.SetInParent()
    x = np.array([1.0], dtype=np.float32)
    (y,) = StrictSession(typed).run({"x": x, "which": np.array(True)})
    assert y.tolist() == [float(np.float16(np.float32(1) / np.float32(3)))]


def test_census_counts_what_works_in_fp32_and_no_casts() -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "flat"], ["r"]),
        helper.make_node("Exp", ["r"], ["e"]),
        cast("e", "h", HALF),
        helper.make_node("Neg", ["h"], ["n"]),
        cast("n", "y", FLOAT),
        helper.make_node("Greater", ["e", "r"], ["b"]),
    ]
    typed = model(nodes, {"x": FLOAT}, {"y": FLOAT, "b": BOOL}, {"flat": np.array([-1])})
    assert census(typed) == Census(fp32=3, fp32_compute=2)
    assert census(squared(HALF)) == Census(fp32=0, fp32_compute=0)


def test_judge_takes_the_worst_input() -> None:
    exact = squared(FLOAT)
    small, large = {"x": np.array([2.0], np.float32)}, {"x": np.array([300.0], np.float32)}
    assert judge(exact, exact, [small, large]) == Errors(0.0, 1.0)
    assert judge(exact, squared(HALF), [small]).met(0.01)
    assert judge(exact, squared(HALF), [small, large]).rel_l2 == np.inf


def test_judge_refuses_what_is_no_model() -> None:
    mixed = squared(HALF)
    mixed.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array(1.0, np.float32), "w"))
    with pytest.raises(InvalidModel, match="inconsistent type"):
        judge(squared(FLOAT), mixed, [{"x": X}])


def test_a_model_in_bf16_is_judged_although_the_runtime_has_no_kernel_for_it() -> None:
    """x * x = 1 + 2^-6 + 2^-14 in FP32; BF16 has steps of 2^-7 there."""
    typed, feed = squared(TensorProto.BFLOAT16), {"x": np.array([1 + 2.0**-7], np.float32)}
    assert judge(squared(FLOAT), typed, [feed]).rel_l2 == pytest.approx(2.0**-14, rel=0.05)
    unknown = squared(FLOAT)
    unknown.graph.node[1].op_type = "Nothing"
    with pytest.raises(InvalidModel):
        judge(squared(FLOAT), unknown, [feed])


def test_rel_l2_forgives_only_what_fp32_has_too() -> None:
    nan, inf = np.nan, np.inf
    assert rel_l2(np.array([nan, inf, 3.0, 4.0]), np.array([nan, inf, 3.0, 4.5])) == 0.1
    assert rel_l2(np.array([1.0]), np.array([nan])) == inf
    assert rel_l2(np.array([inf]), np.array([-inf])) == inf
    assert rel_l2(np.array([0.0]), np.array([0.0])) == 0.0
    assert rel_l2(np.array([0.0]), np.array([1e-9])) == inf


def test_integers_must_agree_in_999_of_1000_places() -> None:
    assert Errors(0.0, 0.999).met(0.01)
    assert not Errors(0.0, 0.998).met(0.01)


def test_every_fold_holds_out_other_inputs() -> None:
    cases = [load_case("detr_head", Path(), fold) for fold in range(FOLDS)]
    held: list[bytes] = []
    for case in cases:
        assert case is not None and case.tolerance == 0.002
        assert len(case.given) + len(case.held_out) == 12
        held += [feed["anchors"].tobytes() for feed in case.held_out]
        assert not set(held[-len(case.held_out) :]) & {feed["anchors"].tobytes() for feed in case.given}
    assert len(set(held)) == 12


def test_a_real_model_that_is_absent_is_none(tmp_path: Path) -> None:
    assert load_case(REAL[0], tmp_path) is None


# -- asking tools -----------------------------------------------------------------------------------------------------


def tiny_case() -> Case:
    feeds = [{"x": np.array([value], np.float32)} for value in (1.0, 2.0)]
    return Case("tiny", squared(FLOAT), (feeds[0],), (feeds[1],), 0.01)


def test_a_peer_that_is_not_installed_says_so(tmp_path: Path) -> None:
    bare = tmp_path / "answer.json"
    task = tmp_path / "task.json"
    Task("model.onnx", "inputs", "out.onnx", 0.01).save(task)
    program = (
        f"import sys; sys.modules['modelopt'] = None; sys.argv[1:] = [{str(task)!r}, {str(bare)!r}];"
        "import runpy; runpy.run_module('benchmarks.peers.autocast', run_name='__main__')"
    )
    root = Path(main_job.__file__).parents[1]
    subprocess.run([sys.executable, "-c", program], cwd=root, check=True)
    answer = Answer.load(bare)
    assert answer.problem == NOT_INSTALLED
    assert main_job.row(tiny_case(), Entry("AutoCast", answer, 1))[-1] == "not installed"


def test_an_interpreter_that_is_not_there_is_no_crash(tmp_path: Path, says: Says) -> None:
    answer = ask("AutoCast", tiny_case(), str(tmp_path / "python"), 5.0, tmp_path)
    says(answer.problem)


def test_a_program_that_fails_early_is_told_by_its_last_line(tmp_path: Path, says: Says) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho starting\necho no such module >&2\nexit 3\n")
    script.chmod(0o755)
    says(ask("AutoCast", tiny_case(), str(script), 5.0, tmp_path).problem)


def test_a_call_past_its_limit_is_stopped(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\nexec sleep 60\n")
    script.chmod(0o755)
    assert ask("AutoCast", tiny_case(), str(script), 0.2, tmp_path).problem == "stopped after 0 s"


def test_tasks_and_answers_survive_their_files(tmp_path: Path) -> None:
    task = Task("m", "i", "o", 0.002)
    task.save(tmp_path / "task.json")
    assert Task(**json.loads((tmp_path / "task.json").read_text())) == task
    answer = Answer(1.5, 3.0, "met", "", {"onnx": "1"}, {"running": 0.5}, 1.25)
    (tmp_path / "answer.json").write_text(json.dumps(answer.__dict__))
    assert Answer.load(tmp_path / "answer.json") == answer


def test_feeds_hold_what_the_model_declares_only(tmp_path: Path) -> None:
    onnx.save(squared(FLOAT), tmp_path / "model.onnx")
    np.savez(tmp_path / "0.npz", x=X, other=np.zeros(2))
    (feed,) = load_feeds(Task(str(tmp_path / "model.onnx"), str(tmp_path), "", 0.01))
    assert list(feed) == ["x"] and feed["x"].tolist() == X.tolist()


# -- tables -----------------------------------------------------------------------------------------------------------


def test_a_row_says_met_missed_and_who_claims_otherwise() -> None:
    case = tiny_case()
    good = Entry("halfwise", Answer(1.234, 9.64, "met", cpu=0.7), 3, Errors(0.0014, 1.0), Census(22, 20))
    assert main_job.row(case, good) == (
        "tiny",
        "halfwise",
        "met (1.0%)",
        "1.40e-03",
        "22",
        "20",
        "9.6",
        "1.23",
        "0.70",
        "",
    )
    wrong = Entry("halfwise", Answer(1.0, 1.0, "met"), 1, Errors(0.02, 1.0), Census(0, 0))
    assert main_job.row(case, wrong)[2] == "missed (1.0%)"
    assert main_job.row(case, wrong)[-3:] == ("1.00*", "", "says met")
    broken = Entry("AutoCast", Answer(1.0, 1.0), 3, Errors(np.inf, 1.0), Census(0, 0))
    assert main_job.row(case, broken)[2:4] == ("missed (1.0%)", "not finite")


def test_a_row_without_a_model_says_why() -> None:
    late = Entry("AutoCast", Answer(seconds=300.0, problem="stopped after 300 s"), 1)
    assert main_job.row(tiny_case(), late) == (
        "tiny", "AutoCast", "no model", "", "", "", "0", "300.00*", "", "stopped after 300 s",
    )  # fmt: skip


def test_exponents_between_sizes() -> None:
    def at(nodes: int, seconds: float, running: float) -> growth.Measurement:
        split = {"running": running, "loading": 0.0}
        answer = Answer(seconds, model_runs=12.0, split=split, cpu=1.5 * seconds)
        return growth.Measurement(nodes, 0.01, Entry("halfwise", answer, 3, Errors(0.005, 1.0), Census(9, 8)))

    other = growth.Measurement(100, 0.01, Entry("AutoCast", Answer(2.0), 1))
    table = growth.table([at(100, 1.0, 0.5), at(200, 4.0, 3.0), other])
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    told = ["0.50", "9", "12.0"]
    assert cells[2] == ["100", "halfwise", *told, "1.00", "1.50", "0.50", "0.00", "0.50", "", ""]
    assert cells[3] == ["200", "halfwise", *told, "4.00", "6.00", "3.00", "0.00", "1.00", "2.00", "1.00"]
    assert cells[4] == ["100", "AutoCast", "", "", "", "2.00*", "0.00", "", "", "", "", ""]


def test_a_size_that_a_tool_did_not_master_is_named() -> None:
    answer = Answer(seconds=300.0, problem="stopped after 300 s")
    late = growth.Measurement(2941, 0.01, Entry("AutoCast", answer, 1))
    assert "stopped after 300 s" in growth.table([late])


def test_markdown_escapes_bars_and_lines_up() -> None:
    assert markdown(("a", "b"), [("x|y", "1")]).splitlines() == ["| a    | b |", "|------|---|", r"| x\|y | 1 |"]


# -- options ----------------------------------------------------------------------------------------------------------


def test_options_are_understood() -> None:
    options = main_job.parser().parse_args(
        ["--models", "encoder", "--tools", "halfwise", "AutoCast", "--limit", "9", "--every-fold"]
    )
    assert (options.models, options.tools, options.limit) == (["encoder"], ["halfwise", "AutoCast"], 9.0)
    assert options.every_fold and options.peer_python == sys.executable and options.repeats == 3
    assert growth.parser().parse_args(["--layers", "6", "24"]).layers == [6, 24]
    assert set(TOOLS) == {*OURS, *PEERS}


def test_an_unknown_model_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main_job.main(["--models", "nobody"])
    assert stopped.value.code == 2
    assert "invalid choice: 'nobody'" in capsys.readouterr().err


def test_an_absent_model_is_left_out_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main_job.main(["--models", REAL[0], "--models-folder", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert f"{REAL[0]}: left out" in shown.err and REAL[0] not in shown.out
