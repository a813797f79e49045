"""Memory and time on small models: python -m benchmarks.memory [--models encoder magika_v1] [--folders FOLDER].

Each model runs once in FP32 with ONNX Runtime, and once through `fix`, in fresh processes, as benchmarks.large measures
them. The limit of `fix` is 2.5 times the peak of the FP32 run and 300 MB. Beside its CPU seconds stands what as many
runs of the model take in FP32. A folder holds model.onnx and inputs/0000.npz and more.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.cases import BUILT, REAL, load_case, models_folder
from benchmarks.contest import machine, markdown
from benchmarks.fresh_processes import measured
from benchmarks.large import RUN, VERB

__all__ = ["main", "parser"]

HEAD = ("model", "one FP32 run, GB", "fix, GB", "limit GB", "within", "CPU s of fix", "of its runs in FP32", "remark")


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    rows = [found for name in options.models if (found := _of_case(name, options.models_folder, options.limit))]
    rows += [
        _row(folder.name, folder / "model.onnx", folder / "inputs", {}, options.limit) for folder in options.folders
    ]
    print(f"{machine()}\n")
    print(markdown(HEAD, rows))
    return 0


def _of_case(name: str, models: Path, limit_s: float) -> tuple[str, ...] | None:
    case = load_case(name, models)
    if case is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path, inputs = Path(folder) / "model.onnx", Path(folder) / "inputs"
        inputs.mkdir()
        onnx.save(case.model, path)
        for index, feed in enumerate(case.given):
            np.savez(inputs / f"{index:04}.npz", **feed)  # type: ignore[arg-type]
        return _row(name, path, inputs, {"tolerance": [f"*:rel_l2<={case.tolerance}"]}, limit_s)


def _row(name: str, path: Path, inputs: Path, options: Mapping[str, Any], limit_s: float) -> tuple[str, ...]:
    with tempfile.TemporaryDirectory() as out:
        run = measured(name, [RUN, str(path), str(inputs)], limit_s)
        fix = measured(name, [VERB, "fix", str(path), str(inputs), out, json.dumps(options)], limit_s)
    limit = 2.5 * run.own + 0.3
    within = "yes" if fix.own <= limit else "no"
    numbers = (f"{run.own:.2f}", f"{fix.own:.2f}", f"{limit:.2f}")
    runs = fix.told.get("executions", 0.0) * run.told.get("CPU", 0.0)
    return (name, *numbers, within, f"{fix.cpu:.1f}", f"{runs:.1f}", run.problem or fix.problem)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--models", nargs="*", default=(*BUILT, "transformer_6", *REAL))
    made.add_argument("--folders", nargs="+", type=Path, default=(), help="models of your own, with their inputs")
    made.add_argument("--models-folder", type=Path, default=models_folder(), help="where real models lie")
    made.add_argument("--limit", type=float, default=600.0, help="seconds a process may take")
    return made


if __name__ == "__main__":
    sys.exit(main())
