"""Forks the processes that run recipes, with everything loaded: JSON lines in, JSON lines out.

It does with them what the command line's supervisor does with commands: a native call that ended one is refused when
the recipe is run again.
"""

from __future__ import annotations

import json
import math
import os
import resource
import select
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, BinaryIO, NoReturn

from halfwise.core.child.black_box import BlackBox, attach
from halfwise.core.child.guard import end_with_parent
from tools.fuzz.outcome import Outcome
from tools.fuzz.recipe import Recipe
from tools.fuzz.worker import MEMORY, prepare, run

__all__ = ["LOADED"]

LOADED = (
    "onnxruntime", "halfwise.cli.main", "halfwise.verbs.fix.fix", "halfwise.verbs.bisect.run",
    "halfwise.verbs.scan", "halfwise.report.html.fix_report", "halfwise.report.fix", "halfwise.report.bisect",
)  # fmt: skip
_MOST_RUNS = 2000  # of one process, so that what leaks is not taken for what a file does
_MOST_MEMORY = 1500  # MiB at rest


@dataclass
class _Runner:
    """A process that runs recipes."""

    process: int
    asked: BinaryIO
    answers: BinaryIO
    runs: int = 0


class Nursery:
    """Runs recipes, each within `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._box = BlackBox()
        self._runner: _Runner | None = None

    def run(self, recipe: Recipe) -> Outcome:
        self._box.fatal.clear()
        while True:
            self._box.write(b"")
            runner = self._runner = self._runner or self._forked()
            runner.runs += 1
            with suppress(BrokenPipeError):  # told below
                runner.asked.write(json.dumps(recipe.to_json()).encode() + b"\n")
                runner.asked.flush()
            if not select.select([runner.answers], [], [], self._seconds)[0]:
                self._end(runner)
                if self._box.doing.startswith(
                    "running a model"
                ):  # a loop without end is the model's; HALFWISE_TIME_LIMIT ends it
                    return Outcome("stopped")
                doing = f" while {self._box.doing}" if self._box.doing else ""
                return Outcome("over", f"{recipe.attack} over {self._seconds:g} s{doing}")
            line = runner.answers.readline()
            if line:
                answer = json.loads(line)
                if answer["memory"] > _MOST_MEMORY or runner.runs >= _MOST_RUNS or self._box.fatal:
                    self._end(runner)
                return Outcome(answer["kind"], answer["where"], answer["told"])
            code = self._end(runner)
            if code >= 0 or not self._box.refuse(-code):
                ended = signal.Signals(-code).name if code < 0 else f"exit code {code}"
                return Outcome("death", f"{ended} {self._box.doing}".strip())

    def _forked(self) -> _Runner:
        asked, asking = os.pipe()
        answered, answering = os.pipe()
        process = os.fork()
        if not process:
            end_with_parent()
            os.close(asking)
            os.close(answered)
            attach(self._box)
            _serve(os.fdopen(asked, "rb"), os.fdopen(answering, "wb"))
        os.close(asked)
        os.close(answering)
        return _Runner(process, os.fdopen(asking, "wb"), os.fdopen(answered, "rb"))

    def _end(self, runner: _Runner) -> int:
        """How it ended: by itself, or here and now."""
        self._runner = None
        os.kill(runner.process, signal.SIGKILL)  # nothing happens to one that has ended
        _, status = os.waitpid(runner.process, 0)
        for pipe in (runner.asked, runner.answers):
            with suppress(OSError):  # what nobody read
                pipe.close()
        return os.waitstatus_to_exitcode(status)


def _serve(asked: BinaryIO, answers: BinaryIO) -> NoReturn:
    """The life of a runner. What native code prints goes nowhere."""
    for line in asked:
        outcome: Any = run(Recipe.from_json(json.loads(line))).to_json()
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        answers.write(json.dumps({**outcome, "memory": math.ceil(memory / 1024)}).encode() + b"\n")
        answers.flush()
    os._exit(0)


def main() -> None:
    """Until stdin ends."""
    for module in LOADED:
        import_module(module)
    prepare()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    nursery = Nursery(float(sys.argv[1]))
    for line in sys.stdin:
        answers.write(json.dumps(nursery.run(Recipe.from_json(json.loads(line))).to_json()) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
