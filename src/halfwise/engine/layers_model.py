"""Ties engine layers to a model: its nodes for an audit, and its own layers by compiling it with TensorRT-RTX."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from halfwise.engine.audit import NodeInfo

if TYPE_CHECKING:
    from halfwise.engine.buildlog.report import LogReport

__all__ = ["compile_for_log", "nodes_of_model"]


def nodes_of_model(path: Path | str) -> tuple[NodeInfo, ...]:
    """The nodes of an ONNX file in execution order, as TensorRT's parser names them."""
    from halfwise.model import load
    from halfwise.ops import CONTROL_FLOW, MOVES
    from halfwise.sites import native_format

    nodes = []
    for node in load(path).nodes:
        formats = [fmt for out in node.outputs if (fmt := native_format(out)) is not None]
        nodes.append(
            NodeInfo(
                name=node.name or "",
                op=node.op_type,
                outputs=tuple(out.name or "" for out in node.outputs),
                compute=bool(formats) and node.op_type not in MOVES | CONTROL_FLOW,
                declared=formats[0].value if formats else None,
            )
        )
    return tuple(nodes)


def compile_for_log(path: Path | str, inputs: Sequence[Path] = (), time_limit_s: float = 600.0) -> LogReport:
    """Compile an ONNX file with TensorRT-RTX on this machine and read the compiler's log.

    The ranges of open dimensions come from `inputs`, or from inputs made up.
    """
    from halfwise.engine import rtx
    from halfwise.engine.build import profiles_from_samples
    from halfwise.engine.buildlog import read_log
    from halfwise.errors import MissingBackend
    from halfwise.model import load
    from halfwise.samples import load_samples

    if not rtx.available():
        raise MissingBackend(f"auditing a model compiles it with TensorRT-RTX, which is not installed: {rtx.INSTALL}")
    model = load(path)
    profiles = None
    if any(spec.shape is None or not all(isinstance(size, int) for size in spec.shape) for spec in model.inputs):
        samples = load_samples(model.inputs, inputs or None)
        profiles = profiles_from_samples((*samples.search, *samples.validation))
    return read_log(rtx.build(path, profiles=profiles, time_limit_s=time_limit_s).log_path)
