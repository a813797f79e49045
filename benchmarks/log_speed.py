"""How fast a large verbose build log is read, and in how much memory: python benchmarks/log_speed.py [MEGABYTES]."""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from halfwise.compiler.buildlog import read_log

__all__ = ["clean_lines", "troubled_lines"]


def clean_lines(seed: int = 0) -> Iterator[str]:
    """The lines of a healthy verbose build, without end: parsing, fusions, tactics, memory, formats."""
    random = Random(seed)
    node = 0
    while True:
        node += 1
        name = f"/model/layers.{node}/block/Conv_{node}"
        channels, size = random.choice((16, 32, 64, 128)), random.choice((7, 14, 28, 56))
        yield f"{_V}Parsing node: {name} [Conv]"
        yield f"{_V}Searching for input: layers.{node}.weight"
        yield f"{_V}{name} [Conv] inputs: [x{node} -> (1, {channels}, {size}, {size})[FLOAT]], "
        yield f"{_V}Registering layer: {name} for ONNX node: {name}"
        yield f"{_V}Registering tensor: y{node} for ONNX tensor: y{node}"
        yield f"{_V}{name} [Conv] outputs: [y{node} -> (1, {channels}, {size}, {size})[FLOAT]], "
        yield f"{_V}ConvReluFusion: Fusing {name} with /model/layers.{node}/act/Relu"
        yield f"{_V}After vertical fusions: {random.randrange(900)} layers"
        yield f"{_V}=============== Computing costs for {name} + /model/layers.{node}/act/Relu"
        yield f"{_V}*************** Autotuning format combination: Half({channels},1:8,{size},1) -> Half(9,1:8,9,1)"
        yield f"{_V}--------------- Timing Runner: {name} + /model/layers.{node}/act/Relu (CaskConvolution[0x80000009])"
        for _ in range(random.randrange(12, 60)):
            tactic = f"{random.getrandbits(64):#018x}"
            yield (
                f"{_V}{name} Set Tactic Name: sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_"
                f"tilesize{random.choice((64, 128, 256))}x64x32_stage{random.randrange(1, 6)}_warpsize2x2x1_g1 "
                f"Tactic: {tactic}"
            )
            yield f"{_V}Tactic: {tactic} Time: {random.random():.7f}"
        yield f"{_V}Fastest Tactic: {tactic} Time: {random.random():.7f}"
        yield f"{_V}>>>>>>>>>>>>>>> Chose Runner Type: CaskConvolution Tactic: {tactic}"
        yield f"{_I}[MemUsageChange] Init cuBLAS/cuBLASLt: CPU +0, GPU +{random.randrange(9)}, now: CPU 5, GPU 6 (MiB)"
        yield f"{_V}Layer: {name} Host Persistent: {random.randrange(9999)} bytes Device Persistent: 0 bytes"


def troubled_lines() -> tuple[str, ...]:
    """What a build in FP16 that met trouble adds near its end."""
    names = ", ".join(f"/model/layers.{n}/block/Conv_{n} + PWN(PWN(Sigmoid_{n}), Mul_{n}).weight" for n in range(111))
    return (
        f"{_W}TensorRT encountered issues when converting weights between types and that could affect accuracy.",
        f"{_W}- 111 weights are affected by this issue: Detected subnormal FP16 values.",
        f"{_V}  List of affected weights: {names}",
        f"{_W}Detected layernorm nodes in FP16.",
        f"{_V}/norm/ReduceMean, /norm/Pow, /norm/Sqrt",
    )


_STAMP = "[07/07/2026-02:11:23] "
_V = _STAMP + "[V] [TRT] "
_I = _STAMP + "[I] [TRT] "
_W = _STAMP + "[W] [TRT] "


def write_log(path: Path, megabytes: int) -> None:
    size = 0
    with path.open("w", encoding="utf-8") as file:
        for line in clean_lines():
            size += file.write(line + "\n")
            if size >= megabytes * 1_000_000:
                break
        file.writelines(line + "\n" for line in troubled_lines())


def main() -> None:
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "build.log"
        write_log(path, megabytes)
        start = time.perf_counter()
        report = read_log(path)
        seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    print("| log (MB) | lines | findings | seconds | peak RSS (MiB) |")
    print("|---|---|---|---|---|")
    print(f"| {megabytes} | {report.lines} | {len(report.findings)} | {seconds:.2f} | {peak:.0f} |")


if __name__ == "__main__":
    main()
