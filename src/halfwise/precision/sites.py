"""Where precision can be decided: for each node of a model, the slots that may narrow, or why none may."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx_ir as ir

from halfwise.core.formats import Format, format_of_type
from halfwise.core.notes import Note, NoteKind
from halfwise.model.bodies import bodies_of
from halfwise.model.model import Model
from halfwise.model.moving import only_moves
from halfwise.model.operator_slots import SHAPE_READERS, shape_slots
from halfwise.model.ops import BODIES, CONTROL_FLOW, SlotRule, holds_scale, slot_rule, takes_any_format
from halfwise.model.positions import position_arithmetic
from halfwise.model.random_draws import draws
from halfwise.model.weights import stored_type
from halfwise.precision.choices import NO_CHOICES, Choices

__all__ = ["Site", "Sites", "native_format"]

_COARSE = 4  # times smaller than what a format holds with all its bits


def native_format(value: ir.Value) -> Format | None:
    """The format a tensor has in the model as given; None for what is no tensor of a known format."""
    if not isinstance(value.type, ir.TensorType):
        return None
    return format_of_type(value.type.dtype)


@dataclass(frozen=True, eq=False)
class Site:
    """One node, and which of its FP32 slots may narrow. `pinned` says why none may; None where the choice is free."""

    node: ir.Node
    name: str
    op: str
    index: int
    inputs: tuple[bool, ...]
    outputs: tuple[bool, ...]
    moves: bool
    nested: bool
    pinned: Note | None

    @property
    def free(self) -> bool:
        return self.pinned is None

    @property
    def compute(self) -> bool:
        """A node that does floating-point arithmetic or decides by it."""
        return not self.moves and self.has_fp32

    @property
    def has_fp32(self) -> bool:
        """Whether the node, as the model has it, works on the values of an FP32 tensor."""
        node = self.node
        read = (
            value
            for slot, value in enumerate(node.inputs)
            if not takes_any_format(node.op_type, node.domain, slot) and not holds_scale(node.op_type, slot, value)
        )
        return any(v is not None and native_format(v) is Format.FP32 for v in (*read, *node.outputs))


class _NativeFormats(dict[ir.Value, Format | None]):
    """The formats that tensors have in the model as given, each looked up once."""

    def __missing__(self, value: ir.Value) -> Format | None:
        found = self[value] = native_format(value)
        return found


class Sites:
    """All sites of a model in execution order, for one narrow format; what the user decided is decided."""

    def __init__(self, model: Model, fmt: Format = Format.FP16, choices: Choices = NO_CHOICES) -> None:
        self.model = model
        self.choices = choices
        self.fmt = fmt
        fixed = dict.fromkeys(position_arithmetic(model, 1.0 / fmt.unit_roundoff), Note.of(NoteKind.POSITION))
        fixed |= dict.fromkeys(_shape_arithmetic(model), Note.of(NoteKind.SHAPE_ARITHMETIC))
        self.all: tuple[Site, ...] = tuple(
            self._site(node, index, fixed.get(node)) for index, node in enumerate(model.nodes)
        )
        self.of: dict[ir.Node, Site] = {site.node: site for site in self.all}
        self.native = _NativeFormats()
        self._other: dict[Format, Sites] = {fmt: self}

    @cached_property
    def holder(self) -> dict[ir.Graph, ir.Node]:
        """Of each body, the node that holds it, where its border may be narrow."""
        return {
            graph: site.node
            for site in self.free
            if site.op in BODIES and not site.node.domain
            for graph in bodies_of(site.node)
        }

    @cached_property
    def entering(self) -> dict[ir.Value, ir.Node]:
        """The FP32 tensors that enter bodies, and the nodes that hold these."""
        return {
            value: node
            for graph, node in self.holder.items()
            for value in graph.inputs
            if native_format(value) is Format.FP32
        }

    @cached_property
    def free(self) -> tuple[Site, ...]:
        """The nodes whose precision is a choice."""
        return tuple(site for site in self.all if site.free)

    @cached_property
    def pinned(self) -> tuple[Site, ...]:
        """The nodes with FP32 tensors that cannot narrow, whatever anyone wants."""
        return tuple(site for site in self.all if site.pinned and site.has_fp32)

    @cached_property
    def random(self) -> str | None:
        """The first node whose result is random, by name."""
        return next((s.name for s in self.pinned if s.pinned and s.pinned.kind is NoteKind.RANDOM), None)

    @cached_property
    def forced(self) -> frozenset[ir.Node]:
        """The free nodes that the user wants narrow, whatever it costs."""
        return frozenset(site.node for site in self.free if site.name in self.choices.forced)

    @cached_property
    def compute_nodes(self) -> int:
        return sum(site.compute for site in self.all)

    def site(self, node: ir.Node, fmt: Format) -> Site:
        """The node as a site for any narrow format: what FP16 may hold, BF16 need not."""
        if fmt not in self._other:
            self._other[fmt] = Sites(self.model, fmt, self.choices)
        return self._other[fmt].of[node]

    def _site(self, node: ir.Node, index: int, fixed: Note | None) -> Site:
        version = node.version or self.model.opset(node.domain)
        rule = slot_rule(node.op_type, node.domain, version, self.fmt)
        why = rule.why or fixed or _why_not(node, self.fmt) or self._kept(node)
        inputs, outputs = _slots(node, rule) if why is None else ((), ())
        if why is None and not any((*inputs, *outputs)):
            why = Note.of(NoteKind.NO_FP32_TENSOR)
        if why is not None:
            inputs, outputs = (False,) * len(node.inputs), (False,) * len(node.outputs)
        return Site(
            node=node,
            name=node.name or "",
            op=node.op_type,
            index=index,
            inputs=inputs,
            outputs=outputs,
            moves=only_moves(node),
            nested=node.graph is not self.model.graph,
            pinned=why,
        )

    def _kept(self, node: ir.Node) -> Note | None:
        option = self.choices.kept.get(node.name or "")
        return Note.of(NoteKind.USER_KEEPS, option=option) if option else None


def _why_not(node: ir.Node, fmt: Format) -> Note | None:
    if draws(node):
        return Note.of(NoteKind.RANDOM)
    if _quantises_weight(node) and not all(_stored_in(value, fmt) for value in node.inputs[:2]):
        return Note.of(NoteKind.QUANTISES_WEIGHT)
    if _makes_fine_bias(node, fmt):
        return Note.of(NoteKind.FINE_BIAS, format=fmt.value.upper())
    for value in (*node.inputs, *node.outputs):
        if value is None or not value.name:
            continue
        if value.type is None:
            return Note.of(NoteKind.UNKNOWN_TYPE, value.name)
        if not isinstance(value.type, ir.TensorType) and node.op_type not in BODIES:  # what else they carry is theirs
            return Note.of(NoteKind.CONTAINER)
    return None


def _quantises_weight(node: ir.Node) -> bool:
    weight = node.inputs[0] if node.op_type == "QuantizeLinear" and not node.domain else None
    return weight is not None and weight.is_initializer()


def _stored_in(value: ir.Value | None, fmt: Format) -> bool:
    """Whether the file has it in this format, so that narrowing changes no step."""
    tensor = value.const_value if value is not None else None
    return tensor is not None and format_of_type(stored_type(tensor)) is fmt


def _makes_fine_bias(node: ir.Node, fmt: Format) -> bool:
    """Whether a scale so small that it has few bits left dequantises INT32 constants: a bias, of many steps."""
    if node.op_type != "DequantizeLinear" or node.domain:
        return False
    steps, scale = (value.const_value if value is not None else None for value in node.inputs[:2])
    if steps is None or scale is None or steps.dtype is not ir.DataType.INT32:
        return False
    sizes = np.abs(scale.numpy().astype(np.float64))
    return bool(np.any((sizes > 0) & (sizes < fmt.smallest_normal / _COARSE)))


def _slots(node: ir.Node, rule: SlotRule) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
    """The actual slots that may narrow: FP32 in the model, allowed, and an output only with what its type follows."""
    inputs: list[bool] = []
    present: set[str] = set()
    bound: set[str] = set()
    for slot, value in enumerate(node.inputs):
        allowed, letter = rule.input(slot)
        narrows = allowed and value is not None and native_format(value) is Format.FP32
        inputs.append(narrows)
        present.update({letter} if value is not None else ())
        bound.update({letter} if narrows else ())
    if inputs and inputs[0]:  # a type that only absent inputs would state follows the first input
        bound.update({letter for _, letter in rule.inputs} - present)
    outputs = []
    for slot, value in enumerate(node.outputs):
        allowed, letter = rule.output(slot)
        outputs.append(allowed and (rule.free or letter in bound) and native_format(value) is Format.FP32)
    return tuple(inputs), tuple(outputs)


def _shape_arithmetic(model: Model) -> set[ir.Node]:
    """Nodes computed from shapes and constants alone whose result states a shape somewhere."""
    derived: set[ir.Node] = set()
    for node in model.nodes:
        if node.op_type in CONTROL_FLOW or node.domain:
            continue
        if node.op_type in SHAPE_READERS or all(
            v is None or v.is_initializer() or v.producer() in derived for v in node.inputs
        ):
            derived.add(node)
    reached: set[ir.Node] = set()
    stack = [
        node.inputs[slot]
        for node in model.nodes
        for slot in shape_slots(node.op_type, node.domain)
        if slot < len(node.inputs)
    ]
    while stack:
        value = stack.pop()
        producer = value.producer() if value is not None else None
        if producer is None or producer not in derived or producer in reached or producer.op_type in SHAPE_READERS:
            continue
        reached.add(producer)
        stack.extend(producer.inputs)
    return reached
