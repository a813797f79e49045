"""Brings a model into the one form that every other room works on: inlined, named, sorted, wired, typed."""

from __future__ import annotations

import onnx
import onnx.defs
import onnx_ir as ir
from onnx_ir.passes import common as passes

from halfwise.core.errors import InputError
from halfwise.core.wording import listed
from halfwise.model.bodies import graphs_in, nodes_in
from halfwise.model.cache_sizes import state_cache_sizes
from halfwise.model.cycles import in_cycles
from halfwise.model.inference import infer_types
from halfwise.model.inlining import inline_functions
from halfwise.model.loop_conditions import state_conditions
from halfwise.model.names import leave_names_to_runtime, name_nodes, separate_names
from halfwise.model.opset import raise_function, raise_opset
from halfwise.model.sequences import split_sequences
from halfwise.model.signatures import check_references, check_signatures

__all__ = ["normalise"]

_ANY_OPSET = 17  # for a model that uses no standard operator itself: casts need some


def normalise(model: ir.Model) -> int:
    """Do so in place; returns how many nodes were named or renamed."""
    _one_default_domain(model)
    check_references(model)
    if model.functions:
        _align_function_opsets(model)
        inline_functions(model)
    check_signatures(model)
    renamed = name_nodes(nodes_in(model.graph))
    passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    passes.RemoveInitializersFromInputsPass()(model)
    _read_weights_themselves(model)
    state_conditions(model.graph)
    try:
        model.graph.sort()
    except ValueError:
        told = listed(node.name or node.op_type for node in in_cycles(model.graph))
        raise InputError(f"the graph has a cycle{f' of {told}' if told else ''}; export the model again") from None
    _check_wiring(model)
    separate_names(model.graph)
    leave_names_to_runtime(model.graph)
    _declare_initializers(model)
    infer_types(model)
    state_cache_sizes(model.graph)
    split_sequences(model)
    _check_outputs(model.graph)
    return renamed


def _one_default_domain(model: ir.Model) -> None:
    """The default domain has a long spelling, too."""
    imports = [model.opset_imports, *(function.opset_imports for function in model.functions.values())]
    for versions in imports:
        if "ai.onnx" in versions:
            versions.setdefault("", versions.pop("ai.onnx"))
    model.opset_imports.setdefault("", _ANY_OPSET)
    nodes = [*nodes_in(model.graph), *(n for function in model.functions.values() for n in nodes_in(function))]
    for node in nodes:
        if node.domain == "ai.onnx":
            node.domain = ""


def _read_weights_themselves(model: ir.Model) -> None:
    """Exporters write equal weights once, and a copy by an Identity for each other place: what reads a copy reads a
    weight."""
    for node in list(nodes_in(model.graph)):
        if node.op_type != "Identity" or node.domain or node.graph is None or len(node.inputs) != 1:
            continue
        given, copy = node.inputs[0], node.outputs[0]
        if given is not None and given.is_initializer() and not copy.is_graph_output():
            ir.convenience.replace_all_uses_with(copy, given)
            node.graph.remove(node, safe=True)


def _align_function_opsets(model: ir.Model) -> None:
    """A function may use another opset than the model: the older of them is said in the newer one's."""
    newer = [version for f in model.functions.values() if (version := f.opset_imports.get("", 1)) > _opset_of(model, f)]
    if newer:
        raise_opset(model, max(newer))
    for function in model.functions.values():
        for domain, version in list(function.opset_imports.items()):
            outer = model.opset_imports.get(domain, version)
            if outer == version or (not domain and raise_function(function, outer)):
                continue
            for node in nodes_in(function):
                if node.domain == domain and not _same_operator(node, version, outer):
                    raise InputError(
                        f"the function {function.domain}:{function.name} uses opset {version} and the model {outer}, "
                        f"and {node.op_type} differs between them; export with one opset"
                    )
            function.opset_imports[domain] = outer


def _opset_of(model: ir.Model, function: ir.Function) -> int:
    """The model's, where it matters to the function: with operators that differ."""
    outer, version = model.opset_imports.get("", 1), function.opset_imports.get("", 1)
    same = all(node.domain or _same_operator(node, version, outer) for node in nodes_in(function))
    return version if same else outer


def _same_operator(node: ir.Node, one: int, other: int) -> bool:
    try:
        schemas = [onnx.defs.get_schema(node.op_type, version, node.domain) for version in (one, other)]
    except onnx.defs.SchemaError:
        return not onnx.defs.has(node.op_type, node.domain)
    return schemas[0].since_version == schemas[1].since_version


def _check_wiring(model: ir.Model) -> None:
    graphs = (model.graph, *graphs_in(model.graph))
    known: set[ir.Value] = set()
    for graph in graphs:
        _check_scope(graph)
        known.update(graph.inputs, graph.initializers.values())
    for node in nodes_in(model.graph):
        known.update(node.outputs)
    for node in nodes_in(model.graph):
        for value in node.inputs:
            if value is not None and value not in known:
                raise InputError(f"node {node.name!r} reads {value.name!r}, which nothing produces")
    for graph in graphs:
        for value in graph.outputs:
            if value not in known:
                raise InputError(f"the graph output {value.name!r} is produced by nothing")


def _check_outputs(graph: ir.Graph) -> None:
    for value in graph.outputs:
        if value.type is None:
            raise InputError(f"the graph output {value.name!r} has no type and none can be inferred; export it again")


def _declare_initializers(model: ir.Model) -> None:
    """As what they hold, whatever the file says of them elsewhere."""
    for graph in (model.graph, *graphs_in(model.graph)):
        for value in graph.initializers.values():
            if (held := value.const_value) is not None and (value.dtype, value.shape) != (held.dtype, held.shape):
                value.type, value.shape = ir.TensorType(held.dtype), ir.Shape(held.shape.numpy())


def _check_scope(graph: ir.Graph) -> None:
    """A node cannot write what is given already."""
    given = {value.name for value in (*graph.inputs, *graph.initializers.values())}
    for node in graph:
        for value in node.outputs:
            if value.name and value.name in given:
                raise InputError(f"the tensor {value.name!r} is produced twice")
