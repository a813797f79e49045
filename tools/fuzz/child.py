"""The process that recipes run in, started anew where it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tools.fuzz.outcome import Outcome
from tools.fuzz.recipe import Recipe

__all__ = ["Child"]

_ROOT = Path(__file__).parents[2]


class Child:
    """Runs recipes in processes that may die, each within `seconds`."""

    def __init__(self, seconds: float = 30.0) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, recipe: Recipe) -> Outcome:
        process = self._process = self._process or self._started()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(recipe.to_json()).encode() + b"\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
        except (BrokenPipeError, ValueError):
            self.close()
            return Outcome("death", "of the process that starts the others")
        return Outcome(answer["kind"], answer["where"], answer["told"])

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _started(self) -> subprocess.Popen[bytes]:
        one = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "HALFWISE_DEBUG": "1"}
        path = (str(_ROOT / "src"), str(_ROOT), os.environ.get("PYTHONPATH"))
        return subprocess.Popen(
            [sys.executable, "-m", "tools.fuzz.nursery", str(self._seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **one, "PYTHONPATH": os.pathsep.join(filter(None, path))},
            cwd=_ROOT,
        )
