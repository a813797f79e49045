"""Is a set that holds and is faster ever passed over? Small networks, all sets of FP32 nodes, times of a GPU.

    python -m benchmarks.gpu.fastest kernels FOLDER [COUNT [PROCESSES]]         what is to be timed
    python -m benchmarks.gpu.fastest times FOLDER [SECONDS]                     on the GPU: FOLDER/machine.json
    python -m benchmarks.gpu.fastest choose FOLDER [PROCESSES]                  `fix --cost`, and the sets that rival it
    python -m benchmarks.gpu.fastest measure FOLDER OUT.json [SECONDS]          on the GPU: each as one CUDA graph
    python -m benchmarks.gpu.fastest table OUT.json

Of every network all sets are told apart by predicted time; the fastest that keep what `fix` demands are measured beside
its answer, plain FP16 and FP32.
"""

from __future__ import annotations

import datetime
import json
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from msgspec import convert

from benchmarks.optimum.demands import Demands
from benchmarks.optimum.graphs import Problem, problem
from benchmarks.optimum.switched import Switched
from halfwise.core.formats import Format
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.latency import Kernel, Shapes, kernels_of
from halfwise.emulation.profiles import STRICT
from halfwise.emulation.profiles.machine import MachineDocument, Ran, read_machine, signed
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.timing.law import Law, measured_law
from halfwise.emulation.timing.operation import Operation
from halfwise.emulation.timing.record import TimeRecord, TimesRecord
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto
from halfwise.search.tensor_statistics import tensor_statistics

__all__ = ["main"]

_NODES, _TOKENS, _WIDTH, _SAMPLES = (7, 10), 1024, 256, 4
_RIVALS = 8  # sets that hold, measured beside the answer
_ASKED = 60  # sets of which that is asked
_SLOWER = 1.03


def main() -> None:
    verb, place, *rest = sys.argv[1:]
    folder = Path(place)
    if verb == "kernels":
        folder.mkdir(parents=True, exist_ok=True)
        seeds = range(int(rest[0]) if rest else 24)
        _each(_kernels, [(folder, seed) for seed in seeds], int(rest[1]) if len(rest) > 1 else 2)
    elif verb == "times":
        _times(folder, float(rest[0]) if rest else 100.0)
    elif verb == "choose":
        known = sorted(int(path.stem) for path in (folder / "kernels").glob("*.json"))
        _each(_choose, [(folder, seed) for seed in known], int(rest[0]) if rest else 2)
    elif verb == "measure":
        _measure(folder, Path(rest[0]), float(rest[1]) if len(rest) > 1 else 100.0)
    else:
        _table(folder)


def _each(work: Callable[[Path, int], str], jobs: Iterable[tuple[Path, int]], processes: int) -> None:
    with ProcessPoolExecutor(processes) as pool:
        running = {pool.submit(work, *job): job for job in jobs}
        for done in as_completed(running):
            error = done.exception()
            print(
                f"{running[done][1]}: {error!r}"[:300] if error else f"{running[done][1]}: {done.result()}", flush=True
            )


def _posed(seed: int) -> tuple[Problem, Sites, Shapes]:
    posed = problem(seed, _NODES, _TOKENS, _WIDTH, _SAMPLES)
    sites = Sites(load(posed.model))
    return posed, sites, tensor_statistics(Stepper(Emulator(STRICT)), sites, posed.feeds[0]).shapes


def _decision(sites: Sites, wide: Iterable[ir.Node]) -> Assignment:
    kept = frozenset(wide)
    if len(kept) == len(sites.free):
        return Assignment(sites, {}, Format.FP32)
    return Assignment.all_narrow(sites, kept)


def _kernels(folder: Path, seed: int) -> str:
    """Of plain FP16, FP32, and every set of one node or of all but one."""
    _, sites, shapes = _posed(seed)
    nodes = [site.node for site in sites.free]
    found: dict[str, Any] = {}
    for wide in ([], nodes, *([node] for node in nodes), *([n for n in nodes if n is not node] for node in nodes)):
        for kernel in kernels_of(_decision(sites, wide), shapes):
            told = {"operation": kernel.operation.to_json(), "format": kernel.format.value}
            found.setdefault(f"{kernel.operation.key} {kernel.format.value}", told)
    out = folder / "kernels" / f"{seed}.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(list(found.values())), encoding="utf-8")
    return f"{len(nodes)} nodes, {len(found)} kernels"


