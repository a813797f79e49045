"""Everything to FP16 with ModelOpt's converter, without AutoCast's rules; inputs and outputs keep their types."""

from __future__ import annotations

import onnx

from benchmarks.peers.task import Answer, Stopwatch, Task, serve


def work(task: Task) -> Answer:
    from modelopt.onnx.autocast.convert import convert_to_f16

    watch = Stopwatch()
    onnx.save(convert_to_f16(onnx.load(task.model), keep_io_types=True), task.out)
    return watch.answer()


if __name__ == "__main__":
    serve(work, ("nvidia-modelopt", "onnx"))
