"""Predicted against measured: every model of the suite on an NVIDIA GPU, in FP16, fixed and repaired.

`python -m benchmarks.fidelity --out benchmarks/data/fidelity.json` on a machine with an NVIDIA GPU and
onnxruntime-gpu. Each version runs through the CUDA provider without and with its fusions (TF32 off) on eight inputs,
and is emulated on the CPU under the profiles; both are compared with FP32. Plans that are not in `--plans` are made.
`--machine FILE` predicts also by what `prove` learned, at both ends, and with convolutions that sum in FP16;
`benchmarks.gpu.learned` tells these apart.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from benchmarks.cases import models_folder
from benchmarks.gpu.suite import SUITE, Subject, subject
from benchmarks.gpu.versions import VERSIONS, assignment_of_version
from halfwise.core.metrics import compare, is_float
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.profiles import ORT_CUDA, ORT_CUDA_UNFUSED, STRICT, Profile, profile_named
from halfwise.emulation.profiles.narrow_sums import NARROW_SUMS
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto
from halfwise.verbs.fix.fix import fix

__all__ = ["MODES", "error_of", "main"]

Array = NDArray[Any]
Errors = list[dict[str, dict[str, float]]]
MODES = {"unfused": ORT_CUDA_UNFUSED.name, "fused": ORT_CUDA.name}  # how it runs, and the profile that predicts it
_PROFILES = {"fp16": (STRICT, ORT_CUDA_UNFUSED, ORT_CUDA)}
_FEWER = (ORT_CUDA_UNFUSED, ORT_CUDA)


def error_of(wanted: Array, got: Array) -> dict[str, float]:
    """The relative error (or the share of equal places) of one output, and its new non-finite values."""
    if wanted.shape != got.shape:  # a model whose results have a size of their own, such as how many were found
        return {"rel_l2": math.inf, "nonfinite": 0.0} if is_float(wanted.dtype) else {"equal": 0.0}
    seen = compare(wanted, got)
    if is_float(wanted.dtype):
        return {"rel_l2": float(seen.rel_l2), "nonfinite": float(seen.nonfinite)}
    return {"equal": float(np.mean(wanted == got))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(SUITE))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--plans", type=Path, default=Path("fidelity-plans"))
    parser.add_argument("--models", type=Path, default=models_folder())
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--no-fix", action="store_true", help="leave out versions that have no plan")
    parser.add_argument("--machine", type=Path, help="a file that prove wrote on this GPU")
    parser.add_argument("--inputs", type=int, default=8)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    stated = parser.parse_args()
    if stated.one:
        _one(stated)
        return
    from benchmarks.gpu.cuda import machine, prepare

    prepare()
    stated.plans.mkdir(parents=True, exist_ok=True)
    folder = stated.out.with_suffix(".parts")
    folder.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    with ThreadPoolExecutor(stated.workers) as pool:
        more = [*(["--no-fix"] if stated.no_fix else []), "--inputs", str(stated.inputs)]
        more += ["--machine", str(stated.machine)] if stated.machine else []
        said = pool.map(lambda name: _apart(name, folder, stated.plans, stated.models, more), stated.names)
        for name, problem in zip(stated.names, said, strict=True):
            print(name, problem or "done", f"{time.perf_counter() - started:.0f} s", flush=True)
            parts = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
            document = {"schema": "halfwise.fidelity/1", "machine": machine(), "models": parts}
            stated.out.write_text(json.dumps(document), encoding="utf-8")


def _apart(name: str, folder: Path, plans: Path, models: Path, more: Sequence[str]) -> str:
    """One model in a process of its own; what went wrong, where something did."""
    command = [sys.executable, "-m", "benchmarks.fidelity", name, "--one", "--out", str(folder / f"{name}.json")]
    command += ["--plans", str(plans), "--models", str(models), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stderr.splitlines() if "cudnn_frontend" not in line and line.strip()]
    return "" if done.returncode == 0 else " ".join(lines[-2:])[-300:]


def _one(stated: argparse.Namespace) -> None:
    from benchmarks.gpu.cuda import cuda_session, half, prepare

    found = subject(stated.names[0], stated.models)
    if found is None:
        return
    found = replace(found, inputs=found.inputs[: stated.inputs])
    prepare()
    reference = cuda_session(found.model, fused=False)
    wanted = [_named(reference, reference.run(None, half(reference, feed))) for feed in found.inputs]
    loose = sorted({node.op_type for node in load(found.model).nodes if ORT_CUDA.loose(node)})
    entry: dict[str, Any] = {"tolerance": found.tolerance, "held_out": found.held_out, "loose": loose}
    entry.update(nodes=len(found.model.graph.node), versions={})
    for version in VERSIONS:
        plan = _plan(found, version, stated.plans, make=not stated.no_fix)
        assignment = assignment_of_version(found.model, version, plan)
        if assignment is None:
            continue
        row: dict[str, Any] = {"fp32_nodes": _fp32_nodes(assignment), "measured": {}, "predicted": {}}
        proto: onnx.ModelProto = typed_proto(assignment)
        for mode in MODES:
            session = cuda_session(proto, fused=mode == "fused")
            errors: Errors = []
            for feed, outputs in zip(found.inputs, wanted, strict=True):
                results = _named(session, session.run(None, half(session, feed)))
                errors.append({key: error_of(array, results[key]) for key, array in outputs.items()})
            row["measured"][mode] = errors
        for name, profile in _profiles(version, stated.machine).items():
            row["predicted"][name] = _predicted(assignment, profile, found.inputs, wanted)
        entry["versions"][version] = row
        stated.out.write_text(json.dumps(entry), encoding="utf-8")


def _profiles(version: str, machine: Path | None) -> dict[str, Profile]:
    """By the names that they have in the results."""
    found = {profile.name: profile for profile in _PROFILES.get(version, _FEWER)}
    if machine is not None:
        most = profile_named(str(machine))
        least = next((each for each in most.beside if each.name.startswith(most.name)), most)
        narrow = {op: NARROW_SUMS[op] for op in ("Conv", "ConvTranspose")}
        found |= {"learned": most, "learned, least": least}
        found |= {"narrow convolutions": replace(ORT_CUDA, kernels={**ORT_CUDA.kernels, **narrow})}
    return found


def _predicted(
    assignment: Assignment,
    profile: Profile,
    inputs: Sequence[Mapping[str, Array]],
    wanted: Sequence[Mapping[str, Array]],
) -> Errors:
    session = Emulator(profile).session(assignment)
    errors: Errors = []
    for feed, outputs in zip(inputs, wanted, strict=True):
        carried = widen_feeds(feed)
        results = session.run({key: carried[key] for key in session.input_names})
        errors.append({key: error_of(array, results[key]) for key, array in outputs.items()})
    return errors


def _fp32_nodes(assignment: Assignment) -> int:
    sites: Sites = assignment.sites
    return sum(site.compute and not (site.free and site.node in assignment.formats and assignment.of(
        site.node) is sites.fmt) for site in sites.all)  # fmt: skip


def _plan(found: Subject, version: str, plans: Path, *, make: bool) -> Path | None:
    """The plan of a version, made where it is not there yet; a healthy model gets a tolerance that it misses."""
    if version == "fp16":
        return None
    path = plans / f"{found.name}.{version}.json"
    if make and not path.exists():
        repairs = ("all",) if version == "repaired" else ()
        made = fix(found.model, [dict(feed) for feed in found.inputs[:4]], tolerance=f"*:rel_l2<={_asked(found)}",
                   target="ort-cuda", repairs=repairs)  # fmt: skip
        path.write_text(made.plan.text(), encoding="utf-8")
    return path


def _asked(found: Subject) -> float:
    """The model's own tolerance, or less than half of FP16's error where FP16 is well within it."""
    sites = Sites(load(found.model))
    feed, errors = widen_feeds(found.inputs[0]), []
    exact, narrow = (
        Emulator().session(assignment).run(feed) for assignment in (Assignment(sites, {}), Assignment.all_narrow(sites))
    )
    for name, array in exact.items():
        errors.append(error_of(array, narrow[name]).get("rel_l2", 0.0))
    error = max(errors)
    return found.tolerance if not 0 < error < 0.9 * found.tolerance else float(f"{0.45 * error:.2g}")


def _named(session: Any, results: Sequence[Array]) -> dict[str, Array]:
    return {value.name: array for value, array in zip(session.get_outputs(), results, strict=True)}


if __name__ == "__main__":
    main()
