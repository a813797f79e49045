"""Runs tools on a case, each call a fresh process with a time limit, and judges what they leave."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx

from benchmarks.cases import Case
from benchmarks.peers.task import Answer, Task
from benchmarks.strict import Census, Errors, InvalidModel, census, judge

__all__ = ["OURS", "PEERS", "TOOLS", "Entry", "ask", "enter", "machine", "markdown", "repeat"]

TOOLS = {
    "halfwise": "halfwise_fix",
    "halfwise, no repairs": "halfwise_fix",
    "halfwise, BF16": "halfwise_fix",
    "halfwise.convert": "halfwise_convert",
    "AutoCast": "autocast",
    "onnxconverter search": "float16_search",
    "all FP16, ModelOpt": "plain_modelopt",
    "all FP16, onnxconverter": "plain_onnxconverter",
}
OURS = ("halfwise", "halfwise, no repairs", "halfwise, BF16", "halfwise.convert")
PEERS = tuple(name for name in TOOLS if name not in OURS)
ROOT = Path(__file__).resolve().parents[1]
LONG = 60.0  # seconds beyond which one call must do for the median


@dataclass(frozen=True)
class Entry:
    """One tool on one case; `errors` and `census` are None where it left no valid model."""

    tool: str
    answer: Answer
    calls: int
    errors: Errors | None = None
    census: Census | None = None


def enter(tool: str, case: Case, python: str, limit: float, repeats: int) -> Entry:
    """Ask a tool for a model `repeats` times and judge the last on the inputs it was not given."""
    with tempfile.TemporaryDirectory() as folder:
        answer, calls = repeat(tool, case, python, limit, repeats, Path(folder))
        if answer.problem:
            return Entry(tool, answer, calls)
        try:
            typed = onnx.load(Path(folder) / "out.onnx")
            return Entry(tool, answer, calls, judge(case.model, typed, case.held_out), census(typed))
        except InvalidModel as error:
            return Entry(tool, replace(answer, problem=f"invalid model: {error}"), calls)


def repeat(tool: str, case: Case, python: str, limit: float, repeats: int, folder: Path) -> tuple[Answer, int]:
    """The last answer with the median of the seconds, and how many calls that rests on; a long call is not repeated."""
    answers = [ask(tool, case, python, limit, folder)]
    while len(answers) < repeats and not answers[0].problem and answers[0].seconds <= LONG:
        answers.append(ask(tool, case, python, limit, folder))
    order = sorted(answers, key=lambda answer: answer.seconds)
    middle = order[len(order) // 2]
    seconds = statistics.median(answer.seconds for answer in answers)
    return replace(answers[-1], seconds=seconds, split=middle.split, cpu=middle.cpu), len(answers)


def ask(tool: str, case: Case, python: str, limit: float, folder: Path, checkout: Path = ROOT) -> Answer:
    """One call in a process of its own; its out.onnx is left in `folder`. `checkout`: of another version."""
    inputs = folder / "inputs"
    inputs.mkdir(exist_ok=True)
    for index, feed in enumerate(case.given):
        np.savez(inputs / f"{index:03}.npz", **feed)  # type: ignore[arg-type]
    model, question, answer = folder / "model.onnx", folder / "task.json", folder / "answer.json"
    onnx.save(case.model, model)
    answer.unlink(missing_ok=True)
    repairs = "none" if tool in ("halfwise, no repairs", "halfwise, BF16") else "all"
    out, bf16 = str(folder / "out.onnx"), tool == "halfwise, BF16"
    Task(str(model), str(inputs), out, case.tolerance, repairs, bf16).save(question)
    command = [python, "-m", f"benchmarks.peers.{TOOLS[tool]}", str(question), str(answer)]
    log = folder / "log.txt"
    found = {} if checkout == ROOT else {"PYTHONPATH": f"{checkout / 'src'}{os.pathsep}{checkout}"}
    with log.open("wb") as file:
        run = partial(subprocess.run, cwd=checkout, env={**os.environ, **found}, stdout=file, stderr=file, check=False)
        try:
            code = run(command, timeout=limit).returncode
        except subprocess.TimeoutExpired:
            return Answer(seconds=limit, problem=f"stopped after {limit:.0f} s")
        except OSError as error:
            return Answer(problem=f"cannot be run: {error.strerror}")
    if not answer.exists():
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        return Answer(problem=f"ended with exit code {code}: {' '.join(last)[:120]}")
    return Answer.load(answer)


def machine() -> str:
    """Cores and processor, for the head of a table."""
    return f"{os.cpu_count()} cores ({_processor()}), Python {platform.python_version()}, {sys.platform}"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose columns line up as plain text, too."""
    lines = [[cell.replace("|", "\\|") for cell in row] for row in (head, *rows)]
    widths = [max(len(row[i]) for row in lines) for i in range(len(head))]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in lines]
    text = [f"| {' | '.join(row)} |" for row in padded]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text)
