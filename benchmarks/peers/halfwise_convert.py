"""`halfwise.convert`, which takes AutoCast's place; inputs and outputs keep their types."""

from __future__ import annotations

import warnings

import onnx

from benchmarks.peers.task import Answer, Stopwatch, Task, serve


def work(task: Task) -> Answer:
    from halfwise.verbs.convert import ConversionWarning, convert

    warnings.simplefilter("ignore", ConversionWarning)
    watch = Stopwatch()
    tolerance = f"*:rel_l2<={task.tolerance!r}"
    model = convert(task.model, keep_io_types=True, inputs=task.inputs, tolerance=tolerance)
    onnx.save(model, task.out)
    return watch.answer()


if __name__ == "__main__":
    serve(work, ("halfwise", "onnx", "onnxruntime", "numpy"))
