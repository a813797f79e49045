"""The page of a fleet: small with 500 models, safe with any name, what broke first."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from halfwise.fleet.changes import changes
from halfwise.fleet.jobs import Job, Need
from halfwise.fleet.outcome import Outcome
from halfwise.fleet.run import FleetRun
from halfwise.fleet.store import Store
from halfwise.fleet.write import page_text
from tests.support.paths import ROOT

MODELS, RUNS = 500, 8
EVIL = "</script><img src=x onerror=alert(1)>"


def filled(folder: Path) -> FleetRun:
    """Two actions for each of 500 models, over eight runs; in the last one the model 77 breaks."""
    with Store(folder, write=True) as store:
        store._db.execute("PRAGMA synchronous = OFF")
        for number in range(RUNS):
            run = store.begin("1.0", "")
            made = []
            for index in range(MODELS):
                name = EVIL if index == 3 else f"network-{index}"
                job = Job(name, "", Path(f"{index}.onnx"), "fix", "onnx", (), (), (), "", None, None, Need(1, 0))
                good = Outcome("good", "", time.time(), 3.0, 10**8, None, 300, index % 40, 0.1, 1e-3, 12.0)
                good = replace(good, culprits=(("LayerNormalization: overflow", 3),), report="m.report.html")
                broke = index == 77 and number == RUNS - 1
                outcome = replace(good, state="bad", why="not-met") if broke else good
                made.append(store.add(run, job, f"{number}-{index}", outcome, "1.0", f"{index}/fix", "here"))
            store.end(run, "ended")
        return FleetRun(folder, run, tuple(made), 0, tuple(changes(store.before(run), made)))


def test_five_hundred_models(tmp_path: Path) -> None:
    run = filled(tmp_path)
    page = page_text(run, tmp_path)
    assert len(page.encode()) < 3_000_000
    assert EVIL not in page
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    first = data["models"][0]
    assert (first["name"], first["jobs"][0]["change"]) == ("network-77", "worse")
    assert [point[3] for point in first["jobs"][0]["history"]] == ["good"] * (RUNS - 1) + ["bad"]
    assert data["models"][1]["jobs"][0]["report"].endswith("/fix/out/m.report.html")
    assert f'<td class="right">{MODELS * 3}</td><td class="right">{MODELS}</td>' in page


def test_what_runs_no_job_loads_no_verb() -> None:
    """A fleet of which all is done ends as fast as it can say so."""
    code = "import halfwise.fleet.write, sys; sys.exit(sum(m.startswith('halfwise.verbs') for m in sys.modules))"
    given = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    assert subprocess.run([sys.executable, "-c", code], env=given, check=False).returncode == 0
