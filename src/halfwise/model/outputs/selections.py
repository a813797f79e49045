"""Where rows are selected or classes chosen on the way to an output: from which tensors, and by what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from halfwise.model.families import COMPARISONS, PRODUCTS, RECURRENT, REDUCTIONS
from halfwise.model.moving import Move, behind, movers

__all__ = ["Choice", "Selection", "choice_of", "selections_behind", "selects"]

# Which axis of its first output has one entry a row; of TopK and Compress an attribute says it.
_SELECTORS = {"TopK": None, "Compress": None, "NonMaxSuppression": 0, "NonZero": 1, "Unique": 0}
_ORDERS = COMPARISONS - {"Equal"}
_CHOOSES = frozenset("ArgMax ArgMin".split())
_SCATTERS = frozenset({"ScatterElements", "ScatterND"})
_SIZES = frozenset({"ConstantOfShape", "Shape", "Size"})  # which no value of a float changes
_MIXES = PRODUCTS | RECURRENT | {"Attention", "Einsum", "MultiHeadAttention", "Softmax"}
_MOVED = movers(Move.SHAPE | Move.ORDER | Move.REPEAT)
_IN_ORDER = movers(Move.SHAPE | Move.CAST)


@dataclass(frozen=True)
class Selection:
    """A node that selects rows. `counted`: its output with a row an entry of `axis`; `entering`: the float tensors
    from which it selects, before any selection."""

    node: str
    counted: str
    axis: int
    entering: tuple[str, ...]
    sorted: bool = False  # the counted output holds the scores, the best first
    moved: bool = False  # behind it the rows are only moved or scaled, so that padding stays padding


@dataclass(frozen=True)
class Choice:
    """An output that says where a tensor is largest along `axis`, or larger than another or a threshold."""

    decided_by: tuple[str, ...]
    axis: int | None = None
    threshold: float = 0.0


def selections_behind(value: ir.Value) -> tuple[Selection, ...]:
    """The last selections on every way to an output; by whole numbers or an input alone, rounding selects nothing."""
    moved = _last_selectors([value], light=True)
    found = (_selection(node, moved=node in moved) for node in _last_selectors([value]))
    return tuple(selection for selection in found if selection.entering)


def selects(node: ir.Node) -> bool:
    """Whether its operator selects rows."""
    return not node.domain and node.op_type in _SELECTORS


def _last_selectors(values: Sequence[ir.Value], *, light: bool = False) -> list[ir.Node]:
    """`light`: those whose rows are only moved or scaled since, by their values and not by their number."""
    stops = _MIXES | _SIZES if light else frozenset[str]()
    pending: list[tuple[ir.Value, frozenset[int]]] = [(value, frozenset()) for value in values]
    seen, found = set[tuple[ir.Node, frozenset[int]]](), dict[ir.Node, None]()
    while pending:
        value, gone = pending.pop()  # axes that were summed over since
        node = value.producer()
        if node is None or (node, gone) in seen:
            continue
        seen.add((node, gone))
        if selects(node):
            found.update({} if _chosen_axis(node) in gone else {node: None})
        elif node.op_type not in stops:
            gone |= _reduced(node)
            pending += [(each, gone) for each in _with_rows(node) if each is not None]
    return list(found)


def _chosen_axis(node: ir.Node) -> int | None:
    """Of TopK: where what is gathered by it has an entry for each of those that it chose."""
    made = node.outputs[0].shape if node.op_type == "TopK" else None
    return None if made is None else node.attributes.get_int("axis", -1) % max(made.rank(), 1)


def _reduced(node: ir.Node) -> frozenset[int]:
    """The axes of its input that a reduction goes over, where they are stated and none is counted from an open end."""
    if node.domain or node.op_type not in REDUCTIONS or node.inputs[0] is None:
        return frozenset()
    stored = node.inputs[1].const_value if len(node.inputs) > 1 and node.inputs[1] is not None else None
    axes = node.attributes.get_ints("axes", ()) if stored is None else stored.numpy().reshape(-1).tolist()
    shape = node.inputs[0].shape
    if shape is not None:
        axes = [axis % max(shape.rank(), 1) for axis in axes]
    return frozenset(int(axis) for axis in axes if axis >= 0)


def _with_rows(node: ir.Node) -> Sequence[ir.Value | None]:
    """The inputs whose rows a node's results have. What a selection took is put back in its place by a scatter: the
    rows are those of the tensor written to. Written one behind the other, they are rows of the result."""
    if node.domain or node.op_type not in _SCATTERS or not _places_chosen(node.inputs[1]):
        return node.inputs
    return node.inputs[:1]


def _places_chosen(indices: ir.Value | None) -> bool:
    """Whether they are numbers that a selection gave, and not only as many."""
    return indices is not None and bool(_last_selectors([indices], light=True))


def _selection(node: ir.Node, *, moved: bool) -> Selection:
    axis = _SELECTORS[node.op_type]
    if axis is None:
        attribute = node.attributes.get("axis")
        axis = attribute.as_int() if attribute is not None else -1 if node.op_type == "TopK" else 0
    counted = next(value for value in node.outputs if value.name)
    attribute = node.attributes.get("sorted")
    ordered = node.op_type == "TopK" and (attribute is None or bool(attribute.as_int()))
    return Selection(node.name or "", counted.name or "", axis, tuple(_entering(node)), ordered, moved)


def _sources(node: ir.Node) -> list[ir.Value]:
    """The inputs by whose values a node selects."""
    count = 2 if node.op_type in ("NonMaxSuppression", "Compress") else 1
    return [value for value in node.inputs[:count] if value is not None]


def _entering(node: ir.Node) -> list[str]:
    """The float tensors behind the sources, past masks; those before the first selection, where there are several."""
    seen, found, pending = {node}, dict[str, None](), [node]
    while pending:
        for source in _sources(pending.pop()):
            earlier = _last_selectors([source])
            if not earlier:
                found.update(dict.fromkeys(_floats(source)))
            pending += [each for each in earlier if each not in seen]
            seen.update(earlier)
    return list(found)


def _floats(value: ir.Value) -> Iterator[str]:
    """The float tensors behind a value, past masks: those that are compared, and those that a mask leaves or not."""
    seen, pending = {value}, [value]
    while pending:
        value = pending.pop()
        node = value.producer()
        if node is None or node.op_type in _SIZES:
            continue
        inputs = list(node.inputs)
        if value.dtype is ir.DataType.FLOAT and not _is_mask(value):
            masked = _masked(value)
            if masked is None:
                if _constant(value) is None:
                    yield value.name or ""
                continue
            inputs = masked
        fresh = [each for each in inputs if each is not None and each not in seen]
        seen.update(fresh)
        pending += fresh


def _masked(value: ir.Value) -> list[ir.Value | None] | None:
    """What goes into a tensor of which a mask leaves a part: by Where, or times a cast comparison; None of others."""
    source = behind(value, _MOVED)
    node = source.producer() if source is not None else None
    if node is None or node.domain:
        return None
    if node.op_type == "Where":
        return list(node.inputs)
    if node.op_type == "Mul" and any(_is_mask(each) for each in node.inputs):
        return [behind(each, _MOVED) for each in node.inputs]
    return None


def _is_mask(value: ir.Value | None) -> bool:
    source = behind(value, _MOVED)
    node = source.producer() if source is not None else None
    return node is not None and node.op_type == "Cast" and node.inputs[0].dtype is ir.DataType.BOOL  # type: ignore[union-attr]


def choice_of(value: ir.Value) -> Choice | None:
    """The comparison that an output is the bare outcome of, in the order of its elements."""
    source = behind(value, _IN_ORDER)
    node = source.producer() if source is not None else None
    if node is None or node.domain or any(each is None for each in node.inputs[:1]):
        return None
    if node.op_type in _CHOOSES:
        axis = node.attributes.get("axis")
        source = node.inputs[0]
        if source is None or source.dtype is not ir.DataType.FLOAT or node.op_type == "ArgMin":
            return None
        return Choice((source.name or "",), axis.as_int() if axis is not None else 0)
    if node.op_type not in _ORDERS or len(node.inputs) < 2:
        return None
    left, right = node.inputs[0], node.inputs[1]
    if left is None or right is None or left.dtype is not ir.DataType.FLOAT:
        return None
    for moving, fixed in ((left, right), (right, left)):
        threshold = _constant(fixed)
        if threshold is not None and threshold.size == 1 and _constant(moving) is None:
            return Choice((moving.name or "",), None, float(threshold.reshape(-1)[0]))
    return Choice((left.name or "", right.name or "")) if _constant(left) is None and _constant(right) is None else None


def _constant(value: ir.Value) -> np.ndarray | None:
    if value.const_value is None:
        return None
    return np.asarray(value.const_value.numpy())
