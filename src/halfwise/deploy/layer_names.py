"""From ONNX node names to the names of the TensorRT layers that the parser made of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from halfwise.core.errors import InputError

__all__ = [
    "METADATA_NODE",
    "METADATA_SEPARATORS",
    "LayerMap",
    "nodes_in_metadata",
    "read_registrations",
    "shadowed_names",
]

_REGISTERED = re.compile(r"Registering layer: (?P<layer>.+?)(?: for ONNX node: (?P<node>.+)| required by ONNX-TRT)\s*$")
# Fused layers join their parts by U+001E (native layers), U+001F (compiled regions), or by nothing. Behind " | " stands
# the local function or branch that the node is in. The build script carries these two patterns with it.
METADATA_SEPARATORS = r"[\x1e\x1f]|(?<=\])(?=\[ONNX Layer: )"
METADATA_NODE = r"\[ONNX Layer: (?P<node>.*?)(?: \| (?:Local Function: .*|[^|]*\([^()|]*\)))*\]\s*"
_ONNX_LAYER = re.compile(METADATA_NODE, re.DOTALL)
_COUNTED = re.compile(r"(?P<base>.+)_\d+")


def read_registrations(lines: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    """The parser's (layer, node) pairs in a verbose log; the node is None for a helper layer of the parser's own."""
    for line in lines:
        found = _REGISTERED.search(line)
        if found:
            yield found["layer"], found["node"]


def nodes_in_metadata(text: str) -> tuple[str, ...]:
    """The ONNX node names in a layer's metadata, `[ONNX Layer: name | Local Function: f]` joined by separators.

    The separators are split first, so that a name may hold brackets; a part that was cut off (metadata ends
    after 4000 characters) is left out, because half a name is another name.
    """
    names: list[str] = []
    for part in re.split(METADATA_SEPARATORS, text):
        found = _ONNX_LAYER.fullmatch(part)
        if found and found["node"] not in names:
            names.append(found["node"])
    return tuple(names)


@dataclass(frozen=True)
class LayerMap:
    """Which layers the parser made of which ONNX node; None as the node marks a helper layer."""

    nodes: Mapping[str, str | None]  # layer -> node, in the order of registration

    @classmethod
    def from_registrations(cls, pairs: Iterable[tuple[str, str | None]]) -> LayerMap:
        """From (layer, node) pairs; raises InputError where two parses of different models are mixed."""
        nodes: dict[str, str | None] = {}
        for layer, node in pairs:
            if nodes.setdefault(layer, node) != node:
                raise InputError(
                    f"layer '{layer}' is registered for node '{nodes[layer]}' and for node '{node}': "
                    "the log holds the parses of two models, use the log of one build"
                )
        return cls(nodes)

    @classmethod
    def from_log(cls, lines: Iterable[str]) -> LayerMap:
        return cls.from_registrations(read_registrations(lines))

    @cached_property
    def _layers(self) -> dict[str, tuple[str, ...]]:
        layers: dict[str, tuple[str, ...]] = {}
        for layer, node in self.nodes.items():
            if node is not None:
                layers[node] = (*layers.get(node, ()), layer)
        return layers

    @property
    def all_layers(self) -> frozenset[str]:
        return frozenset(self.nodes)

    def layers_of(self, node: str) -> tuple[str, ...]:
        """The exact names of the node's layers; empty where the parser made none (folded, or another model)."""
        return self._layers.get(node, ())


def shadowed_names(nodes: Iterable[str], model: Iterable[str] = ()) -> tuple[tuple[str, str], ...]:
    """Pairs (node, other) where `node` looks like a further layer of `other`: `X_1` beside `X`.

    `model`: all nodes of the model, where there are more than `nodes`; `other` may be any of them.

    The parser names the second layer of node X `X_<counter>`, so the layer called like `node` may be part of
    `other`, and the layers of `node` be called something else.
    """
    names = list(dict.fromkeys(nodes))
    known = {*names, *model}
    found = []
    for name in names:
        counted = _COUNTED.fullmatch(name)
        if counted and counted["base"] in known:
            found.append((name, counted["base"]))
    return tuple(found)
