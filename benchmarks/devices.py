"""`fix` on a GPU beside `fix` on the CPU: python -m benchmarks.devices [--tokens 32 512] [--stored int4].

Each model is written by benchmarks.zoo.decoder, each call is a fresh process whose results are not kept for the next.
Printed: verdicts, errors over the errors allowed under each profile and by how much they differ, runs, FP32 nodes,
seconds of both. The GPU adds the sums of these models in the CPU's order; in another, errors of few values would differ
by chance (benchmarks.summation_order).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.contest import machine, markdown
from benchmarks.fresh_processes import Measured, measured
from benchmarks.zoo.decoder import PLANTED, Sizes, feedback, save_feeds, write_decoder
from benchmarks.zoo.weight_file import STORED

__all__ = ["cells", "main", "parser"]

_HEAD = (
    "billions",
    "tokens",
    "device",
    "verdict",
    "runs",
    "FP32 nodes",
    "error over allowed",
    "seconds",
    "CPU",
    "remark",
)
_FIX = """
import json, sys
import halfwise
found = halfwise.fix(sys.argv[1], sys.argv[2], out=sys.argv[3], device=sys.argv[4], **json.loads(sys.argv[5]))
told = {"met": found.met, "runs": round(found.cost.model_runs, 1), "nodes": len(found.plan.nodes)}
print(json.dumps({**told, "by profile": dict(found.by_profile)}))
"""


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    os.environ["HALFWISE_CACHE"] = "0"  # of both
    rows = []
    for billions in options.billions:
        sizes = Sizes.of(billions)
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            model = write_decoder(Path(folder), sizes, stored=options.stored, planted=options.planted)
            for tokens in options.tokens:
                steps = tokens if options.stream else 0
                place = Path(folder) / f"inputs{tokens}"
                inputs = save_feeds(place, sizes, stored=options.stored, tokens=tokens, steps=steps)
                stream = {"rollout": steps, "feedback": feedback(sizes), "metric": "logits"} if steps else {}
                found: dict[str, Measured] = {}
                for device in options.devices:
                    given = [str(model), str(inputs), str(place) + device, device, json.dumps(stream)]
                    found[device] = measured(f"fix on {device}", [_FIX, *given], options.limit)
                    print(found[device], file=sys.stderr, flush=True)
                rows += [(f"{billions:.2f}", str(tokens), *each) for each in cells(found)]
    print(f"{machine()}\n")
    print(markdown(_HEAD, rows))
    return 0


def cells(found: Mapping[str, Measured]) -> list[tuple[str, ...]]:
    """A row for each device; the remark of the later ones says how far their errors are from the first one's."""
    rows: list[tuple[str, ...]] = []
    first = next(iter(found.values())).told.get("by profile", {})
    for number, (device, each) in enumerate(found.items()):
        told, used = each.told, (f"{each.seconds:.1f}", f"{each.cpu:.1f}")
        if each.problem:
            rows.append((device, "", "", "", "", *used, each.problem))
            continue
        errors: dict[str, float] = told["by profile"]
        apart = ", ".join(f"{name} {errors[name] / first[name] - 1:+.1%}" for name in errors if first.get(name))
        verdict, over = "met" if told["met"] else "missed", ", ".join(f"{n} {e:.4f}" for n, e in errors.items())
        rows.append((device, verdict, str(told["runs"]), str(told["nodes"]), over, *used, apart if number else ""))
    return rows


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.devices", description="fix on a GPU beside the CPU.")
    made.add_argument("--billions", nargs="+", type=float, default=(0.1, 0.24), help="parameters of the models")
    made.add_argument("--tokens", nargs="+", type=int, default=(32, 512))
    made.add_argument("--planted", nargs="*", choices=PLANTED, default=(), help="what goes wrong in FP16")
    made.add_argument("--stored", choices=STORED, default="fp32", help="the types of the file")
    made.add_argument("--stream", action="store_true", help="the tokens one by one; a rollout is judged")
    made.add_argument("--devices", nargs="+", choices=("cpu", "cuda"), default=("cpu", "cuda"))
    made.add_argument("--folder", type=Path, help="where the models are written, and removed again")
    made.add_argument("--limit", type=float, default=600.0, help="seconds a process may take")
    return made


if __name__ == "__main__":
    sys.exit(main())
