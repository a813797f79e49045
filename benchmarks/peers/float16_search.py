"""onnxconverter-common's search for FP32 nodes, but judged honestly: every FP16 tensor rounded, all inputs looked at.

As it comes, it looks at one input and at ONNX Runtime's CPU kernels, which hide FP16's overflow. A trial that is not
a valid model counts as one that failed, where the tool itself would stop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from benchmarks.peers.task import Answer, Stopwatch, Task, load_feeds, serve
from benchmarks.strict import InvalidModel, StrictSession, check_valid, rel_l2

Answers = Sequence[NDArray[Any]]


def work(task: Task) -> Answer:
    from onnxconverter_common import auto_mixed_precision

    feeds = load_feeds(task)
    runs = 0
    as_it_comes = auto_mixed_precision.get_tensor_values_using_ort

    def answers(model: onnx.ModelProto, feed: Any, names: Any = None, options: Any = None) -> Answers:
        nonlocal runs
        if names is not None:  # it asks for the types of tensors
            values: Answers = as_it_comes(model, feed, names, options)
            return values
        runs += 1
        try:
            check_valid(model)
            session = StrictSession(model)
        except InvalidModel:
            return []
        return [output for each in feeds for output in session.run(each)]

    def good(wanted: Answers, got: Answers) -> bool:
        return len(wanted) == len(got) and all(map(near, wanted, got))

    def near(wanted: NDArray[Any], got: NDArray[Any]) -> bool:
        if wanted.dtype.kind != "f":
            return float(np.mean(wanted == got)) >= 0.999
        return rel_l2(wanted, got) <= task.tolerance

    auto_mixed_precision.get_tensor_values_using_ort = answers
    model = onnx.load(task.model)
    watch = Stopwatch()
    try:
        found = auto_mixed_precision.auto_convert_mixed_precision(model, feeds[0], good, keep_io_types=True)
    except ValueError as error:
        return watch.answer(model_runs=runs, problem=f"gave up: {error}")
    onnx.save(found, task.out)
    return watch.answer(model_runs=runs, says="met")


if __name__ == "__main__":
    serve(work, ("onnxconverter-common", "onnx", "onnxruntime-gpu", "onnxruntime"))
