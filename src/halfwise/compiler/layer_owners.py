"""Whose a layer is: the ONNX nodes that it came from, by its metadata, the parser's registration, or its name."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from halfwise.compiler.layers_fields import Layer

__all__ = ["LayerOwners"]

_COUNTED = re.compile(r"(?P<base>.+)_\d+")


class LayerOwners:
    """Answers for the layers of one engine.

    A node's further layers bear its name and a counter, which may be another node's name: of the nodes `a` and `a_1`,
    `a_1` may be the second layer of `a`, and `a_1_2` the first of `a_1`. Where no registration tells, such a layer
    counts for both nodes, so that neither is taken for proven by it alone.
    """

    def __init__(self, layers: Iterable[Layer], registered: Mapping[str, str], nodes: Collection[str] | None) -> None:
        self._registered = dict(registered)
        self._nodes = frozenset(nodes) if nodes is not None else None
        spelled = {name for layer in layers if layer.metadata is None for name in layer.onnx_nodes}
        # Without a model every name is taken for a node's, except where the names themselves show a collision.
        known = self._nodes if self._nodes is not None else spelled
        unregistered = spelled - self._registered.keys()
        further: dict[str, str] = {}
        for name in unregistered:
            base = _base(name)
            if base in known and (self._nodes is None or name not in known):
                further[name] = base
        self._collided = {
            base for base in further.values() if base in unregistered and _base(base) in known and _base(base) != base
        }
        self._further = {
            name: base for name, base in further.items() if self._nodes is not None or base in self._collided
        }

    def of_name(self, layer: str) -> str:
        """The node of one of TensorRT's layers, by the log; a layer may bear the name of another node."""
        return self._registered.get(layer, layer)

    def of_layer(self, layer: Layer) -> tuple[str, ...]:
        """Metadata holds ONNX names; a name that was taken apart gives TensorRT's."""
        if layer.metadata is not None:
            return layer.onnx_nodes
        return tuple(dict.fromkeys(node for name in layer.onnx_nodes for node in self._owners(name)))

    def _owners(self, layer: str) -> tuple[str, ...]:
        if layer in self._registered:
            return (self._registered[layer],)
        if layer in self._collided:
            return (layer, _base(layer))
        if layer in self._further:
            base = self._further[layer]
            return (base,) if self._nodes is not None else (layer, base)
        return (layer,)


def _base(name: str) -> str:
    """The name without its counter; itself where it has none."""
    found = _COUNTED.fullmatch(name)
    return found["base"] if found else name
