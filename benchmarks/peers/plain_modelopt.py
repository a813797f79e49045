"""Everything to FP16 with ModelOpt's converter, without AutoCast's rules; inputs and outputs keep their types."""

from __future__ import annotations

import time

import onnx

from benchmarks.peers.task import Answer, Task, serve


def work(task: Task) -> Answer:
    from modelopt.onnx.autocast.convert import convert_to_f16

    started = time.perf_counter()
    onnx.save(convert_to_f16(onnx.load(task.model), keep_io_types=True), task.out)
    return Answer(seconds=time.perf_counter() - started)


if __name__ == "__main__":
    serve(work, ("nvidia-modelopt", "onnx"))
