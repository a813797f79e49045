"""One worker process, started anew where it ends or takes too long."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

from tools.fuzz.outcome import Outcome
from tools.fuzz.recipe import Recipe

__all__ = ["Child"]

_ROOT = Path(__file__).parents[2]
_MOST_RUNS = 2000  # of one process, so that what leaks is not taken for what a file does
_MOST_MEMORY = 1500  # MiB at rest


class Child:
    """Runs recipes in a process of its own, each within `seconds`."""

    def __init__(self, seconds: float = 30.0) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._runs = 0

    def run(self, recipe: Recipe) -> Outcome:
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        first = self._runs == 0
        self._runs += 1
        try:
            process.stdin.write(json.dumps(recipe.to_json()).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            return self._ended()
        if not select.select([process.stdout], [], [], self._seconds + (90 if first else 0))[0]:
            self.close()
            return Outcome("over", f"{recipe.attack} over {self._seconds:g} s")
        line = process.stdout.readline()
        if not line:
            return self._ended()
        answer = json.loads(line)
        if answer["memory"] > _MOST_MEMORY or self._runs >= _MOST_RUNS:
            self.close()
        return Outcome(answer["kind"], answer["where"], answer["told"])

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            one = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "HALFWISE_DEBUG": "1"}
            path = f"{_ROOT / 'src'}{os.pathsep}{_ROOT}"
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tools.fuzz.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **one, "PYTHONPATH": path},
                cwd=_ROOT,
            )
            self._runs = 0
        return self._process

    def _ended(self) -> Outcome:
        assert self._process is not None
        code = self._process.wait(10)
        self._process = None
        return Outcome("death", signal.Signals(-code).name if code < 0 else f"exit code {code}")
