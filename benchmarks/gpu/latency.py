"""Measured latencies of networks on a GPU, and what is needed to predict them anywhere.

    python -m benchmarks.gpu.latency prepare FOLDER [NAME@BATCH ...]      on CPU cores, a process each
    python -m benchmarks.gpu.latency measure FOLDER OUT.json [SECONDS]    on the GPU; what is there already is kept
    python -m benchmarks.gpu.latency report OUT.json [MACHINE.json]       predicted beside measured, anywhere

Three versions of each: FP32, plain FP16, and FP16 with the FP32 nodes that halve plain FP16's error. `measure` runs
each as one CUDA graph, then times the network's own operators at its own sizes, network by network as long as SECONDS
last. `report` predicts from those, and once more from the machine's grid of operators alone.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from msgspec import convert

from benchmarks.gpu.latency_networks import BATCHED, NAMES, network
from benchmarks.gpu.versions import assignment_of_version
from halfwise.core.document import read
from halfwise.core.formats import Format
from halfwise.core.metrics import compare
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.latency import Kernel, kernels_of
from halfwise.emulation.profiles import STRICT
from halfwise.emulation.profiles.machine import read_machine
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.timing.law import measured_law
from halfwise.emulation.timing.operation import Operation
from halfwise.emulation.timing.record import TimeRecord, TimesRecord
from halfwise.precision.assignment import Assignment
from halfwise.precision.typed_onnx import typed_proto
from halfwise.search.tensor_statistics import tensor_statistics

__all__ = ["main"]

VERSIONS = ("fp32", "fp16", "fixed")
PROCESSES = 12
_BATCH = 16
_NEAR = 1.15
_EXACT = 0.95  # of a prediction
_FORMATS = {each.value: each for each in (Format.FP16, Format.FP32)}


def main() -> None:
    verb, folder, *rest = sys.argv[1:]
    if verb == "prepare":
        prepare(Path(folder), rest or [*(f"{name}@1" for name in NAMES), *(f"{name}@{_BATCH}" for name in BATCHED)])
    elif verb == "measure":
        measure(Path(folder), Path(rest[0]), float(rest[1]) if len(rest) > 1 else 120.0)
    else:
        report(Path(folder), Path(rest[0]) if rest else None)


# -- versions and their kernels ---------------------------------------------------------------------------------------


def prepare(folder: Path, wanted: list[str]) -> None:
    """Those of a larger batch wait for the plan of the smaller one."""
    folder.mkdir(parents=True, exist_ok=True)
    first = [name for name in wanted if name.endswith("@1")]
    with ProcessPoolExecutor(min(PROCESSES, len(wanted))) as pool:
        for names in (first, [name for name in wanted if name not in first]):
            running = {pool.submit(_prepare, folder, name): name for name in names}
            for done in as_completed(running):
                error = done.exception()
                print(f"{running[done]}: {error!r}"[:300] if error else f"{running[done]}: {done.result()}", flush=True)


def _prepare(folder: Path, wanted: str) -> str:
    started = time.perf_counter()
    name, _, batch = wanted.partition("@")
    own = folder / wanted
    own.mkdir(exist_ok=True)
    proto, feeds = network(name, int(batch))
    plan = folder / f"{name}@1" / "plan.json"
    if batch == "1":
        _fix(proto, feeds, plan)
    sites = _sites(proto)
    shapes = tensor_statistics(Stepper(Emulator(STRICT)), sites, widen_feeds(feeds[0])).shapes
    named = {value.name: shape for value, shape in shapes.items() if value.name}
    operations: dict[str, Operation] = {}
    kernels: dict[str, Any] = {}
    for version in VERSIONS:
        decision = (
            Assignment(sites, {}, Format.FP32) if version == "fp32" else assignment_of_version(proto, version, plan)
        )
        if decision is None:
            continue
        here = {value: named[value.name] for value in _values(decision) if value.name in named}
        typed = proto if version == "fp32" else typed_proto(decision)
        onnx.save(typed, own / f"{version}.onnx")
        found: Counter[tuple[str, str]] = Counter()
        for kernel in kernels_of(decision, here):
            operations.setdefault(kernel.operation.key, kernel.operation)
            found[kernel.operation.key, kernel.format.value] += 1
        kernels[version] = [[key, fmt, count] for (key, fmt), count in found.items()]
    np.savez(own / "feed.npz", **feeds[0])
    told = {"operations": [each.to_json() for each in operations.values()], "kernels": kernels}
    (own / "kernels.json").write_text(json.dumps(told), encoding="utf-8")
    return f"{time.perf_counter() - started:.0f} s"


def _values(decision: Assignment) -> Iterator[Any]:
    for site in decision.sites.all:
        yield from site.node.outputs
        yield from (value for value in site.node.inputs if value is not None)


def _sites(proto: onnx.ModelProto) -> Any:
    decision = assignment_of_version(proto, "fp16")
    assert decision is not None
    return decision.sites


def _fix(proto: onnx.ModelProto, feeds: list[Any], plan: Path) -> None:
    """Half of plain FP16's error is allowed, so that something has to stay in FP32."""
    from halfwise.verbs.fix.fix import fix

    narrow = assignment_of_version(proto, "fp16")
    assert narrow is not None
    emulator = Emulator(STRICT)
    right = emulator.session(Assignment(narrow.sites, {})).run(widen_feeds(feeds[0]))
    wrong = emulator.session(narrow).run(widen_feeds(feeds[0]))
    error = max(compare(right[key], wrong[key]).rel_l2 for key in right)
    allowed = error / 2 if np.isfinite(error) and error > 0 else 0.01
    out = plan.parent / "fix"
    result = fix(proto, feeds, out=out, target="ort-cuda", tolerance=(f"rel_l2<={allowed:.3g}",), max_runs=8)
    assert result.plan_path is not None
    plan.write_text(result.plan_path.read_text(encoding="utf-8"), encoding="utf-8")


