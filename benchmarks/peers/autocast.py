"""ModelOpt AutoCast with its defaults, calibrated with the inputs given; inputs and outputs keep their types."""

from __future__ import annotations

import onnx

from benchmarks.peers.task import Answer, Stopwatch, Task, serve


def work(task: Task) -> Answer:
    from modelopt.onnx.autocast import convert_to_mixed_precision

    watch = Stopwatch()
    model = convert_to_mixed_precision(task.model, "fp16", keep_io_types=True, calibration_data=task.inputs)
    onnx.save(model, task.out)
    return watch.answer(model_runs=1.0)


if __name__ == "__main__":
    serve(work, ("nvidia-modelopt", "onnx", "onnxruntime-gpu", "onnxruntime", "torch"))
