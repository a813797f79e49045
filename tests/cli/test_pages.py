"""`--html`: a page of its own for what has no report: self-contained, safe, with every row; and the audit's filters."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import onnx
import pytest

import halfwise
from tests.models.report_models import hostile_model
from tests.support.command_line import CommandLine
from tests.support.paths import DATA
from tests.support.says import Says

LOG = DATA / "logs" / "layernorm_8.6_region.log"


@pytest.fixture
def halfwise_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.setenv("COLUMNS", "100")
    return CommandLine(monkeypatch, capsys)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "m.onnx"
    onnx.save(hostile_model(), path)
    return path


def data_of(page: Path) -> dict[str, Any]:
    """The data of a page that may run nothing but its own script."""
    text = page.read_text(encoding="utf-8")
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", text, re.S)
    assert [bool(kind) for kind, _ in scripts] == [True, False]
    digest = base64.b64encode(hashlib.sha256(scripts[1][1].encode()).digest()).decode()
    assert "default-src" in policy and f"sha256-{digest}" in policy.replace("&#43;", "+").replace("&#x2B;", "+")
    assert not re.search(r"<img|\son\w+=|javascript:|src=", text.replace(scripts[1][1], "").replace(scripts[0][1], ""))
    return dict(json.loads(scripts[0][1]))


def rows_of(page: Path, table: int = 0) -> list[list[Any]]:
    data = data_of(page)
    if not data["tables"]:
        return []
    return [
        [data["names"][cell[0]] if isinstance(cell, list) else cell for cell in row]
        for row in data["tables"][table]["rows"]
    ]


@pytest.mark.parametrize("verb", ["trace", "stages"])
def test_a_result_of_a_hostile_model_has_a_page(
    verb: str, model: Path, halfwise_cli: CommandLine, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    ended = halfwise_cli(verb, str(model), "--html", str(page))
    assert ended.code in (0, 1) and ended.out
    found = getattr(halfwise, verb)(model).summary()
    assert len(rows_of(page)) == len(found.rows)
    assert page.stat().st_size < 200_000


def test_a_log_has_a_page_with_every_finding(halfwise_cli: CommandLine, tmp_path: Path) -> None:
    page = tmp_path / "log.html"
    assert halfwise_cli("log", str(LOG), "--html", str(page)).code == 0
    assert [row[1] for row in rows_of(page)] == [row[1] for row in halfwise.log(LOG).summary().rows]


def test_a_page_that_cannot_be_written_is_one_line(halfwise_cli: CommandLine, tmp_path: Path) -> None:
    ended = halfwise_cli("log", str(LOG), "--html", str(tmp_path))
    assert ended.code == 2 and "cannot be written" in ended.told


def audited(halfwise_cli: CommandLine, tmp_path: Path, *words: str) -> tuple[str, list[list[Any]]]:
    plan, page = tmp_path / "plan.json", tmp_path / "audit.html"
    plan.write_text(json.dumps({"fp32_nodes": ["/norm/Pow", "/in/Conv"]}), encoding="utf-8")
    ended = halfwise_cli("audit", str(LOG), "--plan", str(plan), "--html", str(page), *words)
    assert ended.code == 1
    return ended.out, rows_of(page)


@pytest.mark.parametrize(
    ("words", "nodes"),
    [
        (["--only", "violations"], {"/norm/Pow"}),
        (["--only", "kept"], {"/in/Conv"}),
        (["--node", "*/Conv"], {"/in/Conv"}),
        (["--node", "/norm/P?w"], {"/norm/Pow"}),
        (["--module", "/in"], {"/in/Conv"}),
        (["--module", "/norm", "--only", "unproven"], set()),
    ],
)
def test_an_audit_shows_what_is_asked_for(
    words: list[str], nodes: set[str], halfwise_cli: CommandLine, tmp_path: Path
) -> None:
    out, rows = audited(halfwise_cli, tmp_path, *words)
    assert {row[0] for row in rows} == nodes if nodes else rows == []
    table = out.partition("\nnode ")[2]
    assert {line.split()[0] for line in table.splitlines() if line.startswith("/")} == nodes
    assert nodes or "no node is of these" in out


def test_what_was_kept_needs_a_plan(halfwise_cli: CommandLine) -> None:
    ended = halfwise_cli("audit", DATA / "layers" / "inspector_8.6.json", "--only", "violations")
    assert (ended.code, "give --plan" in ended.out) == (0, True)
    ended = halfwise_cli("audit", DATA / "layers" / "inspector_8.6.json", "--node", "none")
    assert (ended.code, "give --plan" in ended.out) == (0, False)


def test_an_audit_tells_asked_got_kernel_and_evidence(halfwise_cli: CommandLine, tmp_path: Path) -> None:
    _, rows = audited(halfwise_cli, tmp_path)
    first = rows[0]  # violations first
    assert first[:4] == ["/norm/Pow", "Pow", "fp32", "fp16"] and "ForeignNode" in first[4]
    assert first[5].startswith("region-only") and first[6] == "violation"
    assert len(rows) == len([node for node in halfwise.audit(LOG).audit.nodes if node.compute])


def test_an_unknown_filter_is_one_line(halfwise_cli: CommandLine, says: Says) -> None:
    ended = halfwise_cli("audit", str(LOG), "--only", "bad")
    assert ended.code == 2
    says(ended.told)


def test_a_log_lints_the_command_of_its_build(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    command = "trtexec --onnx=m.onnx --fp16 --layerPrecisions=/norm/Pow:fp32"
    log.write_text(f"&&&& RUNNING TensorRT.trtexec [TensorRT v8601] # {command}\n", encoding="utf-8")
    told = [finding.rule for finding in halfwise.log(log).findings]
    assert told == ["HW604"]  # precisions without --precisionConstraints
    log.write_text(f"&&&& RUNNING TensorRT.trtexec [TensorRT v8601] # {command} --precisionConstraints=obey\n")
    assert [finding.rule for finding in halfwise.log(log).findings] == []
