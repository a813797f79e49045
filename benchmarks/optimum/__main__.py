"""How much dearer than the cheapest set is what `fix` finds?

    python -m benchmarks.optimum run OUT.jsonl [FIRST COUNT [PROCESSES [SECONDS]]]   a line each; known ones are kept
    python -m benchmarks.optimum again KNOWN.jsonl OUT.jsonl [PROCESSES]             `fix` alone, beside what is known
    python -m benchmarks.optimum table OUT.jsonl
    python -m benchmarks.optimum write FOLDER OUT.jsonl                              the graphs, for other tools

Repairs are off: the question is which nodes stay in FP32. The cheapest set keeps all that `fix` demands of its own
(`demands.py`); `known`: without the inputs that have no part in any choice. `bound` is what `fix` reaches. SECONDS
bound the search for the cheapest set of one graph.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.optimum.demands import Demands
from benchmarks.optimum.exact import Found, Holds, breaks, cheapest, without_assumption
from benchmarks.optimum.graphs import Problem, problem
from benchmarks.optimum.switched import Switched
from halfwise.model.model import load
from halfwise.precision.sites import Sites
from halfwise.search.cost import node_costs
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.fix.result import FixResult

__all__ = ["answer", "fixed_again", "main"]

_TRIED = 20_000  # sets that are gone through without any assumption


def main() -> None:
    verb, out, *rest = sys.argv[1:]
    if verb == "run":
        first, count, processes, seconds = (int(each) for each in (*rest, *("0", "220", "2", "20")[len(rest) :]))
        run(Path(out), range(first, first + count), processes, seconds)
    elif verb == "again":
        again(Path(out), Path(rest[0]), int((*rest, "2")[1]))
    elif verb == "table":
        table(Path(out))
    else:
        write(Path(out), Path(rest[0]))


def run(out: Path, seeds: range, processes: int, seconds: int) -> None:
    known = {row["seed"] for row in _rows(out)}
    _each(answer, [(seed, float(seconds)) for seed in seeds if seed not in known], out, processes)


def again(known: Path, out: Path, processes: int) -> None:
    """What `fix` finds now, in rows that keep the cheapest sets of before."""
    done = {row["seed"] for row in _rows(out)}
    rows = [row for row in _rows(known) if row["optimum"] is not None and row["seed"] not in done]
    _each(fixed_again, [(row,) for row in rows], out, processes)


def _each(job: Callable[..., dict[str, Any]], arguments: Sequence[tuple[Any, ...]], out: Path, processes: int) -> None:
    """A line for each."""
    with ProcessPoolExecutor(processes) as pool, out.open("a", encoding="utf-8") as kept:
        running = [pool.submit(job, *each) for each in arguments]
        for done in as_completed(running):
            try:
                kept.write(json.dumps(done.result()) + "\n")
                kept.flush()
            except Exception as error:
                print(f"{error!r}"[:300], flush=True)


def fixed_again(row: dict[str, Any]) -> dict[str, Any]:
    """A row with what `fix` finds now."""
    posed = problem(row["seed"])
    sites, started = Sites(load(posed.model)), time.perf_counter()
    found = _fixed(posed, row["tolerance"])
    costs = node_costs(sites, {value: _size(value, posed.feeds[0]["x"].shape[0]) for value in _values(sites)})
    own = sum(cost for node, cost in costs.items() if node.name in found.fp32_nodes)
    now = {"met": found.met, "runs": found.cost.model_runs, "kept": len(found.fp32_nodes), "cost": own}
    return {**row, **now, "fix_s": time.perf_counter() - started}


def _fixed(posed: Problem, allowed: float) -> FixResult:
    with tempfile.TemporaryDirectory() as folder:
        return fix(posed.model, list(posed.feeds), out=Path(folder, "out"), tolerance=(f"rel_l2<={allowed}",),
                   repairs=("none",))  # fmt: skip


def answer(seed: int, seconds: float) -> dict[str, Any]:
    """What `fix` finds, and the cheapest set."""
    posed = problem(seed)
    rng = np.random.default_rng((seed, 1))
    sites = Sites(load(posed.model))
    switched = Switched(posed, sites)
    if not np.isfinite(switched.right).all():  # in FP32 itself
        return {"seed": seed, "nodes": len(switched.names), "optimum": None, "proven": False}
    every = (1 << len(switched.names)) - 1
    plain = switched.errors(every)
    worst = float(plain.max())
    allowed = float(np.clip(worst * rng.uniform(0.15, 0.9), 1e-5, 0.02)) if np.isfinite(worst) else 0.01
    allowed = float(f"{allowed:.3g}")
    row: dict[str, Any] = {"seed": seed, "nodes": len(switched.names), "parts": posed.parts, "tolerance": allowed}
    started = time.perf_counter()
    found = _fixed(posed, allowed)
    met, kept, runs = found.met, tuple(found.fp32_nodes), found.cost.model_runs
    sizes = {value: _size(value, posed.feeds[0]["x"].shape[0]) for value in _values(sites)}
    costs_of = {node.name or "": cost for node, cost in node_costs(sites, sizes).items()}
    costs = [costs_of[name] for name in switched.names]
    own = sum(costs_of[name] for name in kept if name in costs_of)
    start = switched.mask(kept)
    reached = switched.bound(start, allowed)
    row |= {"met": met, "runs": runs, "kept": len(kept), "cost": own, "bound": reached, "plain": worst / allowed,
            "fix_s": time.perf_counter() - started}  # fmt: skip
    if not np.isfinite(reached):
        return {**row, "optimum": None, "proven": False}

    known = _lowest(costs, Demands(posed, sites, switched, allowed, kept).holds, start, seconds)[0]
    holds = Demands(posed, sites, switched, allowed, kept, fresh=True).holds
    cost, best, complete = _lowest(costs, holds, start, seconds)
    broken, seen = breaks(len(costs), holds, 200, seed)
    wide = [name for place, name in enumerate(switched.names) if not best.narrow >> place & 1]
    return {**row, "optimum": cost, "known": known, "best": wide, "proven": best.proven, "complete": complete,
            "tried": switched.runs, "broken": broken, "pairs": seen,
            "seconds": time.perf_counter() - started}  # fmt: skip


def _lowest(costs: list[float], holds: Holds, start: int, seconds: float) -> tuple[float, Found, bool]:
    """What the cheapest set costs, the best that branch and bound found, and whether every cheaper set was tried."""
    best = cheapest(costs, holds, start, seconds)
    lowest, complete = without_assumption(costs, holds, best.cost, _TRIED)
    return (min(best.cost, lowest) if lowest is not None else best.cost), best, complete


def _values(sites: Sites) -> list[Any]:
    return list({value: None for site in sites.all for value in (*site.node.inputs, *site.node.outputs) if value})


def _size(value: Any, batch: int) -> int:
    if value.const_value is not None:
        return int(value.const_value.size)
    shape = value.shape or ()
    return int(np.prod([size if isinstance(size, int) else batch for size in shape]))


def table(path: Path) -> None:
    rows = [row for row in _rows(path) if row["optimum"] is not None]
    ratios = [1.0 if row["cost"] <= row["optimum"] + 1e-9 else row["cost"] / max(row["optimum"], 1e-9) for row in rows]
    near = sum(ratio <= 1.05 for ratio in ratios)
    pairs = sum(row["pairs"] for row in rows)
    print(f"{len(rows)} graphs of {min(r['nodes'] for r in rows)} to {max(r['nodes'] for r in rows)} free nodes")
    print(f"met: {sum(row['met'] for row in rows)}; plain FP16 fails: {sum(row['plain'] > 1 for row in rows)}")
    print(f"cheapest set proven: {sum(row['proven'] for row in rows)} (assuming that errors do not shrink with more "
          f"FP16), without any assumption: {sum(bool(row.get('complete')) for row in rows)}")  # fmt: skip
    print(f"the assumption fails in {sum(row['broken'] for row in rows)} of {pairs} random pairs")
    print(f"within 5% of the cheapest: {near} of {len(rows)} ({near / len(rows):.1%})")
    near = sum(row["cost"] <= 1.05 * row["known"] + 1e-9 for row in rows)
    print(f"the same, of sets chosen with all inputs that are asked: {near} ({near / len(rows):.1%})")
    print("cost over cheapest: " + ", ".join(f"{q}%: {np.percentile(ratios, q):.2f}" for q in (50, 90, 95, 99, 100)))
    print(f"runs: median {np.median([row['runs'] for row in rows]):.1f}, "
          f"95%: {np.percentile([row['runs'] for row in rows], 95):.1f}")  # fmt: skip
    for ratio, row in sorted(zip(ratios, rows, strict=True), key=lambda each: -each[0])[:10]:
        print(f"  {ratio:.2f} seed {row['seed']}, {row['nodes']} nodes, kept {row['kept']}, {' '.join(row['parts'])}")


def write(folder: Path, path: Path) -> None:
    """Each graph as a file with its inputs, the tolerance, and the cheapest set where it is known."""
    for row in _rows(path):
        posed = problem(row["seed"])
        own = folder / posed.name
        own.mkdir(parents=True, exist_ok=True)
        onnx.save(posed.model, own / "model.onnx")
        for place, feed in enumerate(posed.feeds):
            np.savez(own / f"inputs_{place}.npz", **feed)  # type: ignore[arg-type]
        told = {key: row.get(key) for key in ("tolerance", "optimum", "best", "proven", "parts")}
        (own / "problem.json").write_text(json.dumps(told, indent=1), encoding="utf-8")


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


if __name__ == "__main__":
    main()
