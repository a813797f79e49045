"""Does every backend work on this machine? One line each; meant for a machine with an NVIDIA GPU.

    python -m benchmarks.gpu_smoke

A line begins with ok, missing (what is not installed or not usable, and why) or FAILED; exit code 1 if anything failed.
Nothing is installed, and a machine without a GPU says so in every line but the CPU's.
"""

from __future__ import annotations

import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from halfwise.backends import BackendOptions, backend_named
from halfwise.core.errors import HalfwiseError, MissingBackend
from tests.models.zoo import ZooModel, encoder

__all__ = ["main"]

_NAMES = ("ort-cpu", "ort-cuda", "ort-tensorrt", "ort-rtx", "tensorrt", "rtx")
_VARIANTS = {
    "io binding": BackendOptions(io_binding=True),
    "no fusion": BackendOptions(optimization="disable"),
    "TF32": BackendOptions(tf32=True),
}


def main() -> int:
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        mixed = _mixed(Path(folder, "mixed.onnx"))
        feeds = [{"x": np.random.default_rng(i).standard_normal((2, 8, 16, 16)).astype(np.float32)} for i in range(3)]
        wanted = backend_named("ort-cpu").run(mixed, feeds).outputs
        for name in _NAMES:
            bad += _line(name, lambda name=name: _run(name, BackendOptions(), mixed, feeds, wanted))  # type: ignore[misc]
        for title, options in _VARIANTS.items():
            line = f"ort-cuda, {title}"
            bad += _line(line, lambda o=options: _run("ort-cuda", o, mixed, feeds, wanted))  # type: ignore[misc]
        zoo = encoder()
        bad += _line("fix --device cuda", lambda: _fix_on_cuda(zoo))
        bad += _line("fix --confirm ort-cuda", lambda: _confirm(zoo, Path(folder, "fixed")))
        bad += _line("bisect --backend ort-cuda", lambda: _bisect(zoo, Path(folder, "bisected")))
    return int(bad > 0)


def _line(title: str, work: Callable[[], str]) -> bool:
    started = time.perf_counter()
    try:
        state, told = "ok", work()
    except MissingBackend as error:
        state, told = "missing", str(error)
    except HalfwiseError as error:
        state, told = "FAILED", str(error)
    except Exception as error:
        traceback.print_exc()
        state, told = "FAILED", f"{type(error).__name__}: {error}"
    print(f"{state:8} {title}: {told} ({time.perf_counter() - started:.1f} s)", flush=True)
    return state == "FAILED"


def _run(name: str, options: BackendOptions, model: Path, feeds: list, wanted: tuple) -> str:  # type: ignore[type-arg]
    done = backend_named(name, options).run(model, feeds)
    errors = [
        np.linalg.norm(g["y"] - w["y"]) / np.linalg.norm(w["y"]) for g, w in zip(done.outputs, wanted, strict=True)
    ]
    record = done.record
    if not max(errors) < 0.01:
        raise HalfwiseError(f"the answer is wrong: rel_l2 {max(errors):.3g} against ort-cpu on {record.title}")
    return (
        f"{record.title}, compute capability {record.compute_capability or '-'}, driver {record.driver or '-'}, CUDA "
        f"{record.cuda or '-'}, TF32 {record.tf32}, optimisation {record.optimization}, binding {record.io_binding}, "
        f"nodes {dict(record.nodes)}, on the CPU {list(record.on_cpu)}, rel_l2 {max(errors):.2e}"
    )


def _fix_on_cuda(zoo: ZooModel) -> str:
    from halfwise.verbs.fix.fix import fix

    started = time.perf_counter()
    there = fix(zoo.model, zoo.inputs[:4], device="cuda")
    middle = time.perf_counter()
    here = fix(zoo.model, zoo.inputs[:4])
    seconds = time.perf_counter() - middle
    if there.fp32_nodes != here.fp32_nodes:
        raise HalfwiseError(f"{len(there.fp32_nodes)} FP32 nodes with cuda, {len(here.fp32_nodes)} with cpu")
    return f"the same {len(here.fp32_nodes)} FP32 nodes; {middle - started:.1f} s there, {seconds:.1f} s on the CPU"


def _confirm(zoo: ZooModel, out: Path) -> str:
    from halfwise.verbs.fix.fix import fix

    result = fix(zoo.model, zoo.inputs[:8], out=out, target="ort-cuda", confirm="ort-cuda").confirmation
    assert result is not None
    gaps = ", ".join(f"{n}: {g.predicted:.3g} predicted, {g.measured:.3g} measured" for n, g in result.gaps.items())
    return f"{'met' if result.met else 'not met'}; {gaps}; findings {[f.rule for f in result.findings]}"


def _bisect(zoo: ZooModel, out: Path) -> str:
    from halfwise.verbs.bisect.run import bisect

    result = bisect(zoo.model, "ort-cuda", zoo.inputs[:2], out=out, options=BackendOptions(optimization="disable"))
    return f"{result.ending}, {len(result.culprits)} culprits in {len(result.regions)} regions, {result.builds()}"


def _mixed(path: Path) -> Path:
    """A convolution in FP16, a softmax in FP32 and a product in FP16 again."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((16, 8, 3, 3)).astype(np.float16) * np.float16(0.1),
        "b": rng.standard_normal(16).astype(np.float16),
        "m": rng.standard_normal((16, 4)).astype(np.float16) * np.float16(0.25),
    }
    nodes = [
        helper.make_node("Cast", ["x"], ["xh"], name="in", to=TensorProto.FLOAT16),
        helper.make_node("Conv", ["xh", "w", "b"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("Cast", ["r"], ["rf"], name="up", to=TensorProto.FLOAT),
        helper.make_node("Softmax", ["rf"], ["s"], name="softmax", axis=-1),
        helper.make_node("Cast", ["s"], ["sh"], name="down", to=TensorProto.FLOAT16),
        helper.make_node("MatMul", ["sh", "m"], ["p"], name="product"),
        helper.make_node("Cast", ["p"], ["y"], name="out", to=TensorProto.FLOAT),
    ]
    graph = helper.make_graph(
        nodes,
        "mixed",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 16, 16, 4])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


if __name__ == "__main__":
    sys.exit(main())
