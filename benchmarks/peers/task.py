"""What a tool is asked and what it answers, as files, so that tools in other environments take part."""

from __future__ import annotations

import importlib.metadata
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

__all__ = ["NOT_INSTALLED", "Answer", "Stopwatch", "Task", "load_feeds", "serve"]

NOT_INSTALLED = "not installed"


@dataclass(frozen=True)
class Task:
    """Make `out` from `model`, knowing the inputs (one .npz each) in the folder `inputs`.

    `repairs` and `bf16` are halfwise's.
    """

    model: str
    inputs: str
    out: str
    tolerance: float
    repairs: str = "all"
    bf16: bool = False

    def save(self, path: Path) -> None:
        """Without what is by default: an older version's program knows fewer fields."""
        stated = {name: value for name, value in asdict(self).items() if value is not False}
        path.write_text(json.dumps(stated), encoding="utf-8")


@dataclass(frozen=True)
class Answer:
    """`seconds` is the tool's own work, without imports, and `cpu` the processor time it took, which a busy machine
    does not stretch; `model_runs` are passes over the inputs given.

    `says` is what the tool itself claims. `split` are the parts of `seconds`, where they are known.
    """

    seconds: float = 0.0
    model_runs: float = 0.0
    says: str = ""
    problem: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    split: dict[str, float] = field(default_factory=dict)
    cpu: float = 0.0

    @staticmethod
    def load(path: Path) -> Answer:
        return Answer(**json.loads(path.read_text(encoding="utf-8")))


class Stopwatch:
    """Runs from when it is made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def answer(self, **rest: Any) -> Answer:
        return Answer(seconds=time.perf_counter() - self._wall, cpu=time.process_time() - self._cpu, **rest)


def serve(work: Callable[[Task], Answer], packages: tuple[str, ...]) -> None:
    """The body of a tool's program: `python -m benchmarks.peers.NAME TASK.json ANSWER.json`."""
    task = Task(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    watch = Stopwatch()
    try:
        answer = work(task)
    except ModuleNotFoundError as error:
        answer = Answer(problem=NOT_INSTALLED, says=str(error))
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        answer = watch.answer(problem=f"gave up: {said[:160]}")
    found = {**asdict(answer), "versions": {name: _version(name) for name in packages}}
    Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")


def load_feeds(task: Task) -> list[dict[str, NDArray[Any]]]:
    """The inputs of the task that the model declares, in the order of their names."""
    names = {value.name for value in onnx.load(task.model, load_external_data=False).graph.input}
    feeds = []
    for path in sorted(Path(task.inputs).glob("*.npz")):
        with np.load(path) as file:
            feeds.append({name: file[name] for name in file.files if name in names})
    return feeds


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
