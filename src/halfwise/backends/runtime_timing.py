"""Times models with ONNX Runtime: CUDA graphs between CUDA events, or on the CPU by the host's clock."""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec import convert
from numpy.typing import NDArray

from halfwise.core.child.serve import Answer, Request
from halfwise.core.errors import HalfwiseError, MissingBackend
from halfwise.emulation.cuda_driver import Cuda, open_cuda
from halfwise.emulation.timing.grid import LAUNCH
from halfwise.emulation.timing.operation import Operation
from halfwise.emulation.timing.record import Precision
from halfwise.emulation.timing.timed_model import (
    Load,
    copies_of,
    load_for,
    reads_weights,
    timed_feed,
    timed_model,
)

__all__ = ["Clock", "Timed", "clock_named", "graph_overhead", "serve", "time_operation", "time_session"]

Array = NDArray[Any]

ROUNDS = 5
ROUND_S = 0.002  # at least, unless one run takes longer
MOST_RUNS = 100
_WARM = 3
_FEW = 4
_CUDA = "CUDAExecutionProvider"


@dataclass(frozen=True)
class Timed:
    """Median milliseconds of one run, how far the rounds were apart, and the fastest round.

    `cold_ms`: with weights that lie in the GPU's memory and not in its cache; 0 where that was not timed.
    """

    milliseconds: float
    spread: float
    least: float
    cold_ms: float = 0.0


@dataclass(frozen=True)
class Clock:
    """How runs of a session are timed: `timed` takes what runs it once without waiting, and how often."""

    title: str
    where: str
    timed: Callable[[Callable[[], None], int], float]
    session: Callable[[bytes, bool], Any]
    stream: int = 0
    cache: int = 0  # bytes of the GPU's level-2 cache


def serve(request: Request) -> Answer:
    """Times operations, one after the other; of each the microseconds, or why there are none."""
    asked = request.data
    clock = clock_named(asked["backend"], asked["device"])
    graph_ms = graph_overhead(clock)
    rows: list[dict[str, Any]] = []
    for place, row in enumerate(asked["rows"]):
        operation = convert(row["operation"], Operation)
        try:
            done = time_operation(clock, operation, row["format"])
            rows.append({"milliseconds": done.milliseconds, "spread": done.spread, "cold_ms": done.cold_ms})
        except MissingBackend:
            raise
        except Exception as error:
            rows.append({"error": " ".join(str(error).split())[:200] or type(error).__name__})
        request.notify(json.dumps({"place": place, **rows[-1]}))
    return Answer({"clock": clock.title, "graph_us": 1e3 * graph_ms, "cache": clock.cache, "rows": rows})


def graph_overhead(clock: Clock) -> float:
    """Milliseconds from one start of a graph to the next: graphs of less are waited for by nobody but the host."""
    return _graph(clock, LAUNCH, "fp32", _FEW).milliseconds


def time_operation(clock: Clock, operation: Operation, precision: Precision) -> Timed:
    """Of all copies in one graph, divided by how many there are.

    On a GPU they stand behind a load, so that a slow host is not timed; the load's own time is taken off.
    """
    if not clock.cache:
        copies = copies_of(operation)
        done = _graph(clock, operation, precision, copies)
        return Timed(done.milliseconds / copies, done.spread, done.least / copies)
    hot, spread = _beyond(clock, operation, precision, between=False)
    cold = _beyond(clock, operation, precision, between=True)[0] if reads_weights(operation) else 0.0
    return Timed(hot, spread, hot, max(cold, hot) if cold else 0.0)


def _beyond(clock: Clock, operation: Operation, precision: Precision, *, between: bool) -> tuple[float, float]:
    """Milliseconds of a copy beyond the load, by the fastest rounds: whatever else happens only adds to them."""
    load = load_for(clock.cache, precision, between=between)
    copies = copies_of(operation, load)
    done = _graph(clock, operation, precision, copies, load)
    alone = _graph(clock, operation, precision, copies, load_for(clock.cache, precision, between=between, alone=True))
    return max(done.least - alone.least, 0.01 * done.least) / copies, done.spread