# -- on the GPU -------------------------------------------------------------------------------------------------------


def measure(folder: Path, out: Path, seconds: float) -> None:
    from benchmarks.gpu.cuda import machine, prepare
    from halfwise.backends.runtime_timing import clock_named, graph_overhead

    started = time.monotonic()
    prepare()
    clock = clock_named(os.environ.get("BACKEND", "ort-cuda"), 0)
    content: dict[str, Any] = {
        "machine": machine(),
        "graph_us": 1e3 * graph_overhead(clock),
        "cache_bytes": clock.cache,
        "networks": {},
        "own": [],
    }
    if out.exists():
        content = json.loads(out.read_text(encoding="utf-8"))
    known = {(convert(each["operation"], Operation).key, each["format"]) for each in content["own"]}
    until = started + seconds
    for own in _in_turn(folder):
        if not (own / "kernels.json").exists() or time.monotonic() > until:
            continue
        row = content["networks"].get(own.name)
        if row is None:
            row = json.loads((own / "kernels.json").read_text(encoding="utf-8"))
            row["measured"] = {
                version: _measured(clock, own, version) for version in VERSIONS if (own / f"{version}.onnx").exists()
            }
            content["networks"][own.name] = row
            out.write_text(json.dumps(content), encoding="utf-8")
        before = time.monotonic()
        content["own"] += _own_operators(row, clock, until, known)
        out.write_text(json.dumps(content), encoding="utf-8")
        seen = {key: round(each.get("milliseconds", 0), 3) for key, each in row["measured"].items()}
        print(f"{own.name} {seen}, {len(known)} operators, {time.monotonic() - before:.0f} s for its own, "
              f"{time.monotonic() - started:.0f} s in all", flush=True)  # fmt: skip


def _in_turn(folder: Path) -> list[Path]:
    """Both batches of a network after each other, networks in the order of their list."""
    order = {name: place for place, name in enumerate(NAMES)}
    return sorted(folder.iterdir(), key=lambda path: (order.get(path.name.partition("@")[0], len(order)), path.name))


def _measured(clock: Any, own: Path, version: str) -> dict[str, Any]:
    from benchmarks.gpu.cuda import cuda_session, half
    from halfwise.backends.runtime_timing import time_session

    kept = own / f"{version}.optimized.onnx"
    try:
        session = cuda_session(str(own / f"{version}.onnx"), fused=True, stream=clock.stream, graphs=True,
                               optimized=kept)  # fmt: skip
        with np.load(own / "feed.npz") as saved:
            feed = half(session, {key: saved[key] for key in saved.files})
        done = time_session(clock, session, feed, rounds=15)
        operators = Counter(node.op_type for node in onnx.load(kept, load_external_data=False).graph.node)
        return {"milliseconds": done.milliseconds, "spread": done.spread, "operators": dict(operators)}
    except Exception as error:
        return {"error": " ".join(str(error).split())[:300]}


