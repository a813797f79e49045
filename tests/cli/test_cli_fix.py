"""`halfwise fix`: its screen, its document, its exit codes, and what is left when it is interrupted."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import halfwise.cli.fix
from halfwise.verbs.fix.fix import JOURNAL
from tests.models.zoo import SHAPES, encoder
from tests.support.command_line import CommandLine, save
from tests.support.says import Says


@pytest.fixture
def halfwise_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.delenv("COLUMNS", raising=False)
    return CommandLine(monkeypatch, capsys)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return save(SHAPES["layer_norm_overflow"](), tmp_path_factory.mktemp("small"))


def test_one_json_document_with_the_keys_of_the_contract(
    halfwise_cli: CommandLine, small: tuple[Path, Path], tmp_path: Path
) -> None:
    model, inputs = small
    ended = halfwise_cli("fix", model, "--inputs", inputs, "--out", tmp_path / "out", "--json")
    document = ended.document
    assert ended.code == 0
    assert ended.err == ""
    assert document["schema"] == "halfwise.fix/1"
    assert document["status"] == "met"
    assert set(document) >= {
        "model", "target", "profile", "tolerance", "error", "fp32_nodes", "repairs", "cost", "artifacts",
    }  # fmt: skip
    assert set(document["model"]) == {"path", "sha256", "nodes", "compute_nodes"}
    assert set(document["cost"]) == {"model_runs", "seconds", "peak_rss_mb", "casts", "fp32_flops_share"}
    assert set(document["artifacts"]) >= {"onnx", "plan", "report", "trtexec"}
    assert document["tolerance"] == {"*:rel_l2": 0.01, "*:exact": 0.999}
    for name in document["error"]["fixed"]:
        assert set(document["error"]["fp16"][name]) >= {"rel_l2", "max_abs", "cosine", "nonfinite"}
        assert document["error"]["fixed"][name]["rel_l2"] <= 0.01 < document["error"]["fp16"][name]["rel_l2"]
    typed = onnx.load(document["artifacts"]["onnx"])
    onnx.checker.check_model(typed, full_check=True)
    assert set(document["fp32_nodes"]) <= {node.name for node in typed.graph.node}


def test_the_screen_tells_the_story_without_colours_where_a_program_reads(
    halfwise_cli: CommandLine, small: tuple[Path, Path], tmp_path: Path, says: Says
) -> None:
    model, inputs = small
    ended = halfwise_cli("fix", model, "--inputs", inputs, "--out", tmp_path / "out", "--repairs", "none", "--full")
    document = json.loads((tmp_path / "out" / f"{model.stem}.plan.json").read_text())
    kept = document["fp32_nodes"]
    lines = ended.out.splitlines()
    assert ended.code == 0
    assert "\x1b" not in ended.out
    assert f"with {len(kept)} of its {document['model']['nodes']} nodes" in lines[0]
    says(lines[0])
    for node in kept:
        assert any(line.lstrip().startswith(node["name"]) for line in lines)
    assert f"model   {tmp_path / 'out' / model.stem}.fp16.onnx" in lines
    assert any(line.startswith("next    halfwise verify") for line in lines)


def test_nothing_needs_fp32(halfwise_cli: CommandLine, tmp_path: Path, says: Says) -> None:
    model, inputs = save(SHAPES["healthy_mlp"](), tmp_path)
    ended = halfwise_cli("fix", model, "--inputs", inputs, "--out", tmp_path / "out")
    assert ended.code == 0
    says(ended.out, "keeps the tolerance")
    assert "kept out of FP16" not in ended.out


def test_a_tolerance_that_nothing_meets_is_exit_code_1(
    halfwise_cli: CommandLine, small: tuple[Path, Path], tmp_path: Path
) -> None:
    model, inputs = small
    ended = halfwise_cli(
        "fix", model, "--inputs", inputs, "--out", tmp_path / "out", "--tol", "*:max_abs<=1e-30", "--io-types", "fp16"
    )
    assert ended.code == 1
    assert "misses the tolerance with" in ended.out
    assert "allowed <= 1e-30" in ended.out


def test_made_up_inputs_are_said_loudly(
    halfwise_cli: CommandLine, small: tuple[Path, Path], tmp_path: Path, says: Says
) -> None:
    shown = halfwise_cli("fix", small[0], "--out", tmp_path / "out")
    says(shown.out, "SYNTHETIC INPUTS: No")
    document = halfwise_cli("fix", small[0], "--out", tmp_path / "out", "--json").document
    assert document["inputs"]["origin"] == "synthetic"
    assert "synthetic" in [message["kind"] for message in document["messages"]]


def test_a_name_cannot_write_to_the_terminal(halfwise_cli: CommandLine, tmp_path: Path) -> None:
    zoo = SHAPES["layer_norm_overflow"]()
    for node in zoo.model.graph.node:
        node.name = f"{node.name}\x1b[2J\x1b]0;owned\x07\u202e[bold]"
    model, inputs = save(zoo, tmp_path)
    ended = halfwise_cli("fix", model, "--inputs", inputs, "--out", tmp_path / "out", "--repairs", "none")
    assert ended.code == 0
    assert "\x1b" not in ended.out and "\x07" not in ended.out and "\u202e" not in ended.out
    assert "\\x1b[2J" in ended.out and "[bold]" in ended.out


def test_lines_keep_to_the_width_of_a_terminal(
    halfwise_cli: CommandLine, small: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    model, inputs = small
    ended = halfwise_cli("fix", model, "--inputs", inputs, "--out", tmp_path / "out")
    paths = [line for line in ended.out.splitlines() if str(tmp_path) not in line]
    assert max(len(line) for line in paths) <= 72


def test_the_curve(halfwise_cli: CommandLine, small: tuple[Path, Path], tmp_path: Path) -> None:
    model, inputs = small
    words = ["fix", model, "--inputs", inputs, "--out", tmp_path / "out", "--repairs", "none", "--curve"]
    points = halfwise_cli(*words, "--json").document["curve"]
    assert points[0]["fp32_nodes"] == 0 and float(points[0]["load"]) > 1
    assert points[-1]["fp32_nodes"] > 0 and float(points[-1]["load"]) < 1
    assert "error / allowed" in halfwise_cli(*words).out


def test_a_metric_of_the_user_decides_and_may_print(
    halfwise_cli: CommandLine, small: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, inputs = small
    (tmp_path / "mine_fix.py").write_text(
        "import numpy as np\n"
        "def error(reference, other):\n"
        "    print('measuring')\n"
        "    return max(float(np.abs(reference[k] - other[k]).max()) for k in reference)\n"
    )
    monkeypatch.chdir(tmp_path)
    words = ["fix", model, "--inputs", inputs, "--out", "out", "--metric", "mine_fix:error", "--tol", "metric<=0.5"]
    ended = halfwise_cli(*words, "--json")
    assert ended.code == 0
    assert ended.document["tolerance"] == {"*:metric": 0.5}
    assert "measuring" in ended.err.split()  # beside what a slow machine says of its progress
    assert halfwise_cli(*words).out.count("your metric is") == 3


def test_a_plan_is_applied_without_a_search(
    halfwise_cli: CommandLine, small: tuple[Path, Path], tmp_path: Path
) -> None:
    model, inputs = small
    first = halfwise_cli("fix", model, "--inputs", inputs, "--out", tmp_path / "a", "--json").document
    words = ["fix", model, "--inputs", inputs, "--out", tmp_path / "b", "--plan", first["artifacts"]["plan"], "--json"]
    again = halfwise_cli(*words)
    assert again.code == 0
    assert again.document["fp32_nodes"] == first["fp32_nodes"]
    assert again.document["cost"]["model_runs"] < first["cost"]["model_runs"]
    assert Path(again.document["artifacts"]["onnx"]).read_bytes() == Path(first["artifacts"]["onnx"]).read_bytes()


def _refused() -> dict[str, tuple[list[str], str]]:
    return {
        "no model": ([], "Missing argument 'MODEL'"),
        "no such model": (["{folder}/none.onnx", "--out", "{out}"], "there is no such file"),
        "no such model, and no folder": (["{folder}/none.onnx"], "there is no such file"),
        "no folder": (["{model}"], "Missing option '--out'"),
        "not a model": (["{inputs}/0.npz", "--out", "{out}"], "0.npz"),
        "no such inputs": (["{model}", "--out", "{out}", "--inputs", "{folder}/none"], "no such file or folder"),
        "inputs of another model": (["{model}", "--out", "{out}", "--inputs", "{folder}/other.npz"], "but the model"),
        "no tolerance": (["{model}", "--out", "{out}", "--tol", "wrong"], "write 'OUTPUT:METRIC<=VALUE'"),
        "another output": (["{model}", "--out", "{out}", "--tol", "zz:rel_l2<=1"], "no such output"),
        "metric without bound": (["{model}", "--out", "{out}", "--metric", "math:fsum"], "--metric needs a bound"),
        "io types": (["{model}", "--out", "{out}", "--io-types", "int8"], "--io-types int8: write fp32 or fp16"),
        "repairs": (["{model}", "--out", "{out}", "--repairs", "magic"], "there is no rule 'magic'"),
        "allow": (["{model}", "--out", "{out}", "--allow", "fp8"], "--allow fp8: only bf16 can be allowed"),
        "bf16 where there is none": (
            ["{model}", "--out", "{out}", "--allow", "bf16", "--target", "trt-10.9@t4"],
            "has no BF16",
        ),
        "profile": (["{model}", "--out", "{out}", "--profile", "loose"], "there is no profile 'loose'"),
        "target": (["{model}", "--out", "{out}", "--target", "trt-3"], "not known"),
        "plan": (["{model}", "--out", "{out}", "--plan", "{folder}/none.json"], "there is no such plan"),
        "engine": (["{model}", "--out", "{out}", "--engine", "{model}"], "layers need the plan"),
        "folder is a file": (["{model}", "--out", "{model}"], "is a file; choose another folder"),
        "below a file": (["{model}", "--out", "{model}/out"], "is a file; choose another folder"),
    }


@pytest.mark.parametrize("case", _refused())
def test_bad_usage_is_one_line_and_leaves_nothing(
    case: str, halfwise_cli: CommandLine, small: tuple[Path, Path], tmp_path: Path
) -> None:
    words, told = _refused()[case]
    model, inputs = small
    np.savez(tmp_path / "other.npz", wrong=np.zeros(3, np.float32))
    out = tmp_path / "out"
    ended = halfwise_cli("fix", *(w.format(model=model, inputs=inputs, folder=tmp_path, out=out) for w in words))
    assert ended.code == 2
    assert ended.out == ""
    assert told in ended.told
    assert ended.told.startswith("halfwise: ")
    assert not out.exists()


def test_the_model_itself_is_never_overwritten(halfwise_cli: CommandLine, tmp_path: Path) -> None:
    zoo = SHAPES["healthy_mlp"]()
    model, inputs = save(zoo, tmp_path)
    model = model.rename(tmp_path / "net.fp16.onnx")
    before = model.read_bytes()
    first = halfwise_cli("fix", model, "--inputs", inputs, "--out", tmp_path)
    assert first.code == 0
    assert (tmp_path / "net.fp16.fp16.onnx").exists()
    assert model.read_bytes() == before


# -- interrupting -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return save(encoder(1), tmp_path_factory.mktemp("large"), 3)


# The command line, but for a Ctrl-C that comes when three measurements are kept: no test can aim at that from outside.
INTERRUPTED = """
import os, signal
from halfwise.cli.main import main
from halfwise.search.journal import Journal

