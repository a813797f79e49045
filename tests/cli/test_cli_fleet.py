"""`halfwise fleet`: from a folder of models to the page, on the command line."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.fleet.test_run import fleet as toy_fleet
from tests.fleet.test_run import run as run_toys
from tests.models.zoo import norm_log_head
from tests.support.command_line import CommandLine, save
from tests.support.documents import check
from tests.support.says import Says


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


@pytest.fixture
def fleet(tmp_path: Path, run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Path:
    save(norm_log_head(), tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run("fleet", "init", ".").code == 0
    file = tmp_path / "fleet.toml"
    file.write_text(file.read_text().replace('do = ["scan", "fix"]', 'do = ["scan"]'))
    return file


def test_a_fleet_from_nothing_to_its_page(fleet: Path, run: CommandLine, says: Says) -> None:
    assert 'inputs = "inputs"' in fleet.read_text()  # the samples beside the model
    says(run("fleet", "check").out, "no mistakes; 1")
    ended = run("fleet", "run", "--json", "--junit", "j.xml", "--markdown", "m.md", "--sarif", "s.sarif")
    assert ended.code == 0, ended.err
    check(ended.document, "fleet")
    assert [job["state"] for job in ended.document["jobs"]] == ["good"]
    assert (fleet.parent / "fleet-results" / "index.html").is_file()
    assert all((fleet.parent / name).is_file() for name in ("j.xml", "m.md", "s.sarif"))
    again = run("fleet", "run")
    assert again.code == 0
    says(again.out, "1 of them")
    check(run("fleet", "show", "--model", "norm_log_head", "--json").document, "fleet-history")
    assert run("fleet", "show", "--json").document["jobs"] == ended.document["jobs"]


def test_what_a_user_can_get_wrong(fleet: Path, run: CommandLine, says: Says) -> None:
    says(run("fleet", "init", ".").told)
    fleet.write_text(fleet.read_text().replace("[defaults]", "[defaults]\nsecond = 3"))
    ended = run("fleet", "check")
    assert ended.code == 1 and ended.out.startswith("fleet.toml:") and "did you mean 'seconds'?" in ended.out
    assert run("fleet", "run").code == 2
    fleet.write_text('[[models]]\npath = "none/*.onnx"\n[[models]]\npath = "norm_log_head.onnx"\ninputs = "gone"\n')
    assert [line.split(": ")[0] for line in run("fleet", "check").out.splitlines()] == [
        "fleet.toml:2:1",
        "fleet.toml:5:1",
    ]
    assert "no file is there" in run("fleet", "run").told
    fleet.write_text('[[models]]\npath = "norm_log_head.onnx"\ndo = "scan"\n')
    assert "halfwise fleet run" in run("fleet", "show").told
    assert run("fleet", "run", "--ray", "localhost:1").code == 3
    assert run("fleet", "show", "--model", "x").told.startswith("halfwise: ")


def test_without_ray_nothing_is_begun(fleet: Path, run: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    before = sorted(fleet.parent.iterdir())
    ended = run("fleet", "run", "--ray", "auto")
    assert ended.code == 3 and "halfwise[fleet]" in ended.told and "\n" not in ended.told
    assert sorted(fleet.parent.iterdir()) == before


def test_a_store_is_a_frame_of_every_result_of_every_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import halfwise

    file = toy_fleet(tmp_path, {"a": {"fp32": 2}, "dies": {"ends": "segfault"}})
    for _ in range(2):
        run_toys(file)
    for library in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, library, None)  # as if it were not installed
    with pytest.raises(halfwise.HalfwiseError, match="pip install pandas"):
        halfwise.fleet.load(tmp_path / "fleet-results")
    monkeypatch.setitem(sys.modules, "polars", SimpleNamespace(DataFrame=list))
    rows = halfwise.fleet.load(tmp_path / "fleet-results" / "fleet.sqlite")
    told = [(row["run"], row["model"], row["state"], row["fp32_nodes"], row["culprits"]) for row in rows]
    good = ("a", "good", 2, "2 x LayerNormalization: overflow")
    dead = ("dies", "died", None, "")
    assert sorted(told) == [(1, *good), (1, *dead), (2, *good), (2, *dead)]
    with pytest.raises(halfwise.HalfwiseError, match="pandas"):
        halfwise.fleet.load(tmp_path / "fleet-results", "pandas")
