"""Where precision can be decided: for each node of a model, the slots that may narrow, or why none may."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import onnx_ir as ir

from halfwise.formats import Format
from halfwise.model import Model
from halfwise.ops import CONTROL_FLOW, MOVES, SHAPE_READERS, shape_slots, slot_rule

__all__ = ["Site", "Sites"]

_NATIVE = {ir.DataType.FLOAT16: Format.FP16, ir.DataType.BFLOAT16: Format.BF16, ir.DataType.FLOAT: Format.FP32}


def native_format(value: ir.Value) -> Format | None:
    """The format a tensor has in the model as given; None for what is no FP32, FP16 or BF16 tensor."""
    if value.dtype is None or not isinstance(value.type, ir.TensorType):
        return None
    return _NATIVE.get(value.dtype)


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
    pinned: str | None

    @property
    def free(self) -> bool:
        return self.pinned is None

    @property
    def compute(self) -> bool:
        """A node that does floating-point arithmetic or decides by it."""
        return not self.moves and self.has_fp32

    @property
    def has_fp32(self) -> bool:
        """Whether the node, as the model has it, reads or writes an FP32 tensor's values."""
        if self.op in SHAPE_READERS:
            return False
        values = (*self.node.inputs, *self.node.outputs)
        return any(v is not None and native_format(v) is Format.FP32 for v in values)


class Sites:
    """All sites of a model in execution order, for one narrow format."""

    def __init__(self, model: Model, fmt: Format = Format.FP16) -> None:
        self.model = model
        self.fmt = fmt
        shape_arithmetic = _shape_arithmetic(model)
        self.all: tuple[Site, ...] = tuple(
            self._site(node, index, node in shape_arithmetic) for index, node in enumerate(model.nodes)
        )
        self.of: dict[ir.Node, Site] = {site.node: site for site in self.all}

    @cached_property
    def free(self) -> tuple[Site, ...]:
        """The nodes whose precision is a choice."""
        return tuple(site for site in self.all if site.free)

    @cached_property
    def pinned(self) -> tuple[Site, ...]:
        """The nodes with FP32 tensors that cannot narrow, whatever anyone wants."""
        return tuple(site for site in self.all if site.pinned and site.has_fp32)

    @cached_property
    def compute_nodes(self) -> int:
        return sum(site.compute for site in self.all)

    def _site(self, node: ir.Node, index: int, shape_arithmetic: bool) -> Site:
        version = node.version or self.model.opset(node.domain)
        rule = slot_rule(node.op_type, node.domain, version, self.fmt)
        why = rule.why
        values = (*node.inputs, *node.outputs)
        if why is None and shape_arithmetic:
            why = "shape arithmetic: runs on the host and decides shapes"
        if why is None and any(v is not None and v.type is not None and not isinstance(v.type, ir.TensorType)
                               for v in values):  # fmt: skip
            why = "reads or writes a sequence or an optional"
        inputs = tuple(v is not None and native_format(v) is Format.FP32 and rule.input(i)
                       for i, v in enumerate(node.inputs))  # fmt: skip
        outputs = tuple(native_format(v) is Format.FP32 and rule.output(i) for i, v in enumerate(node.outputs))
        if why is None and (node.op_type in SHAPE_READERS or not (any(inputs) or any(outputs))):
            why = "has no FP32 tensor that could narrow"
        if why is not None:
            inputs, outputs = (False,) * len(inputs), (False,) * len(outputs)
        return Site(
            node=node,
            name=node.name or "",
            op=node.op_type,
            index=index,
            inputs=inputs,
            outputs=outputs,
            moves=node.op_type in MOVES and not node.domain,
            nested=node.graph is not self.model.graph,
            pinned=why,
        )


def _shape_arithmetic(model: Model) -> set[ir.Node]:
    """Nodes computed from shapes and constants alone whose result states a shape somewhere."""
    derived: set[ir.Node] = set()
    for node in model.nodes:
        if node.op_type in CONTROL_FLOW:
            continue
        if node.op_type in SHAPE_READERS or all(
            v is None or v.is_initializer() or v.producer() in derived for v in node.inputs
        ):
            derived.add(node)
    reached: set[ir.Node] = set()
    stack = [
        node.inputs[slot]
        for node in model.nodes
        for slot in shape_slots(node.op_type)
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