def _graph(clock: Clock, operation: Operation, precision: Precision, copies: int, load: Load | None = None) -> Timed:
    content = timed_model(operation, precision, copies, load).SerializeToString()
    session = clock.session(content, precision == "tf32")
    return time_session(clock, session, timed_feed(operation, precision, load))


def time_session(clock: Clock, session: Any, feed: Mapping[str, Array], rounds: int = ROUNDS) -> Timed:
    """Bound inputs and outputs; on a GPU a CUDA graph, and nothing waits between runs."""
    import onnxruntime as ort

    binding = session.io_binding()
    held = {name: ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), clock.where, 0)
            for name, array in feed.items()}  # fmt: skip
    for name, value in held.items():
        binding.bind_ortvalue_input(name, value)
    for output in session.get_outputs():
        binding.bind_output(output.name, clock.where, 0)
    options = ort.RunOptions()
    if clock.where != "cpu":
        options.add_run_config_entry("disable_synchronize_execution_providers", "1")

    def once() -> None:
        session.run_with_iobinding(binding, options)

    for _ in range(_WARM):
        once()
    each = max(clock.timed(once, 3) / 3, 1e-4)
    runs = max(1, min(MOST_RUNS, int(ROUND_S * 1e3 / each) + 1))
    seen = [clock.timed(once, runs) / runs for _ in range(rounds)]
    return Timed(statistics.median(seen), max(seen) / max(min(seen), 1e-9) - 1.0, min(seen))


def clock_named(backend: str, device: int) -> Clock:
    """The clock of a backend that can be timed."""
    if backend == "ort-cpu":
        return Clock("the host's clock", "cpu", _on_host, _cpu_session)
    if backend != "ort-cuda":
        raise HalfwiseError(f"{backend} cannot be timed: only ort-cuda, and ort-cpu by the host's clock")
    cuda = open_cuda(device)
    return Clock(
        "CUDA events around CUDA graphs",
        "cuda",
        lambda once, runs: _on_gpu(cuda, once, runs),
        lambda content, tf32: _cuda_session(content, tf32, device, cuda.stream),
        cuda.stream,
        cuda.cache(),
    )


def _on_host(once: Callable[[], None], runs: int) -> float:
    started = time.perf_counter()
    for _ in range(runs):
        once()
    return (time.perf_counter() - started) * 1e3


def _on_gpu(cuda: Cuda, once: Callable[[], None], runs: int) -> float:
    first = cuda.mark()
    for _ in range(runs):
        once()
    return cuda.milliseconds(first, cuda.mark())


def _options() -> Any:
    """No graph optimisation: operators that are the same would become one."""
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return settings


def _cpu_session(content: bytes, tf32: bool) -> Any:
    import onnxruntime as ort

    settings = _options()
    settings.intra_op_num_threads = 1
    return ort.InferenceSession(content, settings, providers=["CPUExecutionProvider"], enable_fallback=0)


def _cuda_session(content: bytes, tf32: bool, device: int, stream: int) -> Any:
    """All of it as one CUDA graph, on the stream of the events."""
    import onnxruntime as ort

    if hasattr(ort, "preload_dlls"):
        with contextlib.suppress(Exception):
            ort.preload_dlls()
    if _CUDA not in ort.get_available_providers():
        raise MissingBackend(f"ONNX Runtime {ort.__version__} as installed here has no {_CUDA}")
    given = {
        "device_id": str(device),
        "use_tf32": str(int(tf32)),
        "user_compute_stream": str(stream),
        "do_copy_in_default_stream": "1",
        "enable_cuda_graph": "1",
    }
    session = ort.InferenceSession(content, _options(), providers=[(_CUDA, given), "CPUExecutionProvider"])
    if _CUDA not in session.get_providers():
        raise MissingBackend(f"ONNX Runtime {ort.__version__} could not start its {_CUDA}")
    session.disable_fallback()
    return session