def _times(folder: Path, seconds: float) -> None:
    from benchmarks.gpu.cuda import machine, prepare
    from halfwise.backends.runtime_timing import clock_named, graph_overhead, time_operation

    prepare()
    clock, until = clock_named("ort-cuda", 0), time.monotonic() + seconds
    rows: dict[tuple[str, str], TimeRecord] = {}
    for path in sorted((folder / "kernels").glob("*.json"), key=lambda each: int(each.stem)):
        for told in json.loads(path.read_text(encoding="utf-8")):
            operation, kind = convert(told["operation"], Operation), told["format"]
            if (operation.key, kind) in rows or time.monotonic() > until:
                continue
            try:
                done = time_operation(clock, operation, kind)
            except Exception as error:
                print(f"{operation.key} {kind}: {' '.join(str(error).split())[:160]}", flush=True)
                continue
            rows[operation.key, kind] = TimeRecord(
                operation, kind, 1e3 * done.milliseconds, done.spread, 1e3 * done.cold_ms
            )
    about = machine()
    times = TimesRecord(clock.title, 1e3 * graph_overhead(clock), tuple(rows.values()), cache_bytes=clock.cache)
    ran = Ran("ort-cuda", "ONNX Runtime", about["onnxruntime"], about["gpu"], driver=about["driver"])
    document = MachineDocument(ran, "0", datetime.date.today().isoformat(), seconds, (), times)
    (folder / "machine.json").write_text(json.dumps(signed(document).to_json()), encoding="utf-8")
    print(f"{len(rows)} operators of {about['gpu']}")


def _law(folder: Path) -> Law:
    times = read_machine(folder / "machine.json").times
    assert isinstance(times, TimesRecord)
    return measured_law(times.rows, "", times.cache_bytes)


def _choose(folder: Path, seed: int) -> str:
    """The answer, and the sets that hold and are predicted to be fastest."""
    from halfwise.verbs.fix.fix import fix

    posed, sites, shapes = _posed(seed)
    law, nodes = _law(folder), {site.name: site.node for site in sites.free}
    switched = Switched(posed, sites)
    plain = float(switched.errors((1 << len(nodes)) - 1).max())
    allowed = plain * np.random.default_rng((seed, 1)).uniform(0.15, 0.9) if np.isfinite(plain) else 0.01
    allowed = float(f"{min(max(allowed, 1e-5), 0.02):.3g}")
    found = fix(posed.model, list(posed.feeds), tolerance=(f"rel_l2<={allowed}",), repairs=("none",),
                cost=folder / "machine.json")  # fmt: skip
    kept = tuple(found.fp32_nodes)
    demands = Demands(posed, sites, switched, allowed, kept)

    def predicted(wide: Iterable[str]) -> float:
        kernels = list(kernels_of(_decision(sites, [nodes[name] for name in wide]), shapes))
        return _microseconds(law, kernels)

    narrow = {mask: [name for place, name in enumerate(switched.names) if not mask >> place & 1]
              for mask in range(1 << len(nodes))}  # fmt: skip
    us = {mask: predicted(wide) for mask, wide in narrow.items()}
    rivals: list[int] = []
    asked = 0
    for mask in sorted(us, key=us.__getitem__):
        if len(rivals) == _RIVALS or asked == _ASKED:
            break
        asked += 1
        if demands.holds(mask):
            rivals.append(mask)
    sets = {"fixed": list(kept), "fp16": [], "fp32": list(nodes)}
    sets |= {f"rival{place}": narrow[mask] for place, mask in enumerate(rivals) if set(narrow[mask]) != set(kept)}
    own = folder / str(seed)
    own.mkdir(exist_ok=True)
    for name, wide in sets.items():
        onnx.save(typed_proto(_decision(sites, [nodes[each] for each in wide])), own / f"{name}.onnx")
    np.savez(own / "feed.npz", **posed.feeds[0])  # type: ignore[arg-type]
    row = {"seed": seed, "nodes": len(nodes), "met": found.met, "tolerance": allowed, "plain": plain, "asked": asked,
           "sets": sets, "predicted": {name: predicted(wide) for name, wide in sets.items()},
           "holding": len(rivals), "parts": posed.parts}  # fmt: skip
    (own / "row.json").write_text(json.dumps(row), encoding="utf-8")
    return f"{len(kept)} of {len(nodes)} in FP32, {len(rivals)} rivals of {asked} sets"


