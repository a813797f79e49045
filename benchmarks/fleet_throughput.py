"""A fleet against a shell loop of `halfwise fix`: python -m benchmarks.fleet_throughput [--models N] [--nodes MOST].

The same generated models, all cores that this process may use (`taskset`). With `--part 2/8` every eighth of the models
is run, from number 2 on, so that pairs of cores share them. The fleet's overhead: the time of a run in
which every job is a scan of the smallest model, less the jobs' own seconds, for each job. Memory: the most that all
processes of the fleet held at once, of their own, against the budget of its file. With `--workers` the loop is left
out: fleets with so many processes, a core each and as many models for each, and the efficiency against the first.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from benchmarks.contest import machine, markdown
from benchmarks.fleet_models import MOST, sizes, write_fleet

__all__ = ["main", "parser"]

HEAD = ("run", "jobs", "seconds", "jobs an hour", "CPU s", "peak GB")
SCALE = ("workers", "jobs", "good", "seconds", "jobs an hour", "CPU s", "peak GB", "speed-up", "efficiency")
CONTROL = 50  # small jobs whose overhead is measured
TICK_S = 0.5


@dataclass(frozen=True)
class Ran:
    """`cpu`: seconds of all its processes. `peak`: bytes that they held at once."""

    seconds: float
    cpu: float
    peak: int
    out: bytes

    def row(self, name: str, jobs: int) -> tuple[str, ...]:
        rate = f"{3600 * jobs / self.seconds:.0f}"
        return (name, str(jobs), f"{self.seconds:.1f}", rate, f"{self.cpu:.1f}", f"{self.peak / 1e9:.2f}")


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.workers:
        print(f"{machine()}\n\n{markdown(SCALE, _scaled(options))}")
        return 0
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="halfwise-throughput-") as name:
        folder = Path(name)
        first, parts = map(int, options.part.split("/"))
        wanted = sizes(options.models, options.nodes)[first::parts]
        write_fleet(folder, wanted, f'memory = "{options.memory} MB"', first, parts)
        nodes = [len(onnx.load(path).graph.node) for path in sorted(folder.glob("*.onnx"))]
        fleet = ran(["fleet", "run", "--json"], folder)
        good = sum(job["state"] == "good" for job in json.loads(fleet.out)["jobs"])
        again = ran(["fleet", "run", "--json"], folder)
        loop = ran_loop(folder)
        overhead = _overhead(folder, cores)
    print(f"{machine()}; {len(nodes)} models of {min(nodes)} to {max(nodes)} nodes, {good} good\n")
    runs = {"shell loop": loop, "fleet": fleet, "fleet again": again}
    print(markdown(HEAD, [found.row(name, len(nodes)) for name, found in runs.items()]))
    print(
        f"\nThe fleet is {loop.seconds / fleet.seconds:.2f} times as fast ({loop.cpu / fleet.cpu:.2f} by CPU time). "
        f"Overhead a job: {1e3 * overhead:.0f} ms. "
        f"Memory: {fleet.peak / 1e6:.0f} MB held at most, of {options.memory} MB allowed to jobs."
    )
    return 0


def _scaled(options: argparse.Namespace) -> list[tuple[str, ...]]:
    allowed = sorted(os.sched_getaffinity(0))
    rows: list[tuple[str, ...]] = []
    alone = 0.0  # jobs a second of one worker in the first row
    for count in options.workers:
        with tempfile.TemporaryDirectory(prefix="halfwise-workers-") as name:
            folder = Path(name)
            settings = f'processes = {count}\nmemory = "{options.memory} MB"'
            write_fleet(folder, sizes(options.models, options.nodes) * count, settings)
            os.sched_setaffinity(0, allowed[:count])
            found = ran(["fleet", "run", "--json"], folder)
            os.sched_setaffinity(0, allowed)
            jobs = json.loads(found.out)["jobs"]
        rate = len(jobs) / found.seconds
        alone = alone or rate / count
        _, *told = found.row("", len(jobs))
        good = sum(job["state"] == "good" for job in jobs)
        rows.append((str(count), told[0], str(good), *told[1:], f"{rate / alone:.2f}", f"{rate / alone / count:.0%}"))
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def ran(words: Sequence[str], folder: Path) -> Ran:
    return _watched([sys.executable, "-m", "halfwise", *words], folder)


def ran_loop(folder: Path) -> Ran:
    """As one would write it."""
    line = f"for m in *.onnx; do {sys.executable} -m halfwise fix $m --inputs ${{m%.onnx}}-inputs --out loop/$m; done"
    return _watched(["bash", "-c", line], folder)


def _watched(command: Sequence[str], folder: Path) -> Ran:
    before, began, peaks = os.times(), time.monotonic(), [0]
    with (folder / "out").open("w+b") as out:
        child = subprocess.Popen(list(command), cwd=folder, stdout=out, stderr=subprocess.DEVNULL)

        def look() -> None:
            while child.poll() is None:
                peaks.append(_held(child.pid))
                time.sleep(TICK_S)

        watcher = threading.Thread(target=look)
        watcher.start()
        watcher.join()
        seconds = time.monotonic() - began
        out.seek(0)
        told = out.read()
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Ran(seconds, cpu, max(peaks), told)


def _held(process: int) -> int:
    """Bytes of a process and of all below it, without what forks share."""
    held = 0
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss_Anon:"):
                held = int(line.split()[1]) << 10
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in (task / "children").read_text(encoding="ascii").split():
                held += _held(int(child))
    return held


def _overhead(folder: Path, cores: int) -> float:
    """Seconds of a place in which a job could have run, for each job: what the fleet does between two."""
    small = folder / "small"
    small.mkdir()
    first = min(folder.glob("*.onnx"), key=lambda path: path.stat().st_size)
    lines = ["[fleet]", f"processes = {cores}", "[defaults]", 'do = ["scan"]', "[[models]]", 'path = "*.onnx"']
    (small / "fleet.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for index in range(CONTROL):
        model = onnx.load(first)
        model.doc_string = str(index)
        onnx.save(model, small / f"{index}.onnx")
    jobs: list[dict[str, Any]] = json.loads(ran(["fleet", "run", "--json"], small).out)["jobs"]
    first_start = min(job["started"] for job in jobs)
    last_end = max(job["started"] + job["seconds"] for job in jobs)
    busy: float = sum(job["seconds"] for job in jobs)
    return float(cores * (last_end - first_start) - busy) / len(jobs)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.fleet_throughput", description=(__doc__ or "").splitlines()[0]
    )
    made.add_argument("--models", type=int, default=200, help="how many")
    made.add_argument("--nodes", type=int, default=MOST, help="of the largest")
    made.add_argument("--part", default="0/1", help="which of how many parts of the models")
    made.add_argument("--workers", type=int, nargs="*", default=[], help="such as 1 2 4 8: how it scales")
    made.add_argument("--memory", type=int, default=2000, help="MB that the fleet's jobs may hold together")
    return made


if __name__ == "__main__":
    sys.exit(main())
