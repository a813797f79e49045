"""Memory and time on large decoders: python -m benchmarks.large [--billions 0.1 0.24] [--verbs scan fix].

Each model is written by benchmarks.zoo.decoder. Every measurement is a fresh process, so that peaks do not mix: an FP32
run of ONNX Runtime (the median of five), a plain loop that reads each weight once and converts it to FP16, and
halfwise's verbs. `own` is the peak of resident memory without mapped pages of files (RssAnon and RssShmem of
/proc/PID/status, with those of child processes, sampled 20 times a second; pages that a process shares with one that it
was forked from count once, by Pss of /proc/PID/smaps_rollup, asked at each peak that is 2% above the last, as it takes
the kernel tens of milliseconds, in which the process waits for memory); `all` is the kernel's VmHWM. A limit is 2.5
times the own peak of the FP32 run and 300 MB. `child` is the most that the children of a process held together: one of
`fix` runs the model that it wrote. `CPU` are seconds of all threads and of all children, which other programs on the
machine change less than `seconds`, but change, too: the FP32 run is measured before `fix` and behind it, and the mean
counts. With `--rounds` all is measured several times, in turn, and medians are told, of memory the highest peaks. Below
the table `fix` stands beside three times its model runs and three times one reading and converting; what it takes for
the least of decoders, as the libraries that it loads, is told apart. ONNX Runtime's runs of the written model are no
model runs of `fix`; the sum with them is told, too. Last come the time that `fix` said was left, at
four moments, and the time that was left; and what it takes to round all weights, which `fix` does in each walk, and to
keep them rounded in a file for the next run instead. Several sizes end in a table of slopes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.contest import machine, markdown
from benchmarks.fresh_processes import Measured, measured, medians
from benchmarks.zoo.decoder import PLANTED, Sizes, feedback, save_feeds, write_decoder
from benchmarks.zoo.weight_file import STORED
from halfwise.core.told import TimeLeft

__all__ = ["RUN", "VERB", "main", "parser", "row"]

_ONE, _READ, _ROUND, _AGAIN = "one FP32 run", "read and convert", "round, or keep", "one FP32 run, behind fix"
VERBS = ("scan", "trace", "fix", "verify")  # the last of what the one before it wrote
_SIZES = ("own GB", "child GB", "all GB", "limit GB")
HEAD = ("billions", "what", "seconds", "CPU", *_SIZES, "runs", "FP32 nodes", "remark")
GROWTH = ("what", "from", "to billions", "slope of seconds", "of CPU", "of own GB", "runs", "and runs")
_LEAST = 0.001  # billions
_MOMENTS = (0.1, 0.25, 0.5, 0.75)
RUN = """
import json, os, sys, time
import numpy as np, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = len(os.sched_getaffinity(0))
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
feed = dict(np.load(sys.argv[2] + "/0000.npz"))
session.run(None, feed)
seconds, cpu = [], []
for _ in range(5):
    started, used = time.perf_counter(), time.process_time()
    session.run(None, feed)
    seconds.append(time.perf_counter() - started)
    cpu.append(time.process_time() - used)
print(json.dumps({"run": sorted(seconds)[2], "CPU": sorted(cpu)[2]}))
"""
_LOOP = """
import json, sys, time
import numpy as np, onnx
started, used = time.perf_counter(), time.process_time()
proto, total = onnx.load(sys.argv[1], load_external_data=False), 0
data = np.memmap(sys.argv[1] + ".data", np.uint8, "r")
for tensor in proto.graph.initializer:
    fields = {entry.key: entry.value for entry in tensor.external_data}
    if tensor.data_type == 1 and fields:
        start, length = int(fields["offset"]), int(fields["length"])
        for first in range(start, start + length, 1 << 24):
            piece = data[first : min(first + (1 << 24), start + length)].view(np.float32)
            total += piece.astype(np.float16).nbytes
