"""Cuts an emulation into segments, each of which begins where a large weight is read: it runs by itself.

What is made of large weights alone is one for all inputs, and a product with a large weight stands alone, so that it
takes the rows of several inputs at once; a weight that is turned before goes into it as it lies. Where rows of a weight
are picked, only these are read. Segments of equal content, as the layers of a network have them, are spelled alike and
share one session.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import onnx
from onnx import helper

from halfwise.emulation.late_constants import constants_late
from halfwise.model.families import PRODUCTS
from halfwise.model.held_graphs import held_graphs

__all__ = ["Picked", "Product", "Segment", "multiplies", "reads_of", "segments", "takes_rows", "turns_table"]

LARGE_BYTES = 1 << 20  # of a weight that begins a segment
_PLAIN = ("alpha", "beta")  # where they are 1


@dataclass(frozen=True, eq=False)
class Product:
    """Rows by a weight of two dimensions, `turned` where it lies the other way, and the segment of rows alone. A bias
    is a constant, if there is one."""

    rows: str
    table: str
    result: str
    turned: bool
    segment: Segment
    bias: str = ""


@dataclass(frozen=True, eq=False)
class Picked:
    """Entries of a weight along its first axis."""

    table: str
    indices: str
    result: str


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
        return any(True for node in self.nodes for _ in held_graphs(node))

    @cached_property
    def product(self) -> Product | None:
        """What it is, where it is one product."""
        (*before, node) = self.nodes
        if not takes_rows(node) or node.input[0] == node.input[1]:
            return None
        rows, table, result, bias = node.input[0], node.input[1], node.output[0], (*node.input, "", "")[2]
        if not before:
            return Product(rows, table, result, turns_table(node), self, bias)
        if node.op_type != "MatMul":
            return None
        if len(before) > 1 or not _turns(before[0]) or before[0].output[0] != table or rows == table:
            return None
        table = before[0].input[0]
        gemm = helper.make_node("Gemm", [rows, table], [result], node.name, transB=1)
        return Product(rows, table, result, True, Segment((gemm,), (rows, table), (result,), ()))

    @cached_property
    def picked(self) -> Picked | None:
        """What it is, where it only picks."""
        (node, *others) = self.nodes
        return Picked(node.input[0], node.input[1], node.output[0]) if not others and _picks(node) else None

    @cached_property
    def foreign(self) -> frozenset[str]:
        """What operators of other domains read: they may ask for constants."""
        return frozenset(name for node in self.nodes if node.domain not in ("", "ai.onnx") for name in node.input)


def segments(graph: onnx.GraphProto, large: Collection[str], uncut: Collection[str]) -> list[Segment]:
    """In the order of the nodes, but for those that nobody reads.

    `large` are the weights that begin a segment; no tensor of `uncut` leaves its own.
    """
    nodes, turned = _beside_products(graph, large)
    reads = [reads_of(node) for node in nodes]
    for index in turned:  # each product has a Transpose of its own
        reads[index + 1].pop(nodes[index].output[0])
    fixed = _of_weights(graph, nodes, reads, large, turned)
    constants = [tensor.name for tensor in graph.initializer]
    starts = _joined(_starts(nodes, reads, fixed, large, turned, constants), nodes, reads, uncut)
    ends = [*starts[1:], len(reads)]
    last: dict[str, int] = {}
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        last.update((name, number) for each in reads[start:end] for name in each)
    last.update((value.name, len(starts)) for value in graph.output)
    found = []
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        made = {name: None for node in nodes[start:end] for name in node.output if name}
        taken = {name: None for each in reads[start:end] for name in each if name not in made}
        gives = tuple(name for name in made if last.get(name, -1) > number)
        done = tuple(name for name in taken if last[name] == number)
        if gives:
            found.append(Segment(tuple(nodes[start:end]), tuple(taken), gives, done, all(fixed[start:end])))
    return found


def takes_rows(node: onnx.NodeProto) -> bool:
    """Whether it is a product of rows and a table, and may add a bias."""
    if node.domain or node.op_type not in ("Gemm", "MatMul"):
        return False
    stated = {each.name: each.f if each.name in _PLAIN else each.i for each in node.attribute}
    return not stated.pop("transA", 0) and all(each == 1 for name, each in stated.items() if name in _PLAIN)


def turns_table(node: onnx.NodeProto) -> bool:
    """Whether the table of a product lies the other way."""
    return any(each.name == "transB" and each.i for each in node.attribute)


def multiplies(segment: Segment, large: Collection[str]) -> bool:
    """Whether a product or a convolution in it reads one of these, as it lies or turned."""
    heavy = set(large)
    for node in segment.nodes:
        if node.domain or heavy.isdisjoint(node.input):
            continue
        if node.op_type in PRODUCTS:
            return True
        if _turns(node):
            heavy.update(node.output)
    return False


def _beside_products(graph: onnx.GraphProto, large: Collection[str]) -> tuple[list[onnx.NodeProto], frozenset[int]]:
    """The nodes, the Transpose of a large weight, or of what is made of weights alone, before each product where only
    products read it; and where those are."""
    every = list(graph.node)
    alone = _of_weights(graph, every, [reads_of(node) for node in every], large, ())
    heavy = {*large, *(name for node, each in zip(every, alone, strict=True) if each for name in node.output)}
    readers: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
    for node in graph.node:
        for name in reads_of(node):
            readers.setdefault(name, []).append((node, list(node.input).index(name) if name in node.input else -1))
    kept = {value.name for value in graph.output}
    moved = {
        node.output[0]: node
        for node in graph.node
        if _turns(node) and node.input[0] in heavy and node.output[0] not in kept and node.output[0] in readers
        if all(slot == 1 and each.op_type == "MatMul" and not each.domain for each, slot in readers[node.output[0]])
    }
    nodes: list[onnx.NodeProto] = []
    turned = set()
    for node in _in_order(graph):
        if node.op_type == "MatMul" and not node.domain and node.input[1] in moved:
            turned.add(len(nodes))
            nodes.append(moved[node.input[1]])
        if node.output[0] not in moved:
            nodes.append(node)
    return nodes, frozenset(turned)


def _in_order(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """What is made of weights alone comes just before it is read, so that it is not held for long."""
    nodes, weights = list(graph.node), {tensor.name for tensor in graph.initializer}
    order = constants_late([reads_of(node) for node in nodes], [node.output for node in nodes], weights)
    return [nodes[number] for number in order]


def _turns(node: onnx.NodeProto) -> bool:
    """Whether it is the transpose of a table."""
    orders = [list(attribute.ints) for attribute in node.attribute if attribute.name == "perm"]
    return node.op_type == "Transpose" and not node.domain and orders == [[1, 0]]


def _picks(node: onnx.NodeProto) -> bool:
    axes = [attribute.i for attribute in node.attribute if attribute.name == "axis"]
    return node.op_type == "Gather" and not node.domain and not any(axes) and node.input[0] != node.input[1]


def _of_weights(
    graph: onnx.GraphProto,
    nodes: Sequence[onnx.NodeProto],
    reads: Sequence[Mapping[str, None]],
    large: Collection[str],
    turned: Collection[int],
) -> list[bool]:
    """Of each node, whether it reads constants alone, and a large weight or what is made of one among them."""
    constant, heavy = {tensor.name for tensor in graph.initializer}, set(large)
    found = []
    for index, (node, each) in enumerate(zip(nodes, reads, strict=True)):
        alone = index not in turned and bool(each) and each.keys() <= constant and not node.op_type.startswith("Random")
        found.append(alone and not each.keys().isdisjoint(heavy))
        constant.update(node.output if alone else ())
        heavy.update(node.output if found[-1] else ())
    return found


def _starts(
    nodes: Sequence[onnx.NodeProto],
    reads: Sequence[Mapping[str, None]],
    fixed: Sequence[bool],
    large: Collection[str],
    turned: Collection[int],
    constants: Collection[str],
) -> list[int]:
    """Where a segment begins."""
    heavy = {*large, *(name for node, each in zip(nodes, fixed, strict=True) if each for name in node.output)}
    held = {*constants, ""}
    by_rows = [takes_rows(node) and held.issuperset(node.input[2:]) for node in nodes]
    alone = [
        not each
        and (
            (_picks(node) and node.input[0] in large)
            or (by_rows[index] and (node.input[1] in heavy or index - 1 in turned))
        )
        for index, (node, each) in enumerate(zip(nodes, fixed, strict=True))
    ]
    inside = (
        i
        for i in range(1, len(reads))
        if not reads[i].keys().isdisjoint(heavy) or fixed[i] != fixed[i - 1] or alone[i - 1]
    )
    return [0, *inside]


def reads_of(node: onnx.NodeProto) -> dict[str, None]:
    """What a node takes, its bodies included."""
    found = dict.fromkeys(name for name in node.input if name)
    for body in held_graphs(node):
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