def _microseconds(law: Law, kernels: list[Kernel]) -> float:
    missed = law.missed(sum(kernel.weights for kernel in kernels))
    return sum(
        law.microseconds(each.operation, "fp32" if each.format is Format.FP32 else "fp16", missed) for each in kernels
    )


def _measure(folder: Path, out: Path, seconds: float) -> None:
    from benchmarks.gpu.cuda import cuda_session, half, machine, prepare
    from halfwise.backends.runtime_timing import clock_named, time_session

    prepare()
    clock, until = clock_named("ort-cuda", 0), time.monotonic() + seconds
    rows = []
    for path in sorted(folder.glob("*/row.json"), key=lambda each: int(each.parent.name)):
        row = json.loads(path.read_text(encoding="utf-8"))
        if time.monotonic() > until:
            break
        row["measured"] = {}
        with np.load(path.parent / "feed.npz") as saved:
            feed = {key: saved[key] for key in saved.files}
        for name in row["sets"]:
            try:
                one = onnx.load(path.parent / f"{name}.onnx")
                session = cuda_session(_beside(one), fused=True, stream=clock.stream, graphs=True)
                done = time_session(clock, session, half(session, {f"{key}{c}": array for key, array in feed.items()
                                                                   for c in range(_COPIES)}), rounds=9)  # fmt: skip
                row["measured"][name] = 1e3 * done.least / _COPIES
            except Exception as error:
                row["measured"][name] = " ".join(str(error).split())[:200]
        rows.append(row)
        out.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1), encoding="utf-8")
        told = {name: round(us, 2) if isinstance(us, float) else us for name, us in row["measured"].items()}
        print(row["seed"], told, flush=True)


_COPIES = 16  # of one network in one graph: the host starts a graph in the time of several small networks


def _beside(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same network so many times, each on an input of its own; weights are shared, as between its runs."""
    stored = {each.name for each in model.graph.initializer}
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    del wide.graph.node[:], wide.graph.input[:], wide.graph.output[:], wide.graph.value_info[:]
    for copy in range(_COPIES):
        for source, target in ((model.graph.input, wide.graph.input), (model.graph.output, wide.graph.output)):
            for value in source:
                added = target.add()
                added.CopyFrom(value)
                added.name = f"{value.name}{copy}"
        for node in model.graph.node:
            added_node = wide.graph.node.add()
            added_node.CopyFrom(node)
            added_node.name = f"{node.name}{copy}"
            added_node.input[:] = [name if name in stored or not name else f"{name}{copy}" for name in node.input]
            added_node.output[:] = [name and f"{name}{copy}" for name in node.output]
    return wide


def _table(path: Path) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    print(f"{content['machine']}\n")
    print("| graph | nodes | FP32 nodes | FP16 us | FP32 us | fixed us | fixed/FP16 | best rival/fixed | predicted |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    slower, passed, known, ratios = [], [], 0, []
    for row in content["rows"]:
        us = {name: each for name, each in row["measured"].items() if isinstance(each, float)}
        if not {"fp16", "fixed"} <= us.keys() or not row["met"]:
            print(f"| {row['seed']} | {row['nodes']} | not {'met' if not row['met'] else 'run'} | | | | | | |")
            continue
        rivals = {name: each for name, each in us.items() if name.startswith("rival")}
        best = min(rivals.values(), default=us["fixed"]) / us["fixed"]
        over = us["fixed"] / us["fp16"]
        known += row["holding"] > 0
        slower += [row["seed"]] * (over > _SLOWER and row["holding"] > 0)
        passed += [row["seed"]] * (over > _SLOWER and best < 1 / _SLOWER)
        ratios += [row["predicted"][name] / each for name, each in us.items()]
        predicted = row["predicted"]["fixed"] / us["fixed"]
        print(f"| {row['seed']} | {row['nodes']} | {len(row['sets']['fixed'])} | {us['fp16']:.1f} | "
              f"{us.get('fp32', 0):.1f} | {us['fixed']:.1f} | {over:.2f} | {best:.2f} | {predicted:.2f} |")  # fmt: skip
    print(f"\nthe fastest set that holds was among the {_ASKED} that were asked: {known} of {len(content['rows'])}")
    print(f"of these, over 3% slower than plain FP16: {len(slower)} {slower}")
    print(f"of these, a set that holds is over 3% faster than the answer: {len(passed)} {passed}")
    near = sum(1 / 1.15 <= each <= 1.15 for each in ratios)
    print(f"predicted within 15% of measured: {near} of {len(ratios)}")


if __name__ == "__main__":
    main()
