"""Whether TensorRT-RTX builds models, as given and as `fix` writes them: python -m benchmarks.builds FOLDER.

Each folder in FOLDER holds model.onnx and inputs/. `fix` runs in a process of its own, with a time limit; its model
and the given one are then compiled. A model that builds as given and not as written is a defect. Needs halfwise[rtx].
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from benchmarks.contest import ROOT, machine, markdown
from halfwise.compiler import rtx
from halfwise.compiler.build import BuildError, Failure, Profiles, profiles_from_samples
from halfwise.core.errors import InputError
from halfwise.model.inputs.all_samples import all_samples
from halfwise.model.model import load_to_run

__all__ = ["HEAD", "main", "parser", "row"]

HEAD = ("model", "exit", "built as given", "as written", "FP32 nodes", "repairs", "seconds")
TARGET = "rtx-1.7"
_MOST_LETTERS = 160  # of a refusal


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    rows = []
    for folder in sorted(path.parent for path in options.folder.glob("*/model.onnx")):
        if not options.only or folder.name in options.only:
            rows.append(row(folder, options.limit))
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    print(f"{machine()}\n")
    print(markdown(HEAD, rows))
    lost = [name for name, _, given, written, *_ in rows if given == "yes" and _is_failure(written)]
    print(f"\n{len(rows)} models; built as given and not as written: {', '.join(lost) or 'none'}")
    return 1 if lost else 0


def row(folder: Path, limit: float) -> tuple[str, ...]:
    with tempfile.TemporaryDirectory() as made:
        started = time.perf_counter()
        ended, document, told = _fixed(folder, Path(made), limit)
        seconds = f"{time.perf_counter() - started:.1f}"
        try:
            model = folder / "model.onnx"
            profiles = profiles_from_samples(all_samples(load_to_run(model).inputs, folder / "inputs").feeds)
            given = _built(model, profiles, limit)
            written = _built(Path(document["artifacts"]["onnx"]), profiles, limit) if document else _short(told)
        except InputError as error:
            return folder.name, ended, _short(str(error)), "", "", "", seconds
    counts = (str(len(document[key])) if document else "" for key in ("fp32_nodes", "repairs"))
    return folder.name, ended, given, written, *counts, seconds


def _fixed(folder: Path, out: Path, limit: float) -> tuple[str, dict[str, Any], str]:
    """How it ended, its document, and the last line that it said."""
    options = ["--inputs", str(folder / "inputs"), "--out", str(out), "--target", TARGET, "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "halfwise", "fix", str(folder / "model.onnx"), *options]
    try:
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return "too slow", {}, ""
    document = json.loads(ended.stdout) if ended.stdout else {}
    said = ended.stderr.strip().rpartition("\n")[2]
    return f"{ended.returncode} {document.get('status', '')}".strip(), document, said


def _built(path: Path, profiles: Profiles, limit: float) -> str:
    try:
        rtx.build(path, profiles=profiles, time_limit_s=limit, tf32=False)
    except BuildError as error:
        return f"{error.failure}: {_short(str(error).partition(f'{path}: ')[2] or str(error))}"
    return "yes"


def _is_failure(built: str) -> bool:
    return built.partition(":")[0] in get_args(Failure)


def _short(told: str) -> str:
    line = told.partition("\n")[0].replace("|", "/")
    return line if len(line) <= _MOST_LETTERS else f"{line[:_MOST_LETTERS]}..."


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.builds", description=(__doc__ or "").splitlines()[0])
    made.add_argument("folder", type=Path, metavar="FOLDER", help="of folders with model.onnx and inputs/")
    made.add_argument("--only", nargs="*", default=(), metavar="NAME", help="of folders in it")
    made.add_argument("--limit", type=float, default=300.0, metavar="SECONDS", help="for each process")
    return made


if __name__ == "__main__":
    sys.exit(main())
