"""Times model versions on the GPU: `python -m benchmarks.gpu.speed OUT.json PLANS MODELS NAME[@BATCH] ...`.

What OUT.json holds already is not timed again. CUDA events around runs with bound inputs and outputs; inputs are
rotated among so many sets that they leave the L2 cache; the median of several rounds and their spread. At batch 1 run
by run, as a program does, and always by CUDA graphs, in which the host's launches do not count. Beside them the error,
and the operators that ONNX Runtime's fusions leave.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray

from benchmarks.gpu.autocast import filled
from benchmarks.gpu.cuda import cuda_session, half, machine, prepare
from benchmarks.gpu.missing import MISSING
from benchmarks.gpu.networks import NETWORKS
from benchmarks.gpu.suite import subject
from benchmarks.gpu.versions import typed_version
from halfwise.core.metrics import compare
from halfwise.precision.plan import read_plan

__all__ = ["main"]

Array = NDArray[Any]
ROTATED_BYTES = 256 << 20  # of inputs and weights, several times the L2 cache
SETS = 64  # of inputs at most
VERSIONS = ("fp16", "fixed", "repaired", "autocast", "fp16-again", "fp32", "fp32-tf32")  # what matters most comes first
ROUNDS = 15
ROUND_SECONDS = 0.06


def main() -> None:
    out, plans, models = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    prepare()
    rows: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))["rows"] if out.exists() else {}
    about = machine()
    for wanted in sys.argv[4:]:
        name, _, text = wanted.partition("@")
        row, started = rows.setdefault(wanted, {}), time.perf_counter()
        for version, timed in _timed(name, int(text or 1), plans, models, tuple(row)):
            row[version] = timed
            print(f"{wanted} {version}: {time.perf_counter() - started:.0f} s", json.dumps(timed), flush=True)
            content = {"schema": "halfwise.speed/1", "machine": about, "rows": rows}
            out.write_text(json.dumps(content, indent=1), encoding="utf-8")


def _timed(
    name: str, batch: int, plans: Path, models: Path, known: Collection[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    networks = {**NETWORKS, **MISSING}
    if name in networks:
        built = networks[name](batch)
        proto, feeds = built.model, built.inputs
    else:
        found = subject(name, models)
        if found is None:
            raise LookupError(f"{name} is not there")
        proto, feeds = found.model, list(found.inputs)
    feed = {key: np.concatenate([each[key] for each in feeds] * batch)[:batch] for key in feeds[0]}
    try:
        wanted = _results(cuda_session(proto, fused=False), feed)
    except Exception as error:
        print(f"{name} was not run in FP32: {error}", flush=True)
        return
    for version in VERSIONS:
        if version in known:
            continue
        try:
            typed = _version(proto, name, version.partition("-")[0], plans)
            if typed is None:
                continue
            row = _row(typed, feed, wanted, tf32=version == "fp32-tf32", launched=batch == 1)
            plan = plans / f"{name}.{version}.json"
            if plan.exists():
                row["fp32_nodes"] = len(read_plan(plan).nodes)
        except Exception as error:
            row = {"error": " ".join(str(error).split())[:300]}
        yield version, row


def _version(proto: onnx.ModelProto, name: str, version: str, plans: Path) -> onnx.ModelProto | None:
    """FP32, what a plan makes of it, or AutoCast's own file."""
    own = plans / f"{name}.{version}.onnx"
    if version == "fp32":
        return proto
    if own.exists():
        return filled(onnx.load(own), proto)
    return typed_version(proto, version, plans / f"{name}.{version}.json")


def _row(
    proto: onnx.ModelProto, feed: Mapping[str, Array], wanted: dict[str, Array], *, tf32: bool, launched: bool
) -> dict[str, Any]:
    """Times with launches, where they are asked for, and without; the error; which operators are left."""
    import torch

    row: dict[str, Any] = {}
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "optimized.onnx"
        session = cuda_session(proto, fused=True, tf32=tf32, stream=stream.cuda_stream, optimized=kept)
        nodes = onnx.load(kept, load_external_data=False).graph.node
        row["operators"] = dict(Counter(node.op_type for node in nodes))
        typed = half(session, feed)
        results = _results(session, feed)
        row["error"] = max(compare(array, results[key]).rel_l2 for key, array in wanted.items())
        row["nonfinite"] = sum(int((~np.isfinite(array)).sum()) for array in results.values())
        if launched:
            row.update(_milliseconds(session, typed, stream, graphs=False))
        del session
        try:
            session = cuda_session(proto, fused=True, tf32=tf32, stream=stream.cuda_stream, graphs=True)
            row["graph"] = _milliseconds(session, typed, stream, graphs=True)
        except Exception as error:
            row["graph"] = {"error": " ".join(str(error).split())[:300]}
    return row


def _results(session: ort.InferenceSession, feed: Mapping[str, Array]) -> dict[str, Array]:
    results = session.run(None, half(session, feed))
    return dict(zip([value.name for value in session.get_outputs()], results, strict=True))


def _milliseconds(
    session: ort.InferenceSession, typed: Mapping[str, Array], stream: Any, *, graphs: bool
) -> dict[str, float]:
    import torch

    size = sum(array.nbytes for array in typed.values())
    count = 4 if graphs else int(min(SETS, max(2, ROTATED_BYTES // max(size, 1))))
    bindings = [_bound(session, typed) for _ in range(count)]
    options = [ort.RunOptions() for _ in bindings]
    if graphs:  # every set of inputs has a graph of its own; nothing waits between runs
        for index, each in enumerate(options):
            each.add_run_config_entry("gpu_graph_id", str(index + 1))
            each.add_run_config_entry("disable_synchronize_execution_providers", "1")
    for binding, each in list(zip(bindings, options, strict=True))[: 4 if graphs else 5]:
        session.run_with_iobinding(binding, each)
    torch.cuda.synchronize()
    started = time.perf_counter()
    for binding, each in list(zip(bindings, options, strict=True))[:5]:
        session.run_with_iobinding(binding, each)
    torch.cuda.synchronize()
    once = (time.perf_counter() - started) / min(5, count)
    runs = int(min(200, max(2, ROUND_SECONDS / once)))
    seen, index = [], 0
    for _ in range(ROUNDS):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record(stream)
        for _ in range(runs):
            session.run_with_iobinding(bindings[index % count], options[index % count])
            index += 1
        last.record(stream)
        last.synchronize()
        seen.append(first.elapsed_time(last) / runs)
    low, high = np.percentile(seen, [10, 90])
    return {"median_ms": statistics.median(seen), "p10_ms": float(low), "p90_ms": float(high), "runs": runs * ROUNDS}


def _bound(session: ort.InferenceSession, feed: Mapping[str, Array]) -> Any:
    binding = session.io_binding()
    for name, array in feed.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array, "cuda", 0))
    for value in session.get_outputs():
        binding.bind_output(value.name, "cuda", 0)
    return binding


if __name__ == "__main__":
    main()
