"""How fast weights are counted, next to numpy.sum over the same file: python -m benchmarks.scan_speed [MEGABYTES].

Both read a warm file: numpy.sum once over a fresh mapping, as a program that starts would, and once over a mapping that
it has been through before (numpy sums 16-bit floats slowly, so that their bytes are summed as FP32). Medians of runs
taken in turn; of the processor's seconds, too, which other programs on the machine change less: there all cores are
added up, while numpy.sum uses one. With --shards, a checkpoint of 13 sparse shards in a child process that tells its
peak of memory instead: python -m benchmarks.scan_speed --shards [GIGABYTES]. With --first-call, what containing costs
the first call on a small model, by the clock and of the processor with all child processes: on the command line against
the same command line without its supervisor, and in a Python program against the function itself, which runs where it
is called. Before its call the program does nothing, imports ONNX Runtime, makes a session of four threads with it, or
starts a thread of Python's. Both sides are taken in turn, the first of a pair changing; what is more is the median of
the differences of pairs. With --first-call CHECKOUT the other side is an older version, called as its users did.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx

from halfwise.model.elements import STORED_TYPES, Elements, Stretch, count_all
from tests.models.zoo import encoder

__all__ = ["sparse_checkpoint"]

_RUNS = 7
_SHARDS = 13
_CHILD = """
import sys
from halfwise import scan
print(scan(sys.argv[1]).totals.count, open("/proc/self/status").read())
"""

_FIRST_RUNS = 9
_COMMAND = """
from halfwise.core.put_off import put_off
put_off()
from halfwise.cli.main import main
main()
"""

_FIRST = """
import os, sys, time
exec(sys.argv[3])
def spent(process):
    fields = open(f"/proc/{process}/stat").read().rpartition(")")[2].split()
    below = open(f"/proc/{process}/task/{process}/children").read().split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") + sum(map(spent, below))
before, started = spent(os.getpid()), time.perf_counter()
import halfwise
verb, contained = sys.argv[1], sys.argv[4] == "contained"
if contained:
    call = getattr(halfwise, verb)
else:
    from importlib import import_module
    from halfwise.core.put_off import put_off_for_onnx_ir
    put_off_for_onnx_ir()
    call = getattr(import_module(halfwise._HOMES[verb], "halfwise"), verb)
call(sys.argv[2])
print(time.perf_counter() - started, spent(os.getpid()) - before)
"""

_BEFORE = {
    "nothing": "",
    "ONNX Runtime": "import onnxruntime",
    "a session": (
        "import onnxruntime as ort; options = ort.SessionOptions(); options.intra_op_num_threads = 4; "
        "session = ort.InferenceSession(sys.argv[2], options)"
    ),
    "a thread": "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()",
}


def sparse_checkpoint(folder: Path, gigabytes: float, shards: int = _SHARDS) -> Path:
    """BF16 shards with an index; all but the last value of each is a hole in the file, and so 0."""
    columns = 4096
    rows = int(gigabytes * 1e9 / shards / 2 / columns)
    places = {}
    for shard in range(shards):
        name = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        size = rows * columns * 2
        header = {f"layers.{shard}.weight": {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [0, size]}}
        text = json.dumps(header).encode()
        with (folder / name).open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.seek(size - 2, os.SEEK_CUR)
            file.write(struct.pack("<H", 0x3F80))  # 1
        places[f"layers.{shard}.weight"] = name
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}), encoding="utf-8")
    return index


def _side_by_side(megabytes: int) -> None:
    print(
        "| stored | GB | numpy.sum, fresh (GB/s) | numpy.sum, mapped before | counts | share of fresh | of mapped "
        "| share of fresh, per CPU second | of mapped |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("fp32", "bf16", "fp16"):
            path, dtype = Path(folder) / kind, STORED_TYPES[kind]
            size = _write(path, dtype, megabytes)
            known = np.memmap(path, dtype=np.float32, mode="r")

            def fresh(path: Path = path) -> None:
                np.sum(np.memmap(path, dtype=np.float32, mode="r"))

            def again(known: np.ndarray[Any, Any] = known) -> None:
                np.sum(known)

            def counts(path: Path = path, dtype: np.dtype[Any] = dtype, size: int = size) -> None:
                count_all([Elements(Stretch(path, 0, dtype, size, "the weight"))])

            size_gb = size * dtype.itemsize / 1e9
            clock, processor = _medians(fresh, again, counts)
            cells = [kind, f"{size_gb:.2f}", *(f"{size_gb / seconds:.2f}" for seconds in clock)]
            cells += [f"{taken[other] / taken[2]:.0%}" for taken in (clock, processor) for other in (0, 1)]
            print(f"| {' | '.join(cells)} |")
            path.unlink()


def _write(path: Path, dtype: np.dtype[Any], megabytes: int) -> int:
    rng = np.random.default_rng(0)
    piece = 1 << 22
    pieces = max(1, megabytes * 1_000_000 // (piece * dtype.itemsize))
    with path.open("wb") as file:
        for _ in range(pieces):
            (rng.standard_normal(piece, dtype=np.float32) * 0.02).astype(dtype).tofile(file)
    return pieces * piece


def _medians(*works: Callable[[], None]) -> tuple[list[float], list[float]]:
    """Of each work the median seconds, by the clock and of the processor's cores taken together."""
    taken: list[list[tuple[float, float]]] = [[] for _ in works]
    for _ in range(_RUNS):
        for work, seconds in zip(works, taken, strict=True):
            start, before = time.perf_counter(), time.process_time()
            work()
            seconds.append((time.perf_counter() - start, time.process_time() - before))
    clock = [median(each[0] for each in seconds) for seconds in taken]
    return clock, [median(each[1] for each in seconds) for seconds in taken]


