"""Cuts an emulation into segments, each of which begins where a large weight is read: it runs by itself.

What is made of large weights alone is one for all inputs, and a product with a large weight stands alone, so that it
takes the rows of several inputs at once. Segments of equal content, as the layers of a network have them, are spelled
alike and share one session.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import onnx

__all__ = ["Segment", "reads_of", "segments"]

LARGE_BYTES = 1 << 20  # of a weight that begins a segment


@dataclass(frozen=True, eq=False)
class Segment:
    """Consecutive nodes. `reads` come from outside, `gives` are read later, `done` nobody reads after it."""

    nodes: tuple[onnx.NodeProto, ...]
    reads: tuple[str, ...]
    gives: tuple[str, ...]
    done: tuple[str, ...]
    of_weights: bool = False  # reads nothing else

    @property
    def places(self) -> str:
        """For a message."""
        named = [node.name or node.output[0] for node in self.nodes]
        return repr(named[0]) if len(named) == 1 else f"{named[0]!r} to {named[-1]!r}"

    @cached_property
    def has_bodies(self) -> bool:
        return any(_bodies(node) for node in self.nodes)

    @cached_property
    def product(self) -> tuple[str, str, str] | None:
        """The rows, the weight and the result, where it is one product."""
        (node, *others) = self.nodes
        is_one = not others and node.op_type == "MatMul" and not node.domain and node.input[0] != node.input[1]
        return (node.input[0], node.input[1], node.output[0]) if is_one else None

    @cached_property
    def foreign(self) -> frozenset[str]:
        """What operators of other domains read: they may ask for constants."""
        return frozenset(name for node in self.nodes if node.domain not in ("", "ai.onnx") for name in node.input)


def segments(graph: onnx.GraphProto, large: Collection[str], uncut: Collection[str]) -> list[Segment]:
    """In the order of the nodes, but for those that nobody reads.

    `large` are the weights that begin a segment; no tensor of `uncut` leaves its own.
    """
    reads = [reads_of(node) for node in graph.node]
    fixed = _of_weights(graph, reads, large)
    starts = _joined(_starts(graph.node, reads, fixed, large), graph.node, reads, uncut)
    ends = [*starts[1:], len(reads)]
    last: dict[str, int] = {}
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        last.update((name, number) for each in reads[start:end] for name in each)
    last.update((value.name, len(starts)) for value in graph.output)
    found = []
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        made = {name: None for node in graph.node[start:end] for name in node.output if name}
        taken = {name: None for each in reads[start:end] for name in each if name not in made}
        gives = tuple(name for name in made if last.get(name, -1) > number)
        done = tuple(name for name in taken if last[name] == number)
        if gives:
            found.append(Segment(tuple(graph.node[start:end]), tuple(taken), gives, done, all(fixed[start:end])))
    return found


def _of_weights(graph: onnx.GraphProto, reads: Sequence[Mapping[str, None]], large: Collection[str]) -> list[bool]:
    """Of each node, whether it reads constants alone, and a large weight or what is made of one among them."""
    constant, heavy = {tensor.name for tensor in graph.initializer}, set(large)
    found = []
    for node, each in zip(graph.node, reads, strict=True):
        alone = bool(each) and each.keys() <= constant and not node.op_type.startswith("Random")
        found.append(alone and not each.keys().isdisjoint(heavy))
        constant.update(node.output if alone else ())
        heavy.update(node.output if found[-1] else ())
    return found


def _starts(
    nodes: Sequence[onnx.NodeProto], reads: Sequence[Mapping[str, None]], fixed: Sequence[bool], large: Collection[str]
) -> list[int]:
    """Where a segment begins."""
    heavy = {*large, *(name for node, each in zip(nodes, fixed, strict=True) if each for name in node.output)}
    products = [
        not each and node.op_type == "MatMul" and not node.domain and node.input[1] in heavy
        for node, each in zip(nodes, fixed, strict=True)
    ]
    inside = (
        i
        for i in range(1, len(reads))
        if not reads[i].keys().isdisjoint(heavy) or fixed[i] != fixed[i - 1] or products[i - 1]
    )
    return [0, *inside]


def reads_of(node: onnx.NodeProto) -> dict[str, None]:
    """What a node takes, its bodies included."""
    found = dict.fromkeys(name for name in node.input if name)
    for body in _bodies(node):
        found.update(dict.fromkeys(_captured(body)))
    return found


def _joined(
    starts: Sequence[int], nodes: Sequence[onnx.NodeProto], reads: Sequence[Mapping[str, None]], uncut: Collection[str]
) -> list[int]:
    """Without the cuts that lie between the maker of such a tensor and its readers."""
    made = {name: i for i, node in enumerate(nodes) for name in node.output if name in uncut}
    spans = [(made[name], i) for i, each in enumerate(reads) for name in each if name in made]
    return [start for start in starts if not any(first < start <= end for first, end in spans)]


def _captured(graph: onnx.GraphProto) -> Iterator[str]:
    """The names that a body takes from around it."""
    own = {value.name for value in (*graph.input, *graph.initializer)}
    for node in graph.node:
        yield from (name for name in reads_of(node) if name not in own)
        own.update(node.output)
    yield from (value.name for value in graph.output if value.name not in own)


def _bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    found = []
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            found.append(attribute.g)
        found += attribute.graphs
    return found
