"""What an imported TensorRT can do, asked of the module itself: by the names it has, not by its version number.

Checked against the names in the released bindings of 8.6, 10.0, 10.3, 10.13, 10.16, 11.0, 11.4 and TensorRT-RTX 1.7.
Integer values of the enums differ between releases (STRONGLY_TYPED is 1 in 10.x and 0 in 11.x), so only names are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from halfwise.core.errors import MissingBackend

__all__ = ["Capabilities", "of"]


# What every release has, 8.4 to 11 and TensorRT-RTX, and no build works without.
_NEEDED = ("Builder", "BuilderFlag", "ILayer", "ILogger", "NetworkDefinitionCreationFlag", "OnnxParser", "ParserError")


@dataclass(frozen=True)
class Capabilities:
    """One TensorRT module. `weak_typing`: the builder may choose precisions; `strong_only`: it never does."""

    product: str  # "tensorrt" or "tensorrt-rtx"
    version: str
    weak_typing: bool  # up to 10.16
    strong_typing: bool  # from 9.1
    strong_only: bool  # from 11.0, and TensorRT-RTX
    precision_constraints: bool  # layer precisions that the builder must obey
    norm_compute_precision: bool  # INormalizationLayer.compute_precision: 8.6 to 10.16
    layer_metadata: bool  # ILayer.metadata names the ONNX node: from 8.6
    implicit_batch: bool  # 8.x: a network must be told that its batch is explicit
    named_parser_errors: bool  # ParserError.node_name and node_operator: from 10.0
    needs_gpu: bool  # a build needs a GPU
    compute_capabilities: tuple[str, ...]  # that a build can be made for, such as "8.6"; none: this machine's GPU

    @property
    def title(self) -> str:
        return f"{'TensorRT-RTX' if self.product == 'tensorrt-rtx' else 'TensorRT'} {self.version}".strip()


def of(module: Any) -> Capabilities:
    """The capabilities of an imported `tensorrt`, `tensorrt_rtx` or of their bindings module.

    Raises MissingBackend for a module that is not theirs: some other `tensorrt.py`, or half an installation.
    """
    lacking = [name for name in _NEEDED if not hasattr(module, name)]
    if lacking:
        name, where = getattr(module, "__name__", "the module"), getattr(module, "__file__", None)
        raise MissingBackend(
            f"{name!r}{f' ({where})' if where else ''} is not NVIDIA's module, or not all of it: it lacks "
            f"{', '.join(lacking[:3])}"
        )
    flags, layer = module.BuilderFlag, module.ILayer
    creation = module.NetworkDefinitionCreationFlag
    # TensorRT-RTX up to 1.4 still has the members of weak typing, but its builds are strongly typed all the same.
    rtx = hasattr(module, "ComputeCapability")
    weak = not rtx and hasattr(flags, "FP16") and hasattr(layer, "precision") and hasattr(layer, "set_output_type")
    return Capabilities(
        product="tensorrt-rtx" if rtx else "tensorrt",
        version=str(getattr(module, "__version__", "")),
        weak_typing=weak,
        strong_typing=rtx or not weak or hasattr(creation, "STRONGLY_TYPED"),
        strong_only=not weak,
        precision_constraints=weak and hasattr(flags, "OBEY_PRECISION_CONSTRAINTS"),
        norm_compute_precision=weak
        and hasattr(module, "INormalizationLayer")
        and hasattr(module.INormalizationLayer, "compute_precision"),
        layer_metadata=hasattr(layer, "metadata"),
        implicit_batch=hasattr(module.Builder, "max_batch_size"),
        named_parser_errors=hasattr(module.ParserError, "node_name"),
        needs_gpu=not rtx,
        compute_capabilities=_choices(module.ComputeCapability) if rtx else (),
    )


def _choices(enum: Any) -> tuple[str, ...]:
    numbers = sorted(int(name[2:]) for name in dir(enum) if name.startswith("SM") and name[2:].isdigit())
    return tuple(f"{number // 10}.{number % 10}" for number in numbers)
