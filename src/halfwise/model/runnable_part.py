"""The command that writes the part of a model that ONNX Runtime runs."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

from halfwise.model.known_operators import quantises
from halfwise.model.model import Model
from halfwise.model.proto_file import read_proto

__all__ = ["part_command"]


def part_command(model: Model, path: Path, node: ir.Node) -> tuple[str, ...]:
    """Its words, for the part in front of a node; none where nothing is computed there, or where the file's graph does
    not name what the node reads: in a body, or in a function; nor in front of the first quantiser of many."""
    made = [value.name or "" for value in node.inputs if value is not None and value.producer()]
    stored = {name for each in read_proto(path)[0].graph.node for name in each.output}
    if not made or quantises(node.op_type) or not stored.issuperset(made):
        return ()
    given = [str(path), f"{path.stem}.part.onnx", [each.name for each in model.inputs], made]
    words = f"import onnx.utils; onnx.utils.extract_model({', '.join(map(repr, given))}, check_model=False)"
    return ("python3", "-c", words)
