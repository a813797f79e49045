"""`gate` on the command line, as JUnit, and in the docs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import halfwise
from halfwise.precision.plan import Plan
from halfwise.report.junit import junit_xml
from halfwise.verbs.gate import gate
from tests.models.report_models import HOSTILE, hostile_model
from tests.models.zoo import SHAPES
from tests.support.command_line import CommandLine, Ended, save
from tests.support.gates import changed, scaled, statuses
from tests.support.paths import ROOT
from tests.support.says import Says


@pytest.fixture
def halfwise_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, its inputs, its plan and its findings, as they would be committed."""
    path = tmp_path_factory.mktemp("gate")
    model, inputs = save(SHAPES["layer_norm_overflow"](), path)
    halfwise.fix(model, inputs, out=path, repairs=("none",))
    (path / "findings.json").write_text(json.dumps(halfwise.scan(model).to_json()), encoding="utf-8")
    model.rename(path / "model.onnx")
    (path / f"{model.stem}.plan.json").rename(path / "plan.json")
    return path


# -- the command line -------------------------------------------------------------------------------------------------


def run(cli: CommandLine, folder: Path, model: str, *more: object) -> Ended:
    return cli("gate", folder / model, "--plan", folder / "plan.json", "--inputs", folder / "inputs", *more)


def test_one_line_a_check_and_the_exit_code(folder: Path, halfwise_cli: CommandLine) -> None:
    ended = run(halfwise_cli, folder, "model.onnx", "--baseline", folder / "findings.json")
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert lines[0] == f"{folder / 'plan.json'} holds for {folder / 'model.onnx'}:"
    assert [line.split()[:2] for line in lines[1:6]] == [
        ["pass", "fingerprint"],
        ["pass", "nodes"],
        ["pass", "tolerance"],
        ["skip", "violations"],
        ["pass", "findings"],
    ]
    changed(folder, "broken.onnx", scaled(1e6, "proj.weight"))
    ended = run(halfwise_cli, folder, "broken.onnx")
    assert ended.code == 1
    assert "FAIL  tolerance" in ended.out


def test_files_of_inputs_that_a_shell_has_spelled_out(folder: Path, halfwise_cli: CommandLine) -> None:
    """None of them is taken for the model."""
    files = sorted((folder / "inputs").iterdir())[:3]
    ended = halfwise_cli("gate", folder / "model.onnx", "--plan", folder / "plan.json", "--inputs", *files)
    assert ended.code == 0 and f"{len(files)} inputs" in ended.out


def test_a_plan_may_stand_before_the_model(folder: Path, halfwise_cli: CommandLine) -> None:
    words = (folder / "plan.json", folder / "model.onnx", "--inputs", folder / "inputs", "--json")
    assert halfwise_cli("gate", *words).document["status"] == "holds"


@pytest.mark.parametrize("words", [["m.onnx"], ["p.json", "m.onnx", "--plan", "p.json"], ["a", "b", "c"]])
def test_one_plan_and_one_model(words: list[str], halfwise_cli: CommandLine, says: Says) -> None:
    ended = halfwise_cli("gate", *words)
    assert ended.code == 2
    says(ended.told)


def test_made_up_inputs_are_said(folder: Path, halfwise_cli: CommandLine) -> None:
    ended = halfwise_cli("gate", folder / "model.onnx", "--plan", folder / "plan.json")
    assert "synthetic inputs" in ended.out
    assert "SYNTHETIC INPUTS" in ended.out


def test_files_that_cannot_be_written(folder: Path, halfwise_cli: CommandLine, says: Says) -> None:
    for option in ("--junit", "--sarif", "--markdown"):
        ended = run(halfwise_cli, folder, "model.onnx", option, folder / "model.onnx" / "file")
        assert ended.code == 2
        says(ended.told)
        ended = run(halfwise_cli, folder, "model.onnx", option, folder)
        says(ended.told)


def test_the_folders_of_files_are_made(folder: Path, halfwise_cli: CommandLine) -> None:
    """As that of --out is; not where nothing is written."""
    at = folder / "reports" / "of today"
    options = ["--junit", at / "g.xml", "--sarif", at / "g.sarif", "--markdown", folder / "m" / "g.md"]
    assert run(halfwise_cli, folder, "no such.onnx", *options).code == 2
    assert not at.parent.exists() and not (folder / "m").exists()
    assert run(halfwise_cli, folder, "model.onnx", *options).code == 0
    assert sorted(each.name for each in at.iterdir()) == ["g.sarif", "g.xml"] and (folder / "m" / "g.md").is_file()


# -- JUnit ------------------------------------------------------------------------------------------------------------


def test_junit_has_a_case_a_check(folder: Path, halfwise_cli: CommandLine) -> None:
    changed(folder, "broken2.onnx", scaled(1e6, "proj.weight"))
    run(halfwise_cli, folder, "broken2.onnx", "--junit", folder / "junit.xml")
    root = ET.parse(folder / "junit.xml").getroot()
    assert root.tag == "testsuites"
    suite = root[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("5", "1", "2")
    cases = {case.get("name"): case for case in suite}
    assert list(cases) == ["fingerprint", "nodes", "tolerance", "violations", "findings"]
    failure = cases["tolerance"].find("failure")
    assert failure is not None and "not finite" in str(failure.get("message"))
    assert cases["violations"].find("skipped") is not None
    assert cases["nodes"].find("failure") is None


def hostile_plan() -> Plan:
    feeds = [{"x<b>": np.full(4, 1 + index / 4, np.float32)} for index in range(4)]
    return halfwise.fix(hostile_model(), feeds, repairs=("none",)).plan


def test_junit_is_xml_whatever_the_names() -> None:
    model = hostile_model()
    for node in model.graph.node:
        node.name = f"{node.name}\ufffe\U0001f600\x0b gone"
    result = gate(hostile_plan(), model)
    assert statuses(result)["nodes"] == "fail"
    text = junit_xml(result)
    assert not set(text) & set("\x00\x0b\x1b\u202e\u2066\u200b\u2028\ufffe")
    root = ET.fromstring(text)
    failure = next(each for each in root.iter("failure") if each.get("type") == "nodes")
    told = str(failure.text).splitlines()
    kept = [node.name for node in hostile_plan().nodes]
    assert len(told) == len(kept)
    assert any("<script>window.stolen=1" in line for line in told) == (HOSTILE[0] in kept)
    assert all(len(line) <= 2_000 for line in told)


# -- the docs ---------------------------------------------------------------------------------------------------------


def test_the_docs_use_options_that_exist(halfwise_cli: CommandLine) -> None:
    files = (ROOT / "docs" / "ci.md", *sorted((ROOT / "examples" / "ci").glob("*.yml")))
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    commands = re.findall(r"halfwise (gate|scan|fix|compare) ([^`]*?)(?=`|\n *\n|\n      - |\n  artifacts|\n```)", text)
    assert len([verb for verb, words in commands if verb == "gate" and "--junit" in words]) == 2  # one a workflow
    assert {verb for verb, _ in commands} == {"gate", "scan", "fix", "compare"}
    for verb, words in commands:
        known = set(re.findall(r"--[a-z-]+", halfwise_cli(verb, "--help").out))
        assert set(re.findall(r"--[a-z-]+", words)) <= known, (verb, words)


def test_the_docs_name_every_check(folder: Path) -> None:
    text = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `([a-z]+)` \| ", text, re.M)
    assert named == list(statuses(gate(folder / "plan.json", folder / "model.onnx", folder / "inputs")))
