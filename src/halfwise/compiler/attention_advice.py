"""Shows on a model how to keep a suspect fused attention kernel out: compiles it with TensorRT-RTX until it is gone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import onnx

from halfwise.compiler.attention_regions import Fp32Region, find_fp32_region, fused_groups, groups_of
from halfwise.compiler.compiled import TIME_LIMIT_S, Compiler
from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.model.model import Model, load
from halfwise.precision.decision import Decision
from halfwise.precision.sites import Sites
from halfwise.precision.widen import is_typed, widened

if TYPE_CHECKING:
    from halfwise.compiler.audit import Audit

_MOST_BYTES = (2 << 30) - (64 << 20)  # what one protobuf takes, and room for the graph

__all__ = ["keep_kernel_out"]


def keep_kernel_out(
    source: str | Path, suspects: Sequence[str], time_limit_s: float = TIME_LIMIT_S
) -> Fp32Region | None:
    """The smallest FP32 region that drops the kernels whose names hold one of `suspects`; None where there is none.

    An FP32 model is compiled as FP16 throughout, a typed one as it is. Raises MissingBackend without TensorRT-RTX, and
    InputError with NVIDIA's reason where it refuses the model.
    """
    from halfwise.compiler.build import profiles_from_samples
    from halfwise.emulation.open_sizes import sizes_that_run
    from halfwise.model.inputs.samples import load_samples

    model = load(source)
    if not groups_of(model):
        return None
    sizes = sizes_that_run(model, None, remedy="export it with the sizes that you use")
    samples = load_samples(model.inputs, None, sizes=sizes)
    with TemporaryDirectory(prefix="halfwise-") as folder:
        profiles = profiles_from_samples((*samples.search, *samples.validation))
        compiler = Compiler(Path(folder), profiles, time_limit_s)
        typed = is_typed(model)
        narrow = Decision(Sites(model), {}, Format.FP32)

        def compile_with(names: frozenset[str]) -> Audit:
            if typed:
                return compiler.compile(_save(model, names, Path(folder)))
            nodes = (model.node_by_name[name] for name in names)
            return compiler(narrow.with_fp32(node for node in nodes if narrow.sites.of[node].free))

        before = compile_with(frozenset())
        return find_fp32_region(fused_groups(model, before), suspects, before, compile_with)


def _save(model: Model, names: frozenset[str], folder: Path) -> Path:
    if model.weight_bytes > _MOST_BYTES:
        raise InputError(f"{model.path}: a typed model of more than 2 GB is not rewritten here; give the FP32 model")
    path = folder / "widened.onnx"
    onnx.save(widened(model, names), path)
    return path