print(json.dumps({"loop": time.perf_counter() - started, "CPU": time.process_time() - used}))
"""
_KEPT = """
import json, os, sys, time
import numpy as np, onnx
from halfwise.core.fast_casts import cast_fast
from halfwise.core.formats import Format
from halfwise.emulation.weights import held_in_fp32
proto, data = onnx.load(sys.argv[1], load_external_data=False), np.memmap(sys.argv[1] + ".data", np.float32, "r")
places = []
for tensor in proto.graph.initializer:
    fields = {entry.key: int(entry.value) for entry in tensor.external_data if entry.key in ("offset", "length")}
    if tensor.data_type == 1 and fields:
        places.append((fields["offset"] // 4, fields["length"] // 4))
told = {}
def timed(what, each):
    started = time.process_time()
    for place in places:
        each(*place)
    told[what] = time.process_time() - started
def keep(start, size):
    narrow = np.empty(size, np.float16)
    cast_fast(data[start : start + size], narrow) or np.copyto(narrow, data[start : start + size], casting="unsafe")
    file.write(narrow)
    os.fsync(file.fileno())
def read(start, size):
    held_in_fp32(np.fromfile(kept, np.float16, size, offset=2 * start), Format.FP16)
timed("reading FP32", lambda start, size: float(data[start : start + size].sum()))
timed("rounding", lambda start, size: held_in_fp32(data[start : start + size], Format.FP16))
kept = sys.argv[1] + ".kept"
with open(kept, "wb") as file:
    timed("keeping", keep)
timed("reading what was kept", read)
os.remove(kept)
print(json.dumps(told))
"""
VERB = """
import json, sys, time
from halfwise.core.put_off import put_off
put_off()  # as the command does
import halfwise
from halfwise.core.told import Told
from halfwise.model.inputs.rollout import executions
from halfwise.verbs.fix.delivered import few
verb, model, inputs, out, options, *stream = sys.argv[1:]
stream = json.loads(stream[0]) if stream else {}
if verb == "scan":
    halfwise.scan(model)
    told = {}
elif verb == "fix":
    said, started = [], time.monotonic()
    def notify(text):
        left = text.stand.left if isinstance(text, Told) else None
        said.append((time.monotonic() - started, left and (left.at - started, left.seconds, left.pace, left.least)))
    found = halfwise.fix(model, inputs, out=out, notify=notify, **stream, **json.loads(options))
    said.append((time.monotonic() - started, None))
    told = {"runs": round(found.cost.model_runs, 1), "nodes": len(found.plan.nodes), "says": found.met}
    told["said"] = said
    told["executions"] = round(found.cost.model_runs * executions(found.samples.search), 1)
    told["written"] = executions(few(found.samples)) if found.delivered and found.delivered.verdict else 0
elif verb == "trace":
    halfwise.trace(model, inputs)
    told = {}
else:
    told = {"says": halfwise.verify(model, out + "/model.fp16.onnx", inputs, **stream).met}
print(json.dumps(told))
"""


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    rows, sides, sizes, least = [], [], [], 0.0
    if "fix" in options.verbs and not options.verbs_only:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            for _ in range(2):  # the second time its modules are compiled
                found = _of_size(_LEAST, Path(folder), argparse.Namespace(**{**vars(options), "planted": ()}), ["fix"])
            rows += [row(_LEAST, each, None) for each in found]
            least = next(each.cpu for each in found if each.what == "fix")
    for billions in options.billions:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            found = _of_size(billions, Path(folder), options, options.verbs)
            limit = 2.5 * found[0].own + 0.3 if found[0].what == _ONE else None
            rows += [row(billions, each, limit) for each in found]
            by_verb = {each.what: each for each in found}
            sizes.append((billions, by_verb))
            sides += [*both_sides(billions, by_verb, least), *time_told(billions, by_verb), *kept(billions, by_verb)]
    print(f"{machine()}\n")
    print(markdown(HEAD, rows))
    print("\n".join(["", *sides]))
    if slopes := growth(sizes, options.verbs):
        print(f"\n{markdown(GROWTH, slopes)}")
    return 0


def growth(sizes: Sequence[tuple[float, Mapping[str, Measured]]], verbs: Sequence[str]) -> list[tuple[str, ...]]:
    """Slopes between neighbouring sizes on logarithmic axes: 1 is linear."""
    rows = []
    for verb in verbs:
        for (small, before), (large, after) in pairwise(sizes):
            one, other, wider = before[verb], after[verb], math.log(large / small)
            grown = [
                f"{math.log(there / here) / wider:.2f}" if here and there else ""
                for here, there in zip(
                    (one.seconds, one.cpu, one.own), (other.seconds, other.cpu, other.own), strict=True
                )
            ]
            runs = [str(each.told.get("runs", "")) for each in (one, other)]
            rows.append((verb, f"{small:.2f}", f"{large:.2f}", *grown, *runs))
    return rows


def both_sides(billions: float, found: Mapping[str, Measured], least: float) -> list[str]:
    """What `fix` took beside what it may take; nothing where either was not measured."""
    fix, run, loop = (found.get(what) for what in ("fix", _ONE, _READ))
    if fix is None or run is None or loop is None or not (fix.told and run.told and loop.told):
        return []
    again = found.get(_AGAIN, run)
    one = (run.told["CPU"] + again.told.get("CPU", run.told["CPU"])) / 2
    runs, read = fix.told["executions"], loop.told["CPU"]
    allowed = 3 * runs * one + 3 * read
    sums = f"3 x {runs} runs x {one:.2f} + 3 x {read:.2f} = {allowed:.1f}"
    written = fix.told.get("written", 0)
    more = f"; with the {written} of the written model {allowed + 3 * written * one:.1f}" if written else ""
    return [f"{billions:.2f} billion: fix takes {fix.cpu:.1f} CPU s, {least:.1f} of them for any; {sums}{more}"]


def time_told(billions: float, found: Mapping[str, Measured]) -> list[str]:
    """What `fix` said was left, and what was, at some moments; nothing where it said nothing."""
    said = found["fix"].told.get("said", []) if "fix" in found else []
    if not any(left for _, left in said):
        return []
    end, parts = said[-1][0], []
    for moment in (share * end for share in _MOMENTS):
        *_, (_, left) = [(0.0, None), *(each for each in said if each[0] <= moment)]
        at, seconds, pace, least = left or (0.0, 0.0, 0.0, False)
        shown = TimeLeft(seconds, at, least, pace).text(moment).removesuffix(" left") or "nothing"
        parts.append(f"{moment / end:.0%}: {shown}, {end - moment:.0f} s")
    return [f"{billions:.2f} billion: left, as fix told, and in truth, of {end:.0f} s: " + "; ".join(parts)]


def kept(billions: float, found: Mapping[str, Measured]) -> list[str]:
    """What rounding all weights takes, and what it would take to keep them and to read them again."""
    told = found[_ROUND].told if _ROUND in found else {}
    sums = ", ".join(f"{what} {seconds:.2f}" for what, seconds in told.items())
    return [f"{billions:.2f} billion, CPU s: {sums}"] if sums else []


def _of_size(billions: float, folder: Path, options: argparse.Namespace, verbs: Sequence[str]) -> list[Measured]:
    sizes = Sizes.of(billions)
    model = write_decoder(folder, sizes, stored=options.stored, planted=options.planted)
    steps = options.stream
    inputs = save_feeds(folder / "inputs", sizes, stored=options.stored, tokens=options.tokens, steps=steps)
    stream = {"rollout": steps, "feedback": feedback(sizes), "metric": "logits"} if steps else {}
    os.environ["HALFWISE_CACHE"] = str(folder / "cache")  # of each round its own: what one keeps helps no other
    rounds = [_round(model, inputs, folder / "out", stream, options, verbs) for _ in range(options.rounds)]
    found = [medians(several) for several in zip(*rounds, strict=True)]
    for each in found:
        if each.what in verbs:
            print(json.dumps([billions, asdict(each)]), file=sys.stderr, flush=True)
    return found


def _round(
    model: Path,
    inputs: Path,
    out: Path,
    stream: Mapping[str, Any],
    options: argparse.Namespace,
    verbs: Sequence[str],
) -> list[Measured]:
    """Both sides, one after the other."""
    found = []
    if options.stored == "fp32" and not options.verbs_only:
        found.append(measured(_ONE, [RUN, str(model), str(inputs)], options.limit))
        found.append(measured(_READ, [_LOOP, str(model)], options.limit))
        found.append(measured(_ROUND, [_KEPT, str(model)], options.limit))
    given = json.dumps({"max_runs": options.max_runs, "device": options.device})
    for verb in verbs:
        arguments = [VERB, verb, str(model), str(inputs), str(out), given, json.dumps(stream)]
        found.append(measured(verb, arguments, options.limit))
        if verb == "fix" and found[0].what == _ONE:
            found.append(measured(_AGAIN, [RUN, str(model), str(inputs)], options.limit))
    for kept in (out, out.parent / "cache"):
        shutil.rmtree(kept, ignore_errors=True)
    return found


def row(billions: float, each: Measured, limit: float | None) -> tuple[str, ...]:
    """One line of the table."""
    remark = each.problem or (f"{each.told['run']:.2f} s a run" if "run" in each.told else "")
    if "says" in each.told:
        remark = "met" if each.told["says"] else "not met"
    return (
        f"{billions:.2f}",
        each.what,
        f"{each.seconds:.1f}",
        f"{each.cpu:.1f}",
        f"{each.own:.2f}",
        f"{each.children:.2f}",
        f"{each.all:.2f}",
        "" if limit is None or each.what not in VERBS else f"{limit:.2f}",
        str(each.told.get("runs", "")),
        str(each.told.get("nodes", "")),
        remark,
    )


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.large", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--billions", nargs="+", type=float, default=(0.1, 0.24), help="parameters of the models")
    made.add_argument("--verbs", nargs="+", choices=VERBS, default=("scan", "fix"), metavar="VERB")
    made.add_argument("--stored", choices=STORED, default="fp32", help="the types of the file")
    made.add_argument("--planted", nargs="*", choices=PLANTED, default=(), help="what goes wrong in FP16")
    made.add_argument("--tokens", type=int, default=32)
    made.add_argument("--stream", type=int, default=0, help="tokens of each text, one by one; a rollout is judged")
    made.add_argument("--max-runs", type=float, default=None, help="of fix")
    made.add_argument("--rounds", type=int, default=1, help="of both sides; the medians are told")
    made.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of fix")
    made.add_argument("--verbs-only", action="store_true", help="without ONNX Runtime's run and the plain loop")
    made.add_argument("--folder", type=Path, help="where the models are written, and removed again")
    made.add_argument("--limit", type=float, default=3600.0, help="seconds a process may take")
    return made


if __name__ == "__main__":
    sys.exit(main())
