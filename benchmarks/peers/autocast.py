"""ModelOpt AutoCast with its defaults, calibrated with the inputs given; inputs and outputs keep their types."""

from __future__ import annotations

import time

import onnx

from benchmarks.peers.task import Answer, Task, serve


def work(task: Task) -> Answer:
    from modelopt.onnx.autocast import convert_to_mixed_precision

    started = time.perf_counter()
    model = convert_to_mixed_precision(task.model, "fp16", keep_io_types=True, calibration_data=task.inputs)
    onnx.save(model, task.out)
    return Answer(seconds=time.perf_counter() - started, model_runs=1.0)


if __name__ == "__main__":
    serve(work, ("nvidia-modelopt", "onnx", "onnxruntime-gpu", "onnxruntime", "torch"))
