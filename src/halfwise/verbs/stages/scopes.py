"""The module that each node comes from, as exporters leave it: in its metadata or name, or in its weights' names."""

from __future__ import annotations

import ast
import re

import onnx_ir as ir

from halfwise.model.model import Model

__all__ = ["Scope", "spoken", "stage_labels"]

Scope = tuple[str, ...]  # the modules called on the way, outermost first; empty for the model's own code

_DYNAMO = "pkg.torch.onnx.name_scopes"
_NO_MODULE = "_empty_nn_module_stack_from_metadata_hook"  # what PyTorch writes of a node that it added by itself
_MADE_UP = "node_of_"  # how a node without a name is called: after its first output
_PARAMETER = re.compile(r"[A-Za-z_]\w*(\.\w+)+")  # such as head.cls_preds.0.weight


def stage_labels(model: Model, depth: int) -> dict[ir.Node, Scope]:
    """Of every node of the main graph, the scope that it belongs to at this depth.

    What all nodes have in common counts for nothing: depth 1 is the first level at which the model branches. Where no
    node tells its module, its weights do, and nodes without such weights follow those that they read from.
    """
    scopes = {node: _scope(node) for node in model.graph}
    if not any(scopes.values()):
        scopes = _from_weights(model)
    named = [scope for scope in scopes.values() if scope]
    common = len(_common(named))
    return {node: scope[common : common + depth] for node, scope in scopes.items()}


def spoken(scope: Scope) -> str:
    """A scope in PyTorch's spelling, such as `layers.0.self_attn`."""
    return ".".join(scope) or "(root)"


def _scope(node: ir.Node) -> Scope:
    listed = node.metadata_props.get(_DYNAMO)
    if listed is not None:
        return _from_dynamo(listed)
    name = node.name or ""
    name = name.removeprefix(_MADE_UP)
    return tuple(part for part in name.split("/")[:-1] if part)


def _from_dynamo(listed: str) -> Scope:
    """PyTorch's exporter lists full names, the root's empty one first and the operator's last."""
    try:
        names = [str(name) for name in ast.literal_eval(listed)]
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return ()
    parts: list[str] = []
    before = ""
    for name in names[:-1]:
        if name and name != _NO_MODULE:
            parts.append(name.removeprefix(f"{before}.") if before else name)
            before = name
    return tuple(parts)


def _from_weights(model: Model) -> dict[ir.Node, Scope]:
    found: dict[ir.Node, Scope] = {}
    for node in model.graph:
        weights = [v.name or "" for v in node.inputs if v is not None and v.is_initializer()]
        own = next((name for name in weights if _PARAMETER.fullmatch(name)), None)
        if own is not None:
            found[node] = tuple(own.split(".")[:-1])
            continue
        producers = [producer for v in node.inputs if v is not None and (producer := v.producer()) is not None]
        found[node] = next((found[producer] for producer in reversed(producers) if found.get(producer)), ())
    return found


def _common(scopes: list[Scope]) -> Scope:
    """What every scope starts with, as long as something of one is left."""
    if not scopes:
        return ()
    first, last = min(scopes), max(scopes)
    shared = 0
    while shared < min(len(first), len(last)) and first[shared] == last[shared]:
        shared += 1
    return first[: min(shared, max(map(len, scopes)) - 1)]