def _shards(gigabytes: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        index = sparse_checkpoint(Path(folder), gigabytes)
        start = time.perf_counter()
        told = subprocess.run([sys.executable, "-c", _CHILD, str(index)], capture_output=True, text=True, check=True)
        seconds = time.perf_counter() - start
    values = int(told.stdout.split()[0])
    peak = int(re.search(r"VmHWM:\s+(\d+)", told.stdout)[1]) / 1024  # type: ignore[index]
    print("| shards | values | GB | seconds | peak RSS (MiB) |")
    print("|---|---|---|---|---|")
    print(f"| {_SHARDS} | {values:,} | {2 * values / 1e9:.1f} | {seconds:.1f} | {peak:.0f} |")


def _first_calls(older: Path | None) -> None:
    other = "the function itself" if older is None else "older"
    print(f"| call | before it | seconds | {other} | more | CPU seconds | {other} | more |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m.onnx")
        onnx.save(encoder().model, path)
        for verb in ("scan", "fix"):
            _tell_pairs(f"halfwise {verb} | ", partial(_command, verb, path, older))
        for verb in ("scan", "fix"):
            for name, before in _BEFORE.items():
                call = partial(_first_call, verb, path, before, older)
                _tell_pairs(f"halfwise.{verb}() | {name}", call)


def _tell_pairs(label: str, call: Callable[[bool], tuple[float, float]]) -> None:
    for contained in (True, False):  # what the system reads once
        call(contained)
    pairs = []
    for run in range(_FIRST_RUNS):
        first = run % 2 == 0
        taken = {contained: call(contained) for contained in (first, not first)}
        pairs.append((taken[True], taken[False]))
    cells = []
    for unit in (0, 1):
        cells += [f"{median(pair[side][unit] for pair in pairs):.2f}" for side in (0, 1)]
        cells.append(f"{median(one[unit] - other[unit] for one, other in pairs):+.2f}")
    print(f"| {label} | {' | '.join(cells)} |", flush=True)


def _command(verb: str, path: Path, older: Path | None, contained: bool) -> tuple[float, float]:
    words = [sys.executable, *(["-m", "halfwise"] if contained or older else ["-c", _COMMAND]), verb, str(path)]
    with tempfile.TemporaryDirectory() as folder:
        words += ["--out", f"{folder}/out"] if verb == "fix" else []
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(words, capture_output=True, check=False, env=_environment(older, contained))
        seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _first_call(verb: str, path: Path, before: str, older: Path | None, contained: bool) -> tuple[float, float]:
    words = [sys.executable, "-c", _FIRST, verb, str(path), before, "contained" if contained or older else "itself"]
    ended = subprocess.run(words, capture_output=True, text=True, check=True, env=_environment(older, contained))
    seconds, processor = map(float, ended.stdout.split()[-2:])
    return seconds, processor


def _environment(older: Path | None, contained: bool) -> dict[str, str] | None:
    return None if older is None or contained else {**os.environ, "PYTHONPATH": str(older / "src")}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scan_speed", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("megabytes", nargs="?", type=int, default=1200, help="size of each file")
    parser.add_argument(
        "--shards", nargs="?", type=float, const=13.5, metavar="GIGABYTES", help="the memory of a checkpoint in shards"
    )
    parser.add_argument(
        "--first-call",
        nargs="?",
        type=Path,
        const="",
        metavar="CHECKOUT",
        help="what containing costs a first call (Linux), or what it takes beside an older version",
    )
    options = parser.parse_args()
    if options.first_call is not None:
        _first_calls(options.first_call.resolve() if options.first_call != Path() else None)
    elif options.shards is not None:
        _shards(options.shards)
    else:
        _side_by_side(options.megabytes)


if __name__ == "__main__":
    main()
