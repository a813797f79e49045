"""Everything to FP16 with onnxconverter-common's converter and its defaults; inputs and outputs keep their types."""

from __future__ import annotations

import onnx

from benchmarks.peers.task import Answer, Stopwatch, Task, serve


def work(task: Task) -> Answer:
    from onnxconverter_common.float16 import convert_float_to_float16

    watch = Stopwatch()
    onnx.save(convert_float_to_float16(onnx.load(task.model), keep_io_types=True), task.out)
    return watch.answer()


if __name__ == "__main__":
    serve(work, ("onnxconverter-common", "onnx"))
