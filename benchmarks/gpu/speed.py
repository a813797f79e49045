"""Times model versions on the GPU: `python -m benchmarks.gpu.speed OUT.json PLANS MODELS NAME[@BATCH] ...`.

CUDA events around runs with bound inputs and outputs; inputs are rotated among so many sets that they leave the L2
cache; the median of several rounds and their spread.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray

from benchmarks.gpu.cuda import cuda_session, half, machine, prepare
from benchmarks.gpu.networks import NETWORKS
from benchmarks.gpu.suite import subject
from benchmarks.gpu.versions import typed_version

__all__ = ["main"]

Array = NDArray[Any]
ROTATED_BYTES = 256 << 20  # of inputs and weights, several times the L2 cache
SETS = 64  # of inputs at most
ROUNDS = 15
ROUND_SECONDS = 0.06


def main() -> None:
    out, plans, models = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    prepare()
    rows: dict[str, Any] = {}
    for wanted in sys.argv[4:]:
        name, _, text = wanted.partition("@")
        batch = int(text or 1)
        try:
            rows[wanted] = _timed(name, batch, plans, models)
        except Exception as error:
            rows[wanted] = {"error": str(error)[:300]}
        print(wanted, json.dumps(rows[wanted]), flush=True)
        out.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1), encoding="utf-8")


def _timed(name: str, batch: int, plans: Path, models: Path) -> dict[str, Any]:
    if name in NETWORKS:
        built = NETWORKS[name](batch)
        proto, feeds = built.model, built.inputs
    else:
        found = subject(name, models)
        if found is None:
            raise LookupError(f"{name} is not there")
        proto, feeds = found.model, list(found.inputs)
    feed = (
        {key: np.concatenate([each[key] for each in feeds] * batch)[:batch] for key in feeds[0]}
        if batch > 1
        else feeds[0]
    )
    rows: dict[str, Any] = {}
    for version, tf32 in (("fp32", False), ("fp32-tf32", True), ("fp16", False), ("autocast", False),
                          ("fixed", False), ("repaired", False), ("fp16-again", False)):  # fmt: skip
        plain = version.partition("-")[0]
        typed = proto if plain == "fp32" else typed_version(proto, plain, plans / f"{name}.{plain}.json")
        if typed is not None:
            rows[version] = _milliseconds(typed, feed, tf32=tf32)
    return rows


def _milliseconds(proto: onnx.ModelProto, feed: Mapping[str, Array], *, tf32: bool) -> dict[str, float]:
    import torch

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        session = cuda_session(proto, fused=True, tf32=tf32, stream=stream.cuda_stream)
        typed = half(session, feed)
        size = sum(array.nbytes for array in typed.values())
        count = int(min(SETS, max(2, ROTATED_BYTES // max(size, 1))))
        bindings = [_bound(session, typed) for _ in range(count)]
        for binding in bindings[:5]:
            session.run_with_iobinding(binding)
        torch.cuda.synchronize()
        started = time.perf_counter()
        for binding in bindings[:5]:
            session.run_with_iobinding(binding)
        torch.cuda.synchronize()
        once = (time.perf_counter() - started) / min(5, count)
        runs = int(min(200, max(5, ROUND_SECONDS / once)))
        seen, index = [], 0
        for _ in range(ROUNDS):
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            first.record(stream)
            for _ in range(runs):
                session.run_with_iobinding(bindings[index % count])
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
