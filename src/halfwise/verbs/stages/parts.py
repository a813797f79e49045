"""Makes a stage a model of its own: its nodes, the weights they use, and the tensors that pass in and out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from halfwise.core.errors import InputError
from halfwise.model.model import Model
from halfwise.precision.sites import Sites
from halfwise.verbs.stages.cut import Piece, needed_by

__all__ = ["Part", "parts_of"]


@dataclass(frozen=True, eq=False)
class Part:
    """A stage as a model. `fixed` are its nodes that have no choice of precision within the whole model."""

    name: str
    model: Model
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    fixed: frozenset[str]


def parts_of(sites: Sites, pieces: Sequence[Piece]) -> Iterator[Part]:
    """The stages in order, each made when it is asked for."""
    model = sites.model
    handed_out = set(model.graph.outputs)
    last_use: dict[ir.Value, int] = {}
    for index, piece in enumerate(pieces):
        for node in piece.nodes:
            last_use.update(dict.fromkeys(needed_by(node), index))
    for index, piece in enumerate(pieces):
        own = {value for node in piece.nodes for value in node.outputs}
        read = dict.fromkeys(value for node in piece.nodes for value in needed_by(node) if value not in own)
        outputs = [
            value
            for node in piece.nodes
            for value in node.outputs
            if value in handed_out or last_use.get(value, -1) > index
        ]
        inputs = [value for value in read if not value.is_initializer()]
        weights = [value for value in read if value.is_initializer()]
        _check(piece, (*inputs, *outputs))
        view = ir.GraphView(
            inputs,
            outputs,
            nodes=piece.nodes,
            initializers=weights,
            opset_imports=dict(model.graph.opset_imports),
            name=piece.name,
        )
        whole = ir.Model(view.clone(), ir_version=model.ir.ir_version, producer_name="halfwise")
        part = Model(None, whole, "", len(piece.nodes), 0, model.files, model.data_hash)
        yield Part(
            piece.name,
            part,
            tuple(value.name or "" for value in inputs),
            tuple(value.name or "" for value in outputs),
            frozenset(node.name or "" for node in part.nodes if not sites.of[model.node_by_name[node.name or ""]].free),
        )


def _check(piece: Piece, ends: Sequence[ir.Value]) -> None:
    for value in ends:
        if value.type is None or value.dtype is None:
            raise InputError(f"the type of the tensor {value.name!r}, where stage {piece.name!r} begins or ends, is "
                             "not known; cut elsewhere")  # fmt: skip
