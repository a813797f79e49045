"""Loads an ONNX model safely into one normal form: functions inlined, nodes named and sorted, types inferred."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
from onnx_ir import Graph, Node, Value

from halfwise.core.errors import InputError
from halfwise.core.formats import Format, format_of_type
from halfwise.model.bodies import graphs_in, nodes_in
from halfwise.model.cache_sizes import rooms_of
from halfwise.model.chosen_rows import last_row
from halfwise.model.data_hash import DataHash, file_sha256, is_data
from halfwise.model.external import (
    check_external_data,
    data_folder,
    external_files,
    holds_own_weights,
    read_small,
)
from halfwise.model.file_stamps import FileStamps
from halfwise.model.function_scopes import check_function_scopes
from halfwise.model.inference import has_schema
from halfwise.model.input_spec import InputSpec
from halfwise.model.known_operators import check_operators
from halfwise.model.map_outputs import MapOutput, cut_maps, has_maps
from halfwise.model.mapped_once import map_once
from halfwise.model.normal_form import normalise
from halfwise.model.opset import OLDEST_OPSET, allow_narrow_scales, raise_opset
from halfwise.model.proto_file import check_proto, read_proto
from halfwise.model.protobuf_fixups import fix_up, needs_fixups
from halfwise.model.unread_inputs import unread_inputs

__all__ = ["Model", "check_outputs", "load", "load_to_run"]


@dataclass(frozen=True, eq=False)
class Model:
    """A model in normal form. `ir` is shared by every room and never changed after loading.

    Of a model that was widened to FP32, `given` is the one that the file holds, and `interface` tells which inputs and
    outputs are narrow there. Of outputs that are `maps`, the tensors that they are made of are the outputs here.
    """

    path: Path | None
    ir: onnx_ir.Model
    digest: str  # SHA-256 of the file; empty where it is made when it is first asked for
    stored_nodes: int  # as the file counts them, before functions are inlined and constants lifted
    renamed_nodes: int
    files: tuple[Path, ...]  # external data
    data_hash: DataHash  # of these
    watched: tuple[str, ...] = ()  # tensors inside the model that are judged besides its outputs
    given: Model | None = None
    interface: Mapping[str, Format] = field(default_factory=dict)
    maps: tuple[MapOutput, ...] = ()
    rooms: Mapping[str, int] = field(default_factory=dict)  # rows that an input, a cache, has to hold at least
    stamps: FileStamps = field(default_factory=FileStamps)
    stored_opset: int = 0  # as the file states it; a quantised model's is raised
    within: Graph | None = None  # the body of a branch or a loop that is looked at as if it were the main graph

    @property
    def graph(self) -> Graph:
        return self.ir.graph if self.within is None else self.within

    @cached_property
    def bodies(self) -> tuple[Model, ...]:
        """The same model, looked at within each of its subgraphs."""
        return tuple(replace(self, within=graph) for graph in graphs_in(self.ir.graph))

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Every node in execution order, the ones in subgraphs right behind the node that holds them."""
        return tuple(nodes_in(self.ir.graph))

    @cached_property
    def node_by_name(self) -> dict[str, Node]:
        return {node.name or "": node for node in self.nodes}

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """What a caller has to feed."""
        unread = unread_inputs(self.ir.graph)
        given = ((value, _input_spec(value)) for value in self.ir.graph.inputs)
        return tuple(replace(s, unread=unread.get(value), room=self.rooms.get(s.name, 0)) for value, s in given)

    @property
    def output_names(self) -> tuple[str, ...]:
        return tuple(value.name or "" for value in self.ir.graph.outputs)

    @property
    def judged_values(self) -> tuple[Value, ...]:
        """The outputs, and the tensors inside that are watched, as far as a repair left them there."""
        outputs = dict.fromkeys(self.ir.graph.outputs)
        if self.watched:
            names = set(self.watched) - {value.name for value in outputs}
            made = (value for node in self.ir.graph for value in node.outputs)
            outputs.update(dict.fromkeys(value for value in made if value.name in names and value.dtype))
        return tuple(outputs)

    @cached_property
    def sha256(self) -> str:
        """Of the file; of a model in memory, of its protobuf."""
        if self.path is None or self.digest:
            return self.digest
        found = file_sha256(self.path)
        self.stamps.check()
        return found

    @property
    def data_sha256(self) -> str:
        """Of the external data files, in the order of their first use; empty where there are none."""
        return self.data_hash.begun.result() if self.files else ""

    def has_data(self, sha256: str) -> bool:
        """Whether this is its hash, in either form."""
        return is_data(sha256, self.data_sha256, self.files)

    @property
    def data_stamp(self) -> list[tuple[int, int]]:
        """Size and time of each external data file: enough to tell whether it is still the same."""
        return [(file.stat().st_size, file.stat().st_mtime_ns) for file in self.files]

    @cached_property
    def weight_bytes(self) -> int:
        return sum(value.const_value.nbytes for value in self.initializers() if value.const_value is not None)

    @cached_property
    def emulated_bytes(self) -> int:
        """Of the weights while the model is emulated: FP16 and BF16 are held in FP32."""
        held = [value.const_value for value in self.initializers() if value.const_value is not None]
        return sum(each.nbytes if format_of_type(each.dtype.value) is None else 4 * each.size for each in held)

    @cached_property
    def unpacked_bytes(self) -> int:
        """The same with quantised weights, and those that products hold packed, in FP32."""
        tables = {node.inputs[0] for node in self.nodes if node.op_type == "DequantizeLinear"}
        narrow = sum(value.const_value.size for value in tables if value is not None and value.const_value is not None)
        products = [node.attributes for node in self.nodes if node.op_type == "MatMulNBits"]
        return self.emulated_bytes + 4 * (narrow + sum(at.get_int("N", 0) * at.get_int("K", 0) for at in products))

    @cached_property
    def value_names(self) -> frozenset[str]:
        """Every tensor name that is taken."""
        names = {value.name for value in self.initializers()} | {v.name for n in self.nodes for v in n.outputs}
        for graph in (self.ir.graph, *graphs_in(self.ir.graph)):
            names.update(value.name for value in graph.inputs)
        return frozenset(name or "" for name in names)

    @cached_property
    def opaque(self) -> frozenset[Node]:
        """The nodes whose operator has no schema that the onnx package knows."""
        return frozenset(node for node in self.nodes if not has_schema(node))

    @cached_property
    def stencils(self) -> dict[Node, onnx.NodeProto]:
        """What is written of a node under every assignment; filled by whoever writes first."""
        return {}

    def initializers(self) -> Iterator[Value]:
        """Every initializer, those of subgraphs included."""
        yield from self.ir.graph.initializers.values()
        for graph in graphs_in(self.ir.graph):
            yield from graph.initializers.values()

    def opset(self, domain: str = "") -> int:
        return self.ir.opset_imports.get(domain, 1)


