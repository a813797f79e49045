"""Ties engine layers to a model: its nodes for an audit, and its own layers by compiling it with TensorRT-RTX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir

from halfwise.compiler.audit import NodeInfo
from halfwise.core.notes import Note, NoteKind
from halfwise.model.families import PRODUCTS

if TYPE_CHECKING:
    from halfwise.compiler.buildlog.report import LogReport

__all__ = ["compile_for_log", "nodes_of_model", "weight_size"]


def weight_size(node: ir.Node) -> int:
    """The size of the FP32 constant that a product multiplies by; 0 where it has none, or two."""
    if node.op_type not in PRODUCTS:
        return 0
    weights = [weight for value in node.inputs[:2] if value is not None and (weight := value.const_value) is not None]
    return int(weights[0].size) if len(weights) == 1 and weights[0].dtype is ir.DataType.FLOAT else 0


def nodes_of_model(path: Path | str) -> tuple[NodeInfo, ...]:
    """The nodes of an ONNX file in execution order, as TensorRT's parser names them."""
    from halfwise.model.model import load
    from halfwise.model.moving import only_moves
    from halfwise.model.ops import CONTROL_FLOW
    from halfwise.precision.sites import native_format

    nodes = []
    for node in load(path).nodes:
        formats = [fmt for out in node.outputs if (fmt := native_format(out)) is not None]
        nodes.append(
            NodeInfo(
                name=node.name or "",
                op=node.op_type,
                outputs=tuple(out.name or "" for out in node.outputs),
                compute=bool(formats) and not only_moves(node) and node.op_type not in CONTROL_FLOW,
                declared=formats[0].value if formats else None,
                weight=weight_size(node),
            )
        )
    return tuple(nodes)


def compile_for_log(
    path: Path | str,
    inputs: Sequence[Path] = (),
    time_limit_s: float = 600.0,
    notify: Callable[[Note], None] = lambda text: None,
) -> LogReport:
    """Compile an ONNX file with TensorRT-RTX on this machine and read the compiler's log.

    The ranges of open dimensions come from `inputs`, or from inputs made up; `notify` is told which they are.
    """
    from halfwise.compiler import rtx
    from halfwise.compiler.build import profiles_from_samples
    from halfwise.compiler.buildlog import read_log
    from halfwise.core.errors import MissingBackend
    from halfwise.emulation.open_sizes import sizes_that_run
    from halfwise.model.inputs.samples import load_samples
    from halfwise.model.model import load

    if not rtx.available():
        raise MissingBackend(f"auditing a model compiles it with TensorRT-RTX, which is not installed: {rtx.INSTALL}")
    model = load(path)
    profiles = None
    opened = [s.name for s in model.inputs if s.shape is None or not all(isinstance(size, int) for size in s.shape)]
    # A small integer input may hold a shape, whose values the compiler must know.
    small = any(s.dtype.kind in "iu" and s.shape is not None and len(s.shape) < 2 for s in model.inputs)
    if opened or small:
        given = inputs or None
        sizes = sizes_that_run(model, given, remedy="give real inputs with --inputs")
        samples = load_samples(model.inputs, given, sizes=sizes)
        profiles = profiles_from_samples((*samples.search, *samples.validation))
    if profiles and opened:
        ranges = [f"{name} {_spelled(profiles[name].min, profiles[name].max)}" for name in opened]
        if inputs:
            notify(Note.of(NoteKind.COMPILED_FOR_INPUTS, ranges=ranges))
        else:
            notify(Note.of(NoteKind.COMPILED_FOR_SYNTHETIC, ranges=ranges))
    built = rtx.build(path, profiles=profiles, time_limit_s=time_limit_s)
    log = read_log(built.log_path)
    return log if log.trt_version else replace(log, trt_version=built.version)


def _spelled(least: Sequence[int], most: Sequence[int]) -> str:
    low, high = ("x".join(map(str, shape)) or "scalar" for shape in (least, most))
    return low if low == high else f"{low} to {high}"
