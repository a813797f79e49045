"""Jobs on a real Ray cluster of three nodes on this machine; nothing is asked where Ray is not installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from halfwise.fleet.on_ray import OnRay
from halfwise.fleet.run import FleetRun, Watcher, run_fleet
from halfwise.fleet.settings import read_settings
from tests.fleet.test_run import fleet, run
from tests.fleet.verbs import toy
from tests.support.paths import ROOT

pytest.importorskip("ray")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    from benchmarks.fleet_ray import cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT)]))  # of the nodes
        with cluster(3) as (address, _):
            yield address


def there(file: Path, address: str) -> FleetRun:
    return run_fleet(read_settings(file), toy, Watcher(), OnRay(address))


def said(found: FleetRun) -> list[tuple[object, ...]]:
    return [(each.model, each.state, each.nodes, each.fp32_nodes, each.error) for each in found.results]


def test_modules_of_functions_and_metrics_travel_with_what_they_import(tmp_path: Path, address: str) -> None:
    models: dict[str, dict[str, object]] = {name: {"fp32": "samples"} for name in ("a", "b", "c", "d")}
    for name in ("here", "there"):
        (tmp_path / name / "made").mkdir(parents=True)
        (tmp_path / name / "made/__init__.py").write_text("")
        (tmp_path / name / "made/samples.py").write_text(
            "from . import sizes\ndef make(): return [{'x': [1.0]}] * sizes.COUNT"
        )
        (tmp_path / name / "made/sizes.py").write_text("import neighbour\nCOUNT = neighbour.COUNT + 1")
        (tmp_path / name / "neighbour.py").write_text("COUNT = 2")
        (tmp_path / name / "measures.py").write_text("import neighbour\ndef error(a, b): return float(neighbour.COUNT)")
    asked = {"function": "made.samples:make", "metric": "measures:error", "tolerance": "metric<=1"}
    one = run(fleet(tmp_path / "here", models, **asked))
    file = fleet(tmp_path / "there", models, **asked)
    other = there(file, address)
    assert said(one) == said(other) == [(name, "good", 10, 3, 2.0) for name in models]
    assert there(file, address).reused == len(models)
    assert len({result.host for result in other.results}) == 1  # the store's, whose machine asked
    (tmp_path / "there/neighbour.py").write_text("COUNT = 4")
    assert said(there(file, address)) == [(name, "good", 10, 5, 4.0) for name in models]


def test_a_job_that_dies_hangs_or_eats_ends_there_as_it_does_here(tmp_path: Path, address: str) -> None:
    ends = ("good", "bad", "refused", "raise", "segfault", "hang", "eat", "vanish", "crashes in a library")
    file = fleet(tmp_path, {each: {"ends": each} for each in ends})
    text = file.read_text().replace("path = 'hang.onnx'", "path = 'hang.onnx'\nseconds = 1")
    file.write_text(text.replace("path = 'eat.onnx'", "path = 'eat.onnx'\nmemory = '300 MB'"))
    states = ["good", "bad", "refused", "failed", "died", "over time", "over memory", "refused", "good"]
    assert [result.state for result in there(file, address).results] == states