def load(source: str | Path | onnx.ModelProto) -> Model:
    """Read a model from a file (or take one in memory); anything unfit raises one clear InputError."""
    return _told(source, to_run=False)


def load_to_run(source: str | Path | onnx.ModelProto) -> Model:
    """The same of a model with operators of ONNX Runtime's only."""
    return _told(source, to_run=True)


def _told(source: str | Path | onnx.ModelProto, *, to_run: bool) -> Model:
    if not isinstance(source, (str, os.PathLike, onnx.ModelProto)):
        what = "a function" if callable(source) else f"{type(source).__name__!r}"
        raise InputError(f"a model is a file, a ModelProto or a model that halfwise loaded, not {what}")
    label = "the model" if isinstance(source, onnx.ModelProto) else str(source)
    try:
        return _load(source, label, to_run)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{label} is not a valid ONNX model: {_first_line(error)}") from error


def _load(source: str | Path | onnx.ModelProto, label: str, to_run: bool) -> Model:
    files: tuple[Path, ...] = ()
    stamps = FileStamps()
    if isinstance(source, onnx.ModelProto):
        path, proto = None, source
        digest = hashlib.sha256(proto.SerializeToString(deterministic=True)).hexdigest()
    else:
        path = Path(source)
        before = FileStamps.of((path,) if path.exists() else ())
        proto, digest = read_proto(path)
    check_proto(proto, label)
    if to_run:
        check_operators(proto, label)
    if path is not None:
        check_external_data(proto, path)
        files = external_files(proto, path)
        stamps = FileStamps.of(files).with_more(before if holds_own_weights(proto, path) else FileStamps())
    stored_nodes = len(proto.graph.node)
    with _named(label):
        check_function_scopes(proto)
        if path is None and (needs_fixups(proto) or has_maps(proto)):
            proto = _copy(proto)
        if needs_fixups(proto):
            fix_up(proto)
        maps = cut_maps(proto) if has_maps(proto) else ()
        folder = data_folder(proto, path) if path is not None else None
        model = onnx_ir.from_proto(proto)
        assert isinstance(model, onnx_ir.Model)
        if folder is not None:
            for graph in (model.graph, *(function.graph for function in model.functions.values())):
                onnx_ir.external_data.set_base_dir(graph, folder)
            read_small(model)
        renamed = normalise(model)
        given = model.opset_imports.get("", OLDEST_OPSET)
        old = given < OLDEST_OPSET and not raise_opset(model, OLDEST_OPSET)
    if old:
        raise InputError(
            f"{label} uses opset {given}; the oldest understood is {OLDEST_OPSET}: "
            "raise it with onnx.version_converter.convert_version"
        )
    allow_narrow_scales(model)
    found = Model(
        path,
        model,
        digest,
        stored_nodes,
        renamed,
        files,
        DataHash(files),
        maps=maps,
        rooms=rooms_of(model.graph),
        stamps=stamps,
        stored_opset=given,
    )
    map_once(found.initializers())
    return found


@contextmanager
def _named(label: str) -> Iterator[None]:
    """What is refused is told with the model's name."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{label}: {error}") from None


def _copy(proto: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    return copy


def check_outputs(model: Model) -> None:
    """Refuse a model whose answer cannot be compared: a map, or a sparse tensor."""
    for value in model.graph.outputs:
        if not isinstance(value.type, (onnx_ir.TensorType, onnx_ir.SequenceType, onnx_ir.OptionalType)):
            raise InputError(f"the model's output {value.name!r} is no tensor, sequence or optional; leave it out")


def _input_spec(value: Value) -> InputSpec:
    kind, name = value.type, value.name or ""
    if optional := isinstance(kind, onnx_ir.OptionalType):
        kind = kind.elem_type
    if sequence := isinstance(kind, onnx_ir.SequenceType):
        kind = kind.elem_type
    if not isinstance(kind, onnx_ir.TensorType):
        raise InputError(f"the model's input {name!r} is no tensor, sequence or optional; nothing else can be fed")
    try:
        dtype = np.dtype(kind.dtype.numpy())
    except TypeError:
        raise InputError(f"the model's input {name!r} holds elements of no known type; state its type") from None
    most = last_row(value) if dtype.kind in "iu" else None
    return InputSpec(name, dtype, _shape(value), sequence, optional, 1 if most is None else most)


def _shape(value: Value) -> tuple[int | str | None, ...] | None:
    if value.shape is None:
        return None
    return tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape)


def _first_line(error: BaseException) -> str:
    """The first line of what lies at the root; wrappers only repeat where it went by."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
