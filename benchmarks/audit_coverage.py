"""How much an audit can tell: compiles FP16 models with TensorRT-RTX and counts how each compute node is covered.

Run: python -m benchmarks.audit_coverage [MODELS]. Prints a Markdown table, and the time that compiling and
auditing adds to `fix` on the encoder.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import onnx

from halfwise.compiler import rtx
from halfwise.compiler.audit import audit
from halfwise.compiler.build import BuildError, profiles_from_samples
from halfwise.compiler.buildlog import read_log
from halfwise.compiler.compiled import node_infos
from halfwise.compiler.layers import layers_from_log
from halfwise.core.formats import Format
from halfwise.model.inputs.samples import load_samples
from halfwise.model.model import load
from halfwise.precision.decision import Decision
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import write_typed
from halfwise.verbs.fix.fix import fix
from tests.models.zoo import encoder

_COVERAGES = ("exact", "mixed", "region-only", "folded", "unknown")
_MODELS = Path(__file__).resolve().parents[2] / "shared" / "models"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="?", type=Path, default=_MODELS, help="a folder of folders with a model.onnx")
    folder = parser.parse_args().models
    with tempfile.TemporaryDirectory() as scratch:
        zoo = encoder()
        path = Path(scratch, "encoder.onnx")
        onnx.save(zoo.model, path)
        print("| model (all FP16) | nodes | compute | exact | mixed | region | folded | unknown | build s | audit s |")
        print("|---|---|---|---|---|---|---|---|---|---|")
        for model, inputs in ((path, None), *_real_models(folder)):
            print(_row(model, inputs, Path(scratch)), flush=True)
        seconds = {target: _fix_seconds(path, zoo.inputs, target) for target in ("onnx", "rtx-1.7")}
        compiled = seconds["rtx-1.7"][1]
        print(f"\n`fix` on the encoder: {seconds['onnx'][0]:.1f} s without a compiler, ", end="")
        print(f"{seconds['rtx-1.7'][0]:.1f} s for rtx-1.7, of which compiling and auditing took {compiled:.1f} s")


def _real_models(folder: Path) -> Iterator[tuple[Path, list[Path]]]:
    for model in sorted(folder.glob("*/model.onnx")):
        yield model, sorted(model.parent.glob("inputs_*.npz"))


def _row(path: Path, inputs: list[Path] | None, scratch: Path) -> str:
    model = load(path)
    name = path.parent.name if path.stem == "model" else path.stem
    sites = Sites(model)
    start = f"| {name} | {len(model.nodes)} | {sites.compute_nodes} |"
    samples = load_samples(model.inputs, inputs)
    profiles = profiles_from_samples((*samples.search, *samples.validation))
    decision = Decision(sites, {}, Format.FP32)
    typed = write_typed(decision.assignment, scratch / f"{name}.fp16.onnx")
    try:
        built = rtx.build(typed.path, profiles=profiles)
    except BuildError as error:
        reason = "; ".join(map(str, error.refusals)) or str(error)
        return f"{start} {error.failure}: {reason.replace('|', '/')} |||||||"
    began = time.perf_counter()
    log = read_log(built.log_path)
    result = audit(layers_from_log(log), log, node_infos(decision))
    seconds = time.perf_counter() - began
    counts = result.coverage()
    total = max(sum(counts.values()), 1)
    shares = " | ".join(f"{counts[kind] / total:.1%}" for kind in _COVERAGES)
    return f"{start} {shares} | {built.seconds:.2f} | {seconds:.2f} |"


def _fix_seconds(path: Path, inputs: object, target: str) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as out:
        began = time.perf_counter()
        result = fix(path, inputs, out=out, target=target)  # type: ignore[arg-type]
        seconds = time.perf_counter() - began
    return seconds, result.deploy_files.compiled.seconds if result.deploy_files.compiled else 0.0


if __name__ == "__main__":
    main()
