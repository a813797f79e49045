"""A run: jobs in processes of their own, whatever they do; what is done is done once; what changed is told."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from halfwise.core.child.black_box import BlackBox
from halfwise.core.errors import InputError
from halfwise.fleet import processes
from halfwise.fleet.exports import junit_text, markdown_text, sarif_text
from halfwise.fleet.outcome import Outcome
from halfwise.fleet.processes import Limits, Task, run_here
from halfwise.fleet.run import FleetRun, Watcher, run_fleet
from halfwise.fleet.settings import read_settings
from halfwise.fleet.show import culprits_of
from halfwise.fleet.store import STORE, Store
from halfwise.fleet.stored import history_of, last_run
from halfwise.fleet.work import CALL, Order
from halfwise.fleet.write import page_text
from tests.fleet.verbs import toy
from tests.support.paths import ROOT
from tests.support.says import Says

HOSTILE = {
    "fine": {},
    "bad": {"ends": "bad"},
    "refused": {"ends": "refused"},
    "raises": {"ends": "raise"},
    "dies": {"ends": "segfault"},
    "hangs": {"ends": "hang"},
    "eats": {"ends": "eat"},
    "goes on": {"ends": "crashes in a library"},
}


def fleet(folder: Path, models: dict[str, dict[str, object]], **defaults: object) -> Path:
    for name, said in models.items():
        (folder / f"{name}.onnx").write_text(json.dumps(said))
    keys = {"do": ["fix"], **defaults}
    text = "[fleet]\nprocesses = 2\nmemory = '2 GB'\n[defaults]\n"
    text += "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
    text += "".join(f"[[models]]\npath = '{name}.onnx'\n" for name in models)
    (folder / "fleet.toml").write_text(text)
    return folder / "fleet.toml"


def run(file: Path) -> FleetRun:
    return run_fleet(read_settings(file), toy, Watcher())


def calls(folder: Path, name: str) -> int:
    return len((folder / f"{name}.calls").read_text().split())


def test_each_job_ends_by_itself_and_the_others_go_on(tmp_path: Path) -> None:
    file = fleet(tmp_path, HOSTILE)
    text = file.read_text().replace("path = 'hangs.onnx'", "path = 'hangs.onnx'\nseconds = 1")
    file.write_text(text.replace("path = 'eats.onnx'", "path = 'eats.onnx'\nmemory = '300 MB'"))
    found = {result.model: result for result in run(file).results}
    assert {name: result.state for name, result in found.items()} == {
        "fine": "good",
        "bad": "bad",
        "refused": "refused",
        "raises": "failed",
        "dies": "died",
        "hangs": "over time",
        "eats": "over memory",
        "goes on": "good",
    }
    assert calls(tmp_path, "goes on") == 3  # without the call that ended it, and then without the other one
    assert not list(tmp_path.rglob(".call"))
    assert found["refused"].why == "a.onnx is no model"
    assert "ValueError: unforeseen" in found["raises"].why
    assert "SIGSEGV" in found["dies"].why
    assert "1 s" in found["hangs"].why and "0.30 GB" in found["eats"].why
    assert found["fine"].fp32_share == 0.0 and found["fine"].nodes == 10


def test_jobs_that_outgrow_the_memory_together_run_one_after_the_other(tmp_path: Path) -> None:
    """They take more than was thought; the one that began last is stopped, and begins anew."""
    models: dict[str, dict[str, object]] = {
        name: {"holds": 450, "beside": other} for name, other in (("a", "b"), ("b", "a"))
    }
    file = fleet(tmp_path, models)
    file.write_text(file.read_text().replace("'2 GB'", "'900 MB'"))
    for name in models:
        (tmp_path / f"{name}.pids").touch()
    found = run(file)
    assert [result.state for result in found.results] == ["good", "good"]
    assert calls(tmp_path, "a") + calls(tmp_path, "b") == 3


def test_more_processes_than_jobs_are_as_many_as_jobs(tmp_path: Path) -> None:
    file = fleet(tmp_path, {"a": {}})
    file.write_text(file.read_text().replace("processes = 2", f"processes = {10**15}"))
    assert run(file).good


def test_libraries_are_told_how_to_behave_whoever_starts_the_fleet(tmp_path: Path) -> None:
    count = "int(os.environ['ORT_DISABLE_TELEMETRY']) + int(os.environ['OPENBLAS_NUM_THREADS'])"
    (tmp_path / "told.py").write_text(f"import os\nmake = lambda: [{{'x': [1.0]}}] * ({count})")
    file = fleet(tmp_path, {"a": {"fp32": "samples"}}, function="told:make")
    assert [each.fp32_nodes for each in run(file).results] == [2]


def test_one_job_at_a_time_is_on_the_gpu(tmp_path: Path) -> None:
    assert run(fleet(tmp_path, {"a": {}, "b": {}, "c": {}}, device="cuda")).good


def test_what_is_done_is_not_done_again_and_what_changed_is_told(tmp_path: Path) -> None:
    file = fleet(tmp_path, {"same": {}, "worse": {"fp32": 1}, "better": {"error": 1e-2}, "dies": {"ends": "segfault"}})
    first = run(file)
    assert {change.direction for change in first.changes} == {"new"}
    again = run(file)
    assert again.reused == 3 and not again.changes  # what died is tried again
    (tmp_path / "worse.onnx").write_text(json.dumps({"fp32": 3}))
    (tmp_path / "better.onnx").write_text(json.dumps({"error": 1e-4}))
    (tmp_path / "dies.onnx").write_text("{}")
    third = run(file)
    told = {change.now.model: (change.direction, change.what) for change in third.changes}
    assert told == {"worse": ("worse", "FP32 nodes"), "better": ("better", "error"), "dies": ("better", "state")}
    assert [calls(tmp_path, name) for name in ("same", "worse", "dies")] == [1, 2, 3]
    assert [result.fp32_nodes for result in history_of(tmp_path / "fleet-results", "worse").results] == [1, 3]
    assert last_run(tmp_path / "fleet-results").to_json()["changes"] == third.to_json()["changes"]


def test_a_killed_fleet_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """Nothing of it is left running, and nothing that ended is done twice."""
    file = fleet(tmp_path, {"a": {}, "b": {}, "waits": {"ends": "hang"}})
    code = (
        "from pathlib import Path; from tests.fleet.test_run import run; import sys\n"
        "if __name__ == '__main__': run(Path(sys.argv[1]))"
    )
    (tmp_path / "main.py").write_text(code)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    child = subprocess.Popen([sys.executable, str(tmp_path / "main.py"), str(file)], env=environment)
    store = tmp_path / "fleet-results" / STORE
    while child.poll() is None:
        if (tmp_path / "waits.calls").exists() and store.exists():
            with sqlite3.connect(store) as db:
                if db.execute("SELECT count(*) FROM results").fetchone()[0] == 2:
                    break
        time.sleep(0.1)
    child.send_signal(signal.SIGKILL)
    child.wait()
    left = (tmp_path / "waits.pids").read_text().split()
    while any(Path(f"/proc/{number}").exists() for number in left):
        time.sleep(0.1)
    killed = last_run(tmp_path / "fleet-results")
    assert (len(killed.results), killed.good, killed.to_json()["ended"]) == (2, False, False)
    assert killed.told == "2 of 2 jobs good; the run has not ended"
    (tmp_path / "waits.onnx").write_text("{}")
    after = run(file)
    assert after.good and after.reused == 2
    assert [calls(tmp_path, name) for name in ("a", "b", "waits")] == [1, 1, 2]
    with Store(tmp_path / "fleet-results", write=False) as opened:
        assert [state for _, _, _, state in opened.runs()] == ["ended", "interrupted"]


class _Ends:
    """Stands for processes: the first dies of a native call, the second is done; no such numbers are anybody's."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.killed: list[int] = []

    def start(self, function: str, data: dict[str, Any]) -> int:
        folder = Path(data["order"]["folder"])
        folder.mkdir(parents=True, exist_ok=True)
        if not self.started:
            BlackBox(folder / CALL).write(b"running a model")
        self.started.append((1 << 30) + len(self.started))
        return self.started[-1]

    def ended(self, timeout: float) -> dict[int, int]:
        return {self.started[0]: -signal.SIGSEGV, self.started[1]: 2} if len(self.started) == 2 else {}

    def kill(self, number: int) -> None:
        self.killed.append(number)


