"""Loads an ONNX model safely into one normal form: functions inlined, nodes named and sorted, types inferred."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir.passes import common as passes

from halfwise.errors import InputError
from halfwise.external import check_external_data, external_files
from halfwise.names import name_nodes

if TYPE_CHECKING:
    from halfwise.samples import InputSpec

__all__ = ["Model", "load"]

OLDEST_OPSET = 7


@dataclass(frozen=True, eq=False)
class Model:
    """A model in normal form. `ir` is shared by every room and never changed after loading."""

    path: Path | None
    ir: ir.Model
    sha256: str
    stored_nodes: int  # as the file counts them, before functions are inlined and constants lifted
    renamed_nodes: int
    files: tuple[Path, ...]  # external data

    @property
    def graph(self) -> ir.Graph:
        return self.ir.graph

    @cached_property
    def nodes(self) -> tuple[ir.Node, ...]:
        """Every node in execution order, the ones in subgraphs right behind the node that holds them."""
        return tuple(self.ir.graph.all_nodes())

    @cached_property
    def node_by_name(self) -> dict[str, ir.Node]:
        return {node.name or "": node for node in self.nodes}

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """What a caller has to feed."""
        from halfwise.samples import InputSpec

        return tuple(
            InputSpec(value.name or "", _numpy_type(value), _shape(value)) for value in self.ir.graph.inputs
        )

    @property
    def output_names(self) -> tuple[str, ...]:
        return tuple(value.name or "" for value in self.ir.graph.outputs)

    @cached_property
    def weight_bytes(self) -> int:
        return sum(value.const_value.nbytes for value in self.initializers() if value.const_value is not None)

    def initializers(self) -> Iterator[ir.Value]:
        """Every initializer, those of subgraphs included."""
        yield from self.ir.graph.initializers.values()
        for graph in self.ir.graph.subgraphs():
            if graph is not self.ir.graph:
                yield from graph.initializers.values()

    def opset(self, domain: str = "") -> int:
        return self.ir.opset_imports.get(domain, 1)


def load(source: str | Path | onnx.ModelProto) -> Model:
    """Read a model from a file (or take one in memory); anything unfit raises one clear InputError."""
    if isinstance(source, onnx.ModelProto):
        path, label = None, "the model"
        proto = source
        digest = hashlib.sha256(proto.SerializeToString(deterministic=True)).hexdigest()
        files: tuple[Path, ...] = ()
    else:
        path = Path(source)
        label = str(path)
        proto, digest = _read(path)
        check_external_data(proto, path)
        files = external_files(proto, path)
    _check_opset(proto, label)
    stored_nodes = len(proto.graph.node)
    try:
        model = ir.from_proto(proto)
    except Exception as error:
        raise InputError(f"{label} is not a valid ONNX model: {_first_line(error)}") from error
    assert isinstance(model, ir.Model)
    if path is not None:
        ir.external_data.set_base_dir(model.graph, path.parent)
        for function in model.functions.values():
            ir.external_data.set_base_dir(function, path.parent)
    try:
        renamed = _normalise(model)
    except InputError as error:
        raise InputError(f"{label}: {error}") from None
    except Exception as error:
        raise InputError(f"{label} is not a valid ONNX model: {_first_line(error)}") from error
    return Model(path, model, digest, stored_nodes, renamed, files)


def _read(path: Path) -> tuple[onnx.ModelProto, str]:
    if not path.exists():
        raise InputError(f"{path}: there is no such file")
    if path.is_dir():
        raise InputError(f"{path} is a folder; name the .onnx file in it")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except Exception:
        raise InputError(f"{path} is not an ONNX model (its bytes are no protobuf of one)") from None
    if not proto.graph.node and not proto.graph.output:
        raise InputError(f"{path} is not an ONNX model (no graph in it)")
    return proto, hashlib.sha256(content).hexdigest()


def _check_opset(proto: onnx.ModelProto, label: str) -> None:
    newest = onnx.defs.onnx_opset_version()
    versions = [entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")]
    for version in versions:
        if version < OLDEST_OPSET:
            raise InputError(
                f"{label} uses opset {version}; the oldest understood is {OLDEST_OPSET}: "
                "raise it with onnx.version_converter.convert_version"
            )
        if version > newest:
            raise InputError(
                f"{label} uses opset {version}; the installed onnx package knows up to {newest}: upgrade onnx"
            )


def _normalise(model: ir.Model) -> int:
    for entry in ("ai.onnx",):  # the long spelling of the default domain
        if entry in model.opset_imports:
            model.opset_imports.setdefault("", model.opset_imports.pop(entry))
    if model.functions:
        passes.InlinePass()(model)
        passes.RemoveUnusedFunctionsPass()(model)
    for node in model.graph.all_nodes():
        if node.domain == "ai.onnx":
            node.domain = ""
    renamed = name_nodes(model.graph.all_nodes())
    passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    passes.RemoveInitializersFromInputsPass()(model)
    try:
        model.graph.sort()
    except ValueError:
        raise InputError("the graph has a cycle") from None
    _check_wiring(model)
    _infer_types(model)
    return renamed


def _check_wiring(model: ir.Model) -> None:
    known = {id(value) for value in model.graph.inputs}
    known.update(id(value) for value in model.graph.initializers.values())
    for graph in model.graph.subgraphs():
        known.update(id(value) for value in graph.inputs)
        known.update(id(value) for value in graph.initializers.values())
    for node in model.graph.all_nodes():
        known.update(id(value) for value in node.outputs)
    for node in model.graph.all_nodes():
        for value in node.inputs:
            if value is not None and id(value) not in known:
                raise InputError(f"node {node.name!r} reads {value.name!r}, which nothing produces")
    for value in model.graph.outputs:
        if id(value) not in known:
            raise InputError(f"the graph output {value.name!r} is produced by nothing")


def _infer_types(model: ir.Model) -> None:
    """Shape inference, with a guess for operators whose schema nobody has: the type of their first float input."""
    for _ in range(len(model.graph) + 1):
        passes.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(model)
        guessed = False
        for node in model.graph.all_nodes():
            if onnx.defs.has(node.op_type, node.domain):
                continue
            fallback = next((v.type for v in node.inputs if v is not None and _is_float(v)), None)
            for out in node.outputs:
                if out.type is None and fallback is not None:
                    out.type = fallback
                    guessed = True
            if guessed:
                break
        if not guessed:
            return


def _is_float(value: ir.Value) -> bool:
    return value.dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def _numpy_type(value: ir.Value) -> np.dtype[np.generic]:
    if value.dtype is None or not isinstance(value.type, ir.TensorType):
        raise InputError(f"the model's input {value.name!r} is no tensor; only tensor inputs can be fed")
    return np.dtype(value.dtype.numpy())


def _shape(value: ir.Value) -> tuple[int | str | None, ...] | None:
    if value.shape is None:
        return None
    return tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
