"""Makes the plans that `benchmarks.gpu.speed` times: `python -m benchmarks.gpu.plans FOLDER NAME ...`.

`fix` at its default tolerance of 1% for the CUDA provider, whole models emulated on the GPU: once with FP32 nodes
alone, once with repairs, each in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from benchmarks.gpu.cuda import prepare
from benchmarks.gpu.missing import MISSING

__all__ = ["REPAIRS"]

REPAIRS: dict[str, tuple[str, ...]] = {"fixed": (), "repaired": ("all",)}
SAMPLES = 4


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
    from halfwise.fix import fix

    prepare()
    built, started = MISSING[name](), time.perf_counter()
    made = fix(built.model, built.inputs[:SAMPLES], target="ort-cuda", repairs=REPAIRS[version], device="cuda")
    (folder / f"{name}.{version}.json").write_text(made.plan.text(), encoding="utf-8")
    seconds = time.perf_counter() - started
    told = ", ".join(f"{profile} {load:.2f}" for profile, load in made.by_profile.items())
    print(f"{name} {version}: {len(made.fp32_nodes)} nodes in FP32, {told}, {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