def _own_operators(row: dict[str, Any], clock: Any, until: float, known: set[tuple[str, str]]) -> list[Any]:
    """Those of one network that no other had; `known` grows by them."""
    from halfwise.backends.runtime_timing import time_operation

    operations = {each.key: each for each in (convert(one, Operation) for one in row["operations"])}
    found = []
    for kernels in row["kernels"].values():
        for key, fmt, _ in kernels:
            if (key, fmt) in known or time.monotonic() > until:
                continue
            known.add((key, fmt))
            for each in (clock, replace(clock, cache=0)):  # with a load; by itself where that fails
                try:
                    done = time_operation(each, operations[key], fmt)
                except Exception as error:
                    print(f"{key[:80]} {fmt}: {' '.join(str(error).split())[:160]}", flush=True)
                    continue
                record = TimeRecord(operations[key], fmt, 1e3 * done.milliseconds, done.spread, 1e3 * done.cold_ms)
                found.append(record.to_json())
                break
    return found


# -- predicted beside measured ----------------------------------------------------------------------------------------


def report(path: Path, machine: Path | None) -> None:
    """`exact`: the share of the predicted time that was measured at the network's own sizes."""
    content = json.loads(path.read_text(encoding="utf-8"))
    own = tuple(read(each, TimeRecord, str(path)) for each in content["own"])
    times = read_machine(machine).times if machine is not None else None
    grid = tuple(times.rows) if isinstance(times, TimesRecord) else ()
    cache = content.get("cache_bytes", 0)
    laws = {"own": measured_law((*grid, *own), "own", cache)}
    if grid:
        laws["grid"] = measured_law(grid, "grid", cache)
    exact = {(each.operation.key, each.format) for each in own}
    errors: dict[str, list[float]] = {name: [] for name in (*laws, "own, exact")}
    by_network: dict[str, list[float]] = {}
    print(
        f"{content['machine']}\n\n| network | version | measured ms | weights MB | exact | " + " | ".join(laws) + " |"
    )
    print("|---|---|---:|---:|---:|" + "---:|" * len(laws))
    for name, row in sorted(content["networks"].items()):
        operations = {each.key: each for each in (convert(one, Operation) for one in row["operations"])}
        for version, measured in row["measured"].items():
            if "milliseconds" not in measured:
                continue
            kernels, cells = row["kernels"][version], []
            stored = sum(count * Kernel((), operations[key], _FORMATS[fmt]).weights for key, fmt, count in kernels)
            for title, law in laws.items():
                missed = law.missed(stored)
                each = {
                    (key, fmt): count * law.microseconds(operations[key], fmt, missed) for key, fmt, count in kernels
                }
                ratio = max(sum(each.values()), content["graph_us"]) / 1e3 / measured["milliseconds"]
                errors[title].append(ratio)
                cells.append(f"{ratio:.2f}")
                if title == "own":
                    by_network.setdefault(name, []).append(ratio)
                    share = sum(us for form, us in each.items() if form in exact) / max(sum(each.values()), 1e-9)
                    if share > _EXACT:
                        errors["own, exact"].append(ratio)
            told = f"{measured['milliseconds']:.3f} | {stored / 1e6:.1f} | {share:.2f}"
            print(f"| {name} | {version} | {told} | " + " | ".join(cells) + " |")
    print("\n| network | median ratio |\n|---|---:|")
    for name, ratios in by_network.items():
        print(f"| {name} | {float(np.median(ratios)):.2f} |")
    both = {name.partition("@")[0] for name in by_network if name.endswith(f"@{_BATCH}")}
    both = {name for name in both if f"{name}@1" in by_network}
    whole = [n for n in sorted(both) if all(_is_near(r) for b in (1, _BATCH) for r in by_network[f"{n}@{b}"])]
    print(f"within 15% in every version at both batches: {len(whole)} of {len(both)}: {', '.join(whole)}")
    for title, ratios in errors.items():
        near = sum(map(_is_near, ratios))
        print(f"{title}: {near} of {len(ratios)} within 15%, median ratio {float(np.median(ratios or [0])):.2f}")


def _is_near(ratio: float) -> bool:
    return 1 / _NEAR <= ratio <= _NEAR


if __name__ == "__main__":
    main()
