"""The command that writes the part of a model that ONNX Runtime runs."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

from halfwise.model.model import Model

__all__ = ["part_command"]


def part_command(model: Model, path: Path, node: ir.Node) -> tuple[str, ...]:
    """Its words, for the part in front of a node; none where nothing is computed there."""
    made = [value.name for value in node.inputs if value is not None and value.producer()]
    if not made:
        return ()
    given = [str(path), f"{path.stem}.part.onnx", [each.name for each in model.inputs], made]
    words = f"import onnx.utils; onnx.utils.extract_model({', '.join(map(repr, given))}, check_model=False)"
    return ("python3", "-c", words)
