"""Makes the plans that `benchmarks.gpu.speed` times: `python -m benchmarks.gpu.plans FOLDER NAME ...`.

`fix` at its default tolerance of 1% for the CUDA provider: once with FP32 nodes alone, once with repairs, each in a
process of its own. Whole models are emulated on the GPU where there is one; a GPU is not needed.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import onnxruntime as ort

from benchmarks.gpu.cuda import prepare
from benchmarks.gpu.missing import MISSING
from halfwise.emulation.ort import Device

__all__ = ["REPAIRS"]

REPAIRS: dict[str, tuple[str, ...]] = {"fixed": (), "repaired": ("all",)}
SAMPLES = 8
SIZES: dict[str, dict[str, int]] = {"decoder_24": {"tokens": 256}}  # shorter texts, the same nodes


def main() -> None:
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    folder.mkdir(parents=True, exist_ok=True)
    if len(names) == 2 and names[1] in REPAIRS:
        _make(folder, *names)
        return
    own = [sys.executable, "-m", "benchmarks.gpu.plans", str(folder)]
    running = [subprocess.Popen([*own, name, version]) for name in names for version in REPAIRS]
    sys.exit(max(process.wait() for process in running))


def _make(folder: Path, name: str, version: str) -> None:
    from halfwise.verbs.fix.fix import fix

    on_gpu = "CUDAExecutionProvider" in ort.get_available_providers()
    if on_gpu:
        prepare()
    built, started = MISSING[name](**SIZES.get(name, {})), time.perf_counter()
    device: Device = "cuda" if on_gpu else "cpu"
    made = fix(built.model, built.inputs[:SAMPLES], target="ort-cuda", repairs=REPAIRS[version], device=device)
    (folder / f"{name}.{version}.json").write_text(made.plan.text(), encoding="utf-8")
    seconds = time.perf_counter() - started
    told = ", ".join(f"{profile} {load:.2f}" for profile, load in made.by_profile.items())
    print(f"{name} {version}: {len(made.fp32_nodes)} nodes in FP32, {told}, {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
