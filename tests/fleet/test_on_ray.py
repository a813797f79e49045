"""The side of a cluster that is ours, on a stand-in for Ray: files by content, the same words, a lost node, a cap."""

from __future__ import annotations

import json
import os
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from halfwise.core.errors import MissingBackend
from halfwise.fleet.helped import _answered_there
from halfwise.fleet.jobs import Job
from halfwise.fleet.on_ray import OnRay, _stays
from halfwise.fleet.run import FleetRun, Watcher, run_fleet
from halfwise.fleet.settings import read_settings
from halfwise.fleet.sources import sources_of
from halfwise.fleet.store import Result
from tests.fleet.test_run import calls, fleet, run
from tests.fleet.verbs import toy
from tests.support.says import Says


class Ray:
    """The calls that are used, in this process; what is put is counted, and `lost` nodes answer with an error."""

    def __init__(self) -> None:
        self.put_bytes = 0
        self.asked: list[dict[str, float]] = []
        self.lost: list[str] = []
        self.more: dict[str, float] = {}

    def init(self, **_: object) -> None:
        print("noise")

    def shutdown(self) -> None:
        print("more noise")

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(gcs_address="localhost:1", get_node_id=lambda: "node")

    def available_resources(self) -> dict[str, float]:
        return {"CPU": 2.0}

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 2.0, **self.more}

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {"Alive": True, "Resources": {"memory": 1e9}},
            {"Alive": True, "Resources": {}},
            {"Alive": False, "Resources": {"memory": 9e9}},
        ]

    def put(self, value: Any) -> Any:
        self.put_bytes += value.nbytes
        return SimpleNamespace(value=value)

    def get(self, reference: Any) -> Any:
        return reference.value() if callable(reference.value) else reference.value

    def remote(self, **_: object) -> Callable[..., Any]:
        return lambda function: SimpleNamespace(options=lambda **asked: self.options(function, asked))

    def options(self, function: Callable[..., Any], asked: dict[str, float]) -> Any:
        self.asked.append(asked)

        def value(task: Any, *rest: Any) -> Any:
            if Path(task.order.words[1]).stem in self.lost:
                raise RuntimeError("the node died\nwith a trace")
            return function(task, *rest)

        return SimpleNamespace(remote=lambda *given: Reference(lambda: value(*given)))

    def wait(self, held: list[Any], num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        return held[:num_returns], held[num_returns:]


class Reference:
    def __init__(self, value: Any) -> None:
        self.value = value


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Ray:
    stand_in = Ray()
    monkeypatch.setitem(sys.modules, "ray", stand_in)  # type: ignore[arg-type]
    return stand_in


def on_ray(file: Path, watcher: Watcher | None = None) -> FleetRun:
    return run_fleet(read_settings(file), toy, watcher or Watcher(), OnRay("auto"))


def said(found: FleetRun) -> list[tuple[object, ...]]:
    return [(each.model, each.state, each.why, each.fp32_nodes, each.error, each.folder) for each in found.results]


def test_a_cluster_gives_the_same_results_and_files(
    tmp_path: Path, ray: Ray, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    models: dict[str, dict[str, object]] = {"a": {"fp32": 2}, "same": {"fp32": 2}, "dies": {"ends": "segfault"}}
    here, there = (tmp_path / name for name in ("here", "there"))
    for folder in (here, there):
        folder.mkdir()
    one = run(fleet(here, models))
    monkeypatch.chdir(there)
    fleet(there, models)
    other = on_ray(Path("fleet.toml"))
    assert said(one) == said(other)
    assert capsys.readouterr().out == ""  # which is for the answer
    answers = [sorted((folder / "fleet-results").rglob("answer.json")) for folder in (here, there)]
    assert [path.read_bytes() for path in answers[0]] == [path.read_bytes() for path in answers[1]]
    assert ray.put_bytes == len(json.dumps({"fp32": 2})) + len(json.dumps({"ends": "segfault"}))  # a content once
    assert not list(there.glob("*.calls"))  # the job had a copy
    assert all((asked["num_cpus"], asked["num_gpus"]) == (1, 0) and asked["memory"] <= 1e9 for asked in ray.asked)
    assert on_ray(Path("fleet.toml")).reused == 2


@pytest.mark.parametrize(
    ("name", "kind", "stays"),
    [
        ("out/answer.json", tarfile.REGTYPE, True),
        (".", tarfile.DIRTYPE, True),
        ("../answer.json", tarfile.REGTYPE, False),
        ("/tmp/answer.json", tarfile.REGTYPE, False),
        ("answer.json", tarfile.SYMTYPE, False),
    ],
)
def test_what_leaves_the_folder_is_not_unpacked_there(name: str, kind: bytes, stays: bool) -> None:
    member = tarfile.TarInfo(name)
    member.type = kind
    assert _stays(member) == stays


def test_files_come_back_where_python_knows_no_filters(
    tmp_path: Path, ray: Ray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before Python 3.11.4."""
    now = tarfile.TarFile.extractall
    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    monkeypatch.setattr(tarfile.TarFile, "extractall", lambda archive, path, members: now(archive, path, members))
    assert on_ray(fleet(tmp_path, {"a": {"fp32": 2}})).good
    assert list((tmp_path / "fleet-results").rglob("answer.json"))


def test_a_lost_node_and_a_lost_input_cost_their_jobs_only(tmp_path: Path, ray: Ray) -> None:
    file = fleet(tmp_path, {"a": {}, "lost": {}, "b": {}, "c": {}, "d": {}, "gone": {}})

    class Removes(Watcher):
        def ended(self, job: Job, result: Result) -> None:
            (tmp_path / "gone.onnx").unlink(missing_ok=True)

    ray.lost.append("lost")
    found = {each.model: each for each in on_ray(file, Removes()).results}
    assert [name for name, each in found.items() if each.good] == ["a", "b", "c", "d"]
    assert found["lost"].state == "died" and "the node died" in found["lost"].why
    assert found["gone"].state == "refused" and "gone.onnx cannot be read" in found["gone"].why
    ray.lost.clear()
    (tmp_path / "gone.onnx").write_text("{}")
    again = on_ray(file)
    assert again.good and again.reused == 4


def test_what_a_function_imports_travels_with_it_and_counts_as_its_input(tmp_path: Path, ray: Ray) -> None:
    file = fleet(tmp_path, {"a": {}}, function="made.samples:make")
    (tmp_path / "made").mkdir()
    (tmp_path / "made/__init__.py").write_text("")
    (tmp_path / "made/samples.py").write_text("import json\nfrom . import sizes\nmake = lambda: [{'x': sizes.SIZES}]")
    (tmp_path / "made/sizes.py").write_text("import neighbour\nSIZES = [neighbour.SIZE]")
    (tmp_path / "neighbour.py").write_text("SIZE = 3\ndef error(a, b): return 3.0")
    assert sources_of("made.samples:make", tmp_path) == tuple(
        tmp_path / name for name in ("made/samples.py", "made/__init__.py", "made/sizes.py", "neighbour.py")
    )
    first = on_ray(file)
    assert first.good, first.results[0].why
    assert on_ray(file).reused == 1
    (tmp_path / "neighbour.py").write_text("SIZE = 4\ndef error(a, b): return 4.0")
    assert on_ray(file).reused == 0
    measured = "metric = 'neighbour:error'\ntolerance = 'metric<=9'\n"
    file.write_text(file.read_text().replace("[[models]]", f"{measured}[[models]]"))
    assert on_ray(file).reused == 0 and on_ray(file).reused == 1
    (tmp_path / "neighbour.py").write_text("SIZE = 4\ndef error(a, b): return 5.0")
    assert on_ray(file).reused == 0  # of the metric's own file
    (tmp_path / "neighbour.py").unlink()
    file.write_text(file.read_text().replace(measured, ""))
    assert "No module named 'neighbour'" in on_ray(file).results[0].why


def test_a_helper_tells_libraries_how_to_behave(ray: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ORT_DISABLE_TELEMETRY", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "0")
    assert _answered_there(b"", {}, None, [], "another machine") == ("node", None)
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"


def test_a_job_on_a_gpu_asks_the_cluster_for_one(tmp_path: Path, ray: Ray) -> None:
    file = fleet(tmp_path, {"a": {}}, device="cuda", do=["fix", "scan"])
    without = on_ray(file).results
    assert [(each.action, each.state) for each in without] == [("fix", "unavailable"), ("scan", "good")]
    ray.more["GPU"] = 1.0
    assert on_ray(file).good
    assert [asked["num_gpus"] for asked in ray.asked] == [0, 1]


def test_a_cluster_that_is_not_there_is_told_at_once(tmp_path: Path, ray: Ray, says: Says) -> None:
    with says.raises(MissingBackend):
        run_fleet(read_settings(fleet(tmp_path, {"a": {}})), toy, Watcher(), OnRay("localhost:1"))


def test_inputs_that_vanish_in_mid_run_are_told_and_asked_for_again(tmp_path: Path) -> None:
    file = fleet(tmp_path, {"a": {}, "gone": {"ends": "vanish"}})
    found = {each.model: each for each in run(file).results}
    assert found["a"].good and found["gone"].state == "refused"
    (tmp_path / "gone.onnx").write_text('{"ends": "vanish"}')  # the same bytes as before
    again = run(file)
    assert again.reused == 1 and calls(tmp_path, "gone") == 2
