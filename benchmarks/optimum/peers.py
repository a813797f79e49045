"""What other tools make of the graphs: whether they keep the tolerance, and with how many FP32 nodes.

    python -m benchmarks.optimum.peers run KNOWN.jsonl OUT.jsonl [PYTHON [FIRST COUNT]]
    python -m benchmarks.optimum.peers table OUT.jsonl

KNOWN.jsonl holds the tolerances and the cheapest sets, as `benchmarks.optimum run` leaves them. PYTHON has the other
tools installed. Each tool is given all inputs and judged on the same ones; repairs are off.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.cases import Case
from benchmarks.contest import OURS, enter
from benchmarks.optimum.graphs import problem

__all__ = ["main"]

TOOLS = ("halfwise, no repairs", "AutoCast", "onnxconverter search")
LIMIT_S = 60.0


def main() -> None:
    verb, path, *rest = sys.argv[1:]
    if verb == "run":
        python = rest[1] if len(rest) > 1 else sys.executable
        first, count = (int(each) for each in rest[2:4]) if len(rest) > 3 else (0, 300)
        run(Path(path), Path(rest[0]), python, range(first, first + count))
    else:
        table(Path(path))


def run(known: Path, out: Path, python: str, seeds: range) -> None:
    done = {(row["seed"], row["tool"]) for row in _rows(out)}
    with out.open("a", encoding="utf-8") as kept:
        for row in _rows(known):
            if row["seed"] not in seeds or row["optimum"] is None:
                continue
            posed = problem(row["seed"])
            case = Case(posed.name, posed.model, posed.feeds, posed.feeds, row["tolerance"])
            for tool in TOOLS:
                if (row["seed"], tool) not in done:
                    found = {"seed": row["seed"], "tool": tool, "best": len(row["best"]), **_answer(tool, case, python)}
                    kept.write(json.dumps(found) + "\n")
                    kept.flush()


def _answer(tool: str, case: Case, python: str) -> dict[str, Any]:
    entry = enter(tool, case, sys.executable if tool in OURS else python, LIMIT_S, 1)
    if entry.errors is None or entry.census is None:
        return {"problem": entry.answer.problem[:200]}
    return {"met": entry.errors.met(case.tolerance), "fp32": entry.census.fp32, "seconds": entry.answer.seconds}


def table(path: Path) -> None:
    rows = _rows(path)
    print("| tool | graphs | no model | met | FP32 nodes of those met | of the cheapest sets |")
    print("|---|---:|---:|---:|---:|---:|")
    for tool in TOOLS:
        own = [row for row in rows if row["tool"] == tool]
        met = [row for row in own if row.get("met")]
        lost = sum("problem" in row for row in own)
        print(f"| {tool} | {len(own)} | {lost} | {len(met)} | {sum(row['fp32'] for row in met)} | "
              f"{sum(row['best'] for row in met)} |")  # fmt: skip


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


if __name__ == "__main__":
    main()
