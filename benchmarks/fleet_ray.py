"""A fleet on a real Ray cluster of this machine: python -m benchmarks.fleet_ray [--models N] [--nodes MOST].

Needs Ray in the Python that runs it. Each row is one run of the same fleet: on this machine, on one to three nodes of
one core each, with a node killed in the middle, and with the driver killed in the middle and started again. Equal: all
documents but for time and memory, and all models and plans written, are the same bytes as on one machine. Done: results
in the store; a job that is done twice would have two. With `--billions` the fleet is one large model, whose inputs are
shared among the nodes: how many each answered for it, and the speed-up where each node has a free core of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.contest import machine, markdown
from benchmarks.fleet_models import sizes, write_fleet
from benchmarks.zoo.decoder import Sizes, save_feeds, write_decoder
from halfwise.fleet.helped import HELPED
from halfwise.fleet.store import STORE

__all__ = ["main", "on_paper", "parser"]

HEAD = ("run", "equal", "jobs", "done", "again", "seconds", "speed-up", "efficiency")
LONG = ("nodes", "equal", "passes", "inputs answered elsewhere", "seconds", "speed-up with free cores")
MEMORY, OBJECTS, LARGE = 3 << 30, 100 << 20, 900 << 20  # bytes of a node
LIMIT_S = 900.0
NODES, CORES, MODELS, WIRE = 64, 16, 10_000, 1.25e9  # on paper; the wire in bytes a second


@dataclass(frozen=True)
class Done:
    """One run. `driver`: CPU seconds of the process that hands out the jobs."""

    jobs: int
    results: int
    reused: int
    seconds: float
    driver: float
    answers: dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="halfwise-fleet-ray-") as name:
        folder = Path(name)
        origin = folder / "origin"
        origin.mkdir()
        if options.billions:
            return long_pole(options, origin)
        write_fleet(origin, sizes(options.models, options.nodes), "processes = 1")
        size = sum(path.stat().st_size for path in origin.rglob("*") if path.is_file())

        def copied(to: str) -> Path:
            return Path(shutil.copytree(origin, folder / to))

        one = ended(started(copied("one")), folder / "one")
        rows = [row("one machine, one process", one, one, None)]
        alone, again = None, one
        for workers in options.workers:
            with cluster(workers) as (address, _):
                place = copied(f"ray-{workers}")
                found = ended(started(place, address), place)
                alone = alone or found
                rows.append(row(f"Ray, {workers} nodes", found, one, alone.seconds / found.seconds, workers))
                again = ended(started(place, address), place)
                print(f"{workers} nodes: {found.seconds:.0f} s", file=sys.stderr, flush=True)
        with cluster(3) as (address, kill_node):
            rows.append(row("a node killed", killed(copied("node"), address, kill_node), one, None))
            rows.append(row("the driver killed", killed(copied("driver"), address, None), one, None))
    print(f"{machine()}\n\n{markdown(HEAD, rows)}\n")
    overhead = (alone.driver - again.driver) / alone.jobs if alone else 0.0
    print(on_paper(one.seconds / one.jobs, overhead, size / one.jobs))
    return 0 if all(each[1] == "yes" for each in rows) else 1


def long_pole(options: argparse.Namespace, origin: Path) -> int:
    sizes = Sizes.of(options.billions)
    model = write_decoder(origin, sizes)
    save_feeds(origin / "inputs", sizes)
    lines = ["[fleet]", "processes = 1", "[[models]]", f'path = "{model.name}"', 'inputs = "inputs"']
    (origin / "fleet.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    one, rows = None, []
    for workers in options.workers:
        with cluster(workers, LARGE) as (address, _):
            place = Path(shutil.copytree(origin, origin.with_name(f"ray-{workers}")))
            found = ended(started(place, address), place)
        one = one or found
        helped = [json.loads(file.read_text()) for file in place.rglob(HELPED)]
        elsewhere = [str(count) for each in helped for count in each["nodes"].values()]
        took = float(next(iter(found.answers.values()))[1]["cost"]["model_runs"]) if found.answers else 0.0
        saved = sum(each["saved_s"] for each in helped)
        told = f"{one.seconds / (one.seconds - saved):.2f}" if one.seconds > saved else ""
        equal = "yes" if found.answers == one.answers else "NO"
        rows.append((str(workers), equal, f"{took:.1f}", " + ".join(elsewhere), f"{found.seconds:.0f}", told))
        print(rows[-1], file=sys.stderr, flush=True)
    print(f"{machine()}; {sizes.parameters / 1e9:.2f} billion parameters\n\n{markdown(LONG, rows)}")
    return 0 if all(each[1] == "yes" for each in rows) else 1


def on_paper(job: float, driver: float, sent: float) -> str:
    """What many more models on many nodes take, where every part scales as it was measured."""
    work = MODELS * job / (NODES * CORES)
    handing, wire = MODELS * driver, MODELS * sent / WIRE
    most = max((work, "the jobs"), (handing, "the driver"), (wire, "the driver's network"))
    job_floor = job / driver if driver else float("inf")
    return (
        f"On paper, {MODELS:,} such models on {NODES} nodes of {CORES} cores: {work:.0f} s of jobs "
        f"({job:.1f} s each), {handing:.0f} s of the driver ({1e3 * driver:.0f} ms each), {wire:.0f} s of its network "
        f"({sent / 1e6:.1f} MB each at 10 Gbit/s). First to choke: {most[1]}; the driver feeds at most "
        f"{job_floor:.0f} cores with jobs of this length."
    )


def started(folder: Path, address: str | None = None) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "halfwise", "fleet", "run", "--json"]
    command += ["--ray", address] if address else []
    with (folder / "out.json").open("wb") as out, (folder / "err.txt").open("wb") as errors:
        return subprocess.Popen(command, cwd=folder, stdout=out, stderr=errors)


def ended(child: subprocess.Popen[bytes], folder: Path) -> Done:
    began = time.monotonic()
    _, _, usage = os.wait4(child.pid, 0)
    seconds = time.monotonic() - began
    try:
        said = json.loads((folder / "out.json").read_text())
    except ValueError:
        raise SystemExit((folder / "err.txt").read_text()) from None
    results = count(folder)
    return Done(len(said["jobs"]), results, said["reused"], seconds, usage.ru_utime + usage.ru_stime, answers(folder))


def killed(folder: Path, address: str, kill_node: Callable[[], None] | None) -> Done:
    """A node, or the driver, killed when a third of the jobs is done; the driver starts again then."""
    began = time.monotonic()
    child = started(folder, address)
    wanted = len(list(folder.glob("*.onnx"))) // 3
    while count(folder) < wanted:
        if child.poll() is not None or time.monotonic() - began > LIMIT_S:
            raise SystemExit((folder / "err.txt").read_text())
        time.sleep(0.1)
    if kill_node is not None:
        kill_node()
        return ended(child, folder)
    os.killpg(child.pid, signal.SIGKILL) if os.getpgid(child.pid) == child.pid else child.kill()
    child.wait()
    return ended(started(folder, address), folder)


def count(folder: Path) -> int:
    store = folder / "fleet-results" / STORE
    if not store.exists():
        return 0
    try:
        with closing(sqlite3.connect(f"{store.as_uri()}?mode=ro", uri=True, timeout=30.0)) as db:
            return int(db.execute("SELECT count(*) FROM results").fetchone()[0])
    except sqlite3.OperationalError:  # which is being made
        return 0


def answers(folder: Path) -> dict[str, Any]:
    """By model: the document without its costs, and a digest of what was written."""
    found: dict[str, Any] = {}
    with closing(sqlite3.connect(folder / "fleet-results" / STORE)) as db:
        for model, state, place, packed in db.execute("SELECT model, state, folder, document FROM results"):
            document = json.loads(zlib.decompress(packed)) if packed else {}
            for measured in ("seconds", "peak_rss_mb"):
                document.get("cost", {}).pop(measured, None)
            written = sorted((folder / "fleet-results" / place / "out").glob("*.[op][nl]*"))
            digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in written}
            found[model] = (state, document, digests)
    return found


def row(name: str, found: Done, one: Done, speed_up: float | None, workers: int = 1) -> tuple[str, ...]:
    equal = found.answers == one.answers and found.jobs == found.results == len(one.answers)
    told = ("", "") if speed_up is None else (f"{speed_up:.2f}", f"{speed_up / workers:.0%}")
    cells = (found.jobs, found.results, found.jobs - found.reused, round(found.seconds))
    return (name, "yes" if equal else "NO", *map(str, cells), *told)


@contextmanager
def cluster(workers: int, objects: int = OBJECTS) -> Iterator[tuple[str, Callable[[], None]]]:
    """Nodes of one core each, beside a head without any: its address, and what kills a node."""
    made = import_module("ray.cluster_utils").Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": OBJECTS}
    )
    try:
        nodes = [made.add_node(num_cpus=1, memory=MEMORY, object_store_memory=objects) for _ in range(workers)]
        made.wait_for_nodes()
        yield made.address, lambda: made.remove_node(nodes[-1], allow_graceful=False)
    finally:
        made.shutdown()


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.fleet_ray", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--models", type=int, default=12, help="how many")
    made.add_argument("--nodes", type=int, default=260, help="of the largest")
    made.add_argument("--billions", type=float, default=0.0, help="parameters of the one large model instead")
    made.add_argument("--workers", type=int, nargs="*", default=[1, 2, 3], help="nodes of a core each")
    return made


if __name__ == "__main__":
    sys.exit(main())