put, kept = Journal.put, []
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests themselves run in the background

def put_and_press(self, key, value):
    put(self, key, value)
    kept.append(key)
    if len(kept) == 3:
        os.kill(os.getpid(), signal.SIGINT)

Journal.put = put_and_press
main()
"""


def _start(large: tuple[Path, Path], out: Path, *program: str) -> subprocess.Popen[str]:
    program = program or ("-m", "halfwise")
    words = [sys.executable, *program, "fix", large[0], "--inputs", large[1], "--out", out, "--json"]
    return subprocess.Popen([str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
def test_ctrl_c_keeps_what_was_measured_and_the_same_command_goes_on(
    large: tuple[Path, Path], tmp_path: Path, says: Says
) -> None:
    out = tmp_path / "out"
    journal = out / JOURNAL
    running = _start(large, out, "-c", INTERRUPTED)
    stdout, stderr = running.communicate(timeout=120)
    assert running.returncode == 130, stderr
    assert stdout == ""
    told = [line for line in stderr.splitlines() if not line.startswith("fix encoder.onnx: ")]  # how far, if it is slow
    assert len(told) == 1
    says(told[0])
    assert [file.name for file in out.iterdir()] == [JOURNAL]
    entries = journal.read_text().splitlines()
    assert len(entries) == 1 + 3 and all(json.loads(line) for line in entries)

    resumed, whole = _start(large, out), _start(large, tmp_path / "whole")
    documents = [json.loads(process.communicate(timeout=300)[0]) for process in (resumed, whole)]
    assert [resumed.returncode, whole.returncode] == [0, 0]
    assert not journal.exists()
    for key in ("status", "error", "fp32_nodes", "nodes", "tolerance", "model"):
        assert documents[0][key] == documents[1][key]
    assert documents[0]["cost"]["model_runs"] >= documents[1]["cost"]["model_runs"]  # the FP32 answers, once more
    plans = [(folder / "encoder.plan.json").read_bytes() for folder in (out, tmp_path / "whole")]
    models = [(folder / "encoder.fp16.onnx").read_bytes() for folder in (out, tmp_path / "whole")]
    assert plans[0] == plans[1] and models[0] == models[1]


def test_ctrl_c_before_anything_was_measured(
    halfwise_cli: CommandLine, small: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(signal, "signal", lambda *_: None)  # `main` shields its last line from another one
    monkeypatch.setattr(sys.modules["halfwise.verbs.fix.fix"], "fix", interrupted)
    ended = halfwise_cli("fix", small[0], "--out", tmp_path / "out")
    assert ended.code == 130
    says(ended.told)


def test_ctrl_c_while_the_report_is_written(
    halfwise_cli: CommandLine, small: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr("halfwise.report.html.fix_report.with_report", interrupted)
    out = tmp_path / "out"
    ended = halfwise_cli("fix", small[0], "--inputs", small[1], "--out", out)
    assert ended.code == 130
    says(ended.told.replace(str(out), "OUT"))
    assert len(list(out.glob("*.fp16.onnx"))) == len(list(out.glob("*.plan.json"))) == 1


def test_what_follows_the_search_is_told(small: tuple[Path, Path], tmp_path: Path) -> None:
    told: list[str] = []
    halfwise.fix(*small, out=tmp_path, notify=told.append)
    ending = [f"writing {tmp_path}", "running the written model", "writing the report"]
    after = ["looking for overflows", "verifying", *ending]
    places = [max(index for index, text in enumerate(told) if each in text) for each in after]
    assert places == sorted(places) and places[-1] == len(told) - 1


def test_another_question_does_not_resume(halfwise_cli: CommandLine, small: tuple[Path, Path], tmp_path: Path) -> None:
    """A mistyped command keeps the journal; one that asks something else starts anew and answers its own question."""
    model, inputs = small
    (tmp_path / JOURNAL).write_text('{"identity": "of another search"}\n{"key": "k", "value": 1}\n')
    assert halfwise_cli("fix", model, "--inputs", inputs, "--out", tmp_path, "--tol", "wrong").code == 2
    assert (tmp_path / JOURNAL).exists()
    assert halfwise_cli("fix", model, "--inputs", inputs, "--out", tmp_path).code == 0
    assert not (tmp_path / JOURNAL).exists()


# -- on a terminal ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")
@pytest.mark.parametrize("colour", [True, False])
def test_progress_and_colours_on_a_terminal(small: tuple[Path, Path], tmp_path: Path, colour: bool) -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")} | {
        "TERM": "xterm-256color", "COLUMNS": "100", **({} if colour else {"NO_COLOR": "1"}),
    }  # fmt: skip
    words = ["-m", "halfwise", "fix", str(small[0]), "--inputs", str(small[1]), "--out", str(tmp_path / "out")]
    main_end, other_end = pty.openpty()
    process = subprocess.Popen([sys.executable, *words], stdout=other_end, stderr=other_end, env=environment)
    os.close(other_end)
    seen = b""
    while True:
        try:
            piece = os.read(main_end, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        seen += piece
    assert process.wait(timeout=60) == 0
    assert b"fix layer_norm_overflow.onnx" in seen  # progress
    assert b"keeps the tolerance in FP16 after 1 repair" in seen
    assert (b"\x1b[1;32m" in seen) == colour


def test_the_verb_takes_what_the_contract_names() -> None:
    """The names that scripts use."""
    assert halfwise.cli.fix.command.__kwdefaults__ is None
    helped = subprocess.run(
        [sys.executable, "-m", "halfwise", "fix", "--help"], capture_output=True, text=True, check=True
    ).stdout
    options = "--inputs --out --tol --metric --target --profile --io-types --allow --repairs --plan --curve --explain"
    for option in (*options.split(), "--json"):
        assert option in helped


def test_text_inputs_are_refused_where_they_cannot_be_made_up(
    halfwise_cli: CommandLine, tmp_path: Path, says: Says
) -> None:
    graph = helper.make_graph(
        [helper.make_node("Identity", ["words"], ["same"])],
        "text",
        [helper.make_tensor_value_info("words", TensorProto.STRING, [2])],
        [helper.make_tensor_value_info("same", TensorProto.STRING, [2])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "t.onnx")
    ended = halfwise_cli("fix", tmp_path / "t.onnx", "--out", tmp_path / "out")
    assert ended.code == 2
    says(ended.told)