def test_a_job_that_begins_again_ends_with_the_fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever happens in the same moment: here the other job's result cannot be stored."""
    ends = _Ends()
    monkeypatch.setattr(processes, "forked", lambda preload: ends)
    tasks = [Task(Order((), str(tmp_path / name), "", ""), 1, 1 << 40, 60.0) for name in ("again", "done")]

    def report(index: int, outcome: Outcome) -> None:
        raise OSError(f"job {index} cannot be stored")

    with pytest.raises(OSError, match="job 1 cannot be stored"):
        run_here(tasks, toy, Limits(2, 1 << 40), report, lambda places, waiting: None)
    assert len(ends.started) == 3 and ends.killed == [ends.started[2]]


def test_two_files_of_one_name_are_refused(tmp_path: Path, says: Says) -> None:
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "m.onnx").write_text("{}")
    (tmp_path / "fleet.toml").write_text("[[models]]\npath = '*/m.onnx'\n")
    with says.raises(InputError):
        run(tmp_path / "fleet.toml")


def test_versions_are_told_apart_and_compared(tmp_path: Path) -> None:
    for number, nodes in ((9, 1), (10, 2)):
        (tmp_path / f"net-{number}.onnx").write_text(json.dumps({"fp32": nodes}))
    (tmp_path / "fleet.toml").write_text("[[models]]\nname = 'net'\npath = 'net-*.onnx'\nversions = true\n")
    assert [(r.version, r.fp32_nodes) for r in run(tmp_path / "fleet.toml").results] == [("net-9", 1), ("net-10", 2)]


def test_exports_name_what_is_not_good(tmp_path: Path) -> None:
    found = run(fleet(tmp_path, {"fine": {"fp32": 2}, "<b>": {"ends": "refused"}}, do=["scan", "fix"]))
    junit = junit_text(found)
    assert 'tests="4"' in junit and "&lt;b&gt; fix onnx" in junit and junit.count("<error ") == 2
    results = [each for one in json.loads(sarif_text(found))["runs"] for each in one["results"]]
    assert [each["ruleId"] for each in results] == ["HW905", "HW905"]
    text = markdown_text(found)
    assert "2 of 4 jobs good" in text and "LayerNormalization" in text and "`<b> scan`" in text
    page = page_text(found, tmp_path)
    assert "2 of 4 jobs good" in page and "<b> " not in page


def test_what_is_one_thing_counts_once_and_each_model_once(tmp_path: Path) -> None:
    """A norm of several nodes, seen by two jobs on one model, is one norm."""
    norm = {"what": "decomposed LayerNorm", "nodes": ["n0", "n1"]}
    models = {"a": {"fp32": 3, "things": [norm]}, "b": {"fp32": 2, "things": [norm]}}
    found = run(fleet(tmp_path, models, targets=["onnx", "trt-10.9@t4"]))
    assert culprits_of(found.results) == [
        ("decomposed LayerNorm: overflow", 2, 2),
        ("LayerNormalization: overflow", 1, 1),
    ]
