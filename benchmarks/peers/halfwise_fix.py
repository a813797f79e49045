"""halfwise, with its time split into running models, loading them into the runtime, and everything else."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import onnxruntime

from benchmarks.peers.task import Answer, Stopwatch, Task, serve


class Clock:
    """Seconds spent inside ONNX Runtime, from a session class that measures itself."""

    def __init__(self) -> None:
        self.loading = 0.0
        self.running = 0.0

    def install(self) -> None:
        clock, plain = self, onnxruntime.InferenceSession

        class Timed(plain):  # type: ignore[misc, valid-type]
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                started = time.perf_counter()
                super().__init__(*args, **kwargs)
                clock.loading += time.perf_counter() - started

            def run(self, *args: Any, **kwargs: Any) -> Any:
                started = time.perf_counter()
                try:
                    return super().run(*args, **kwargs)
                finally:
                    clock.running += time.perf_counter() - started

            def run_with_ort_values(self, *args: Any, **kwargs: Any) -> Any:
                started = time.perf_counter()
                try:
                    return super().run_with_ort_values(*args, **kwargs)
                finally:
                    clock.running += time.perf_counter() - started

        onnxruntime.InferenceSession = Timed


def work(task: Task) -> Answer:
    clock = Clock()
    clock.install()
    from halfwise.verbs.fix.fix import fix

    with tempfile.TemporaryDirectory() as folder:
        watch = Stopwatch()
        tolerance = [f"*:rel_l2<={task.tolerance!r}"]
        result = fix(
            task.model,
            task.inputs,
            out=folder,
            tolerance=tolerance,
            repairs=(task.repairs,),
            allow_bf16=task.bf16,
        )
        answer = watch.answer(
            model_runs=result.cost.model_runs,
            says="met" if result.met else "not met",
            split={"running": clock.running, "loading": clock.loading},
        )
        assert result.typed is not None
        shutil.copy(Path(result.typed.path), task.out)
    return answer


if __name__ == "__main__":
    serve(work, ("halfwise", "onnx", "onnxruntime", "numpy"))
