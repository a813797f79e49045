"""`bisect` on the command line."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np
import onnx
import pytest

from halfwise.backends import BackendFailure, BackendOptions
from halfwise.verbs.bisect.asked import JOURNAL
from tests.support.bisections import INPUTS, JUDGE, Fake, chain, hiding
from tests.support.command_line import CommandLine, Ended
from tests.support.says import Says


@pytest.fixture
def judge(tmp_path: Path) -> Callable[[str], str]:
    def write(code: str) -> str:
        path = tmp_path / "judge.py"
        path.write_text(JUDGE.replace("CODE", code))
        return f"{sys.executable} {path}"

    return write


# -- the command line -------------------------------------------------------------------------------------------------


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Ended]:
    monkeypatch.chdir(tmp_path)
    onnx.save(chain(), "chain.onnx")
    np.savez("in.npz", **INPUTS[0])
    return CommandLine(monkeypatch, capsys)


def fake_on_the_command_line(monkeypatch: pytest.MonkeyPatch, fake: Fake) -> None:
    monkeypatch.setattr(import_module("halfwise.verbs.bisect.run"), "installed_backend", lambda name, options: fake)


def test_the_command_names_the_culprits_and_ends_with_1(
    cli: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    fake_on_the_command_line(monkeypatch, Fake(hiding("n_t5", "n_t6", "n_t20")))
    ended = cli("bisect", "chain.onnx", "--backend", "ort-cuda", "--inputs", "in.npz")
    assert ended.code == 1
    says(ended.out, "3 nodes in")
    lines = [line.split()[:3] for line in ended.out.splitlines()]
    assert ["n_t5", "Mul", "1"] in lines
    assert ["n_t6", "Add", "1"] in lines
    assert ["n_t20", "Add", "2"] in lines
    assert "  all FP16: bad, " in ended.out
    assert "  all FP32: good, " in ended.out
    assert Path("chain.bisect/chain.bisect.onnx").exists()


def test_every_build_is_listed_on_request(cli: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    fake_on_the_command_line(monkeypatch, Fake(hiding("n_t5")))
    words = ("bisect", "chain.onnx", "--backend", "ort-cuda", "--inputs", "in.npz")
    count = re.compile(r"^  (all FP|\d+ of 24 nodes in FP16: (good|bad))", re.MULTILINE)
    short, full = cli(*words, "--out", "a"), cli(*words, "--out", "b", "--full")
    builds = int(re.search(r"^(\d+) builds?: ", full.out, re.MULTILINE)[1])  # type: ignore[index]
    assert len(count.findall(short.out)) == 2 < len(count.findall(full.out)) == builds


def test_the_document(cli: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    fake_on_the_command_line(monkeypatch, Fake(hiding("n_t5")))
    ended = cli("bisect", "chain.onnx", "--backend", "ort-cuda", "--inputs", "in.npz", "--out", "there", "--json")
    document = ended.document
    assert (ended.code, document["schema"], document["status"]) == (1, "halfwise.bisect/1", "found")
    assert document["regions"] == [["n_t5"]]
    assert document["culprits"][0]["name"] == "n_t5"
    assert document["builds"]["total"] == len(document["steps"])
    assert document["steps"][0] == {
        "what": "all FP16", "fp16": 24, "of": 24, "answer": "bad", "load": document["steps"][0]["load"],
        "why": "", "resumed": False, "because": [],
    }  # fmt: skip
    assert document["backend"]["device"] == "a device"
    assert document["artifacts"]["plan"] == "there/chain.bisect.plan.json"


def test_onnx_runtime_on_the_cpu_says_that_it_proves_little(cli: Callable[..., Ended], says: Says) -> None:
    ended = cli("bisect", "chain.onnx", "--backend", "ort-cpu", "--inputs", "in.npz")
    assert ended.code == 0
    says(ended.out, "Nothing to find")
    says(ended.out, "computes FP16 in")
    assert not Path("chain.bisect").exists()


def test_a_missing_backend_is_exit_code_3_and_leaves_nothing(cli: Callable[..., Ended]) -> None:
    ended = cli("bisect", "chain.onnx", "--backend", "ort-cuda", "--inputs", "in.npz")
    assert ended.code == 3
    assert "has no CUDAExecutionProvider" in ended.told
    assert "pip install 'halfwise[gpu]'" in ended.told
    assert not Path("chain.bisect").exists()


def test_wrong_in_fp32_too_on_the_command_line(
    cli: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    fake_on_the_command_line(monkeypatch, Fake(lambda narrow: True))
    ended = cli("bisect", "chain.onnx", "--backend", "ort-cuda", "--inputs", "in.npz")
    assert ended.code == 1
    says(ended.out, "Precision is not")


def test_an_fp32_model_that_cannot_be_built(
    cli: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    def fail(build: int, narrow: set[str]) -> None:
        raise BackendFailure("the operator is not supported")

    fake_on_the_command_line(monkeypatch, Fake(hiding(), fail))
    ended = cli("bisect", "chain.onnx", "--backend", "ort-cuda", "--inputs", "in.npz")
    assert ended.code == 1
    says(ended.out, "The all-FP32 model")


def test_ctrl_c_says_how_to_go_on(cli: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, says: Says) -> None:
    def interrupt(build: int, narrow: set[str]) -> None:
        if build == 3:
            raise KeyboardInterrupt

    fake_on_the_command_line(monkeypatch, Fake(hiding("n_t5"), interrupt))
    ended = cli("bisect", "chain.onnx", "--backend", "ort-cuda", "--inputs", "in.npz")
    assert ended.code == 130
    assert ended.told.endswith(f"to resume from chain.bisect/{JOURNAL}")
    fake_on_the_command_line(monkeypatch, Fake(hiding("n_t5")))
    ended = cli("bisect", "chain.onnx", "--backend", "ort-cuda", "--inputs", "in.npz")
    assert ended.code == 1
    says(ended.out, "2 of them")


def test_a_judge_that_breaks_down_is_no_answer(
    cli: Callable[..., Ended], judge: Callable[[str], str], says: Says
) -> None:
    ended = cli("bisect", "chain.onnx", "--check", judge("77"), "--inputs", "in.npz")
    assert ended.code == 2
    says(ended.told)


def test_odd_options_are_one_line(cli: Callable[..., Ended], says: Says) -> None:
    ended = cli("bisect", "chain.onnx", "--backend", "ort-cpu", "--optimize", "much")
    assert ended.code == 2
    says(ended.told)


def test_options_reach_the_backend(cli: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def make(name: str, options: BackendOptions) -> Fake:
        given.append((name, options))
        return Fake(hiding())

    monkeypatch.setattr(import_module("halfwise.verbs.bisect.run"), "installed_backend", make)
    cli("bisect", "chain.onnx", "--backend", "ort-cuda", "--gpu", "1", "--tf32", "--optimize", "disable",
        "--io-binding", "--time-limit", "9", "--inputs", "in.npz")  # fmt: skip
    assert given == [("ort-cuda", BackendOptions(1, True, "disable", True, 9.0))]
