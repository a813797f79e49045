"""Emulates a mixed-precision model in FP32: every narrow tensor is rounded, by Cast pairs that a CPU runs honestly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.engine.ort import RUNTIME_IR_VERSION, Session, check_casts
from halfwise.formats import Format, round_to
from halfwise.ops import CLOSED, WIDENED_ATTRIBUTES
from halfwise.precision import Assignment
from halfwise.profiles import STRICT, Profile
from halfwise.rewrite import Names, Rewritten, SpelledWeight, Weight, rewrite
from halfwise.weights import ONNX_TYPE, convert_fill, convert_weight, to_tensor_proto, whole_tensor

__all__ = ["Emulator", "emulate"]

Array = NDArray[Any]

_FLOAT = onnx.TensorProto.FLOAT
_NARROW_TYPES = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)

INLINE_ELEMENTS = 256  # larger weights are handed to the runtime by memory
LEAN_BYTES = 1 << 29  # with more weights than this they are kept narrow and widened in every run


@dataclass(frozen=True)
class CarrierDialect:
    """Every float tensor is FP32; a narrow one holds only values that its format has."""

    profile: Profile = STRICT
    lean: bool = False

    def tensor_type(self, native: int, fmt: Format) -> int:
        return _FLOAT

    def is_alias(self, have: Format, want: Format) -> bool:
        return want is Format.FP32 or have is want

    def convert(self, source: str, target: str, have: Format, want: Format, names: Names) -> list[onnx.NodeProto]:
        narrow = names.value(f"{target}__narrow")
        return [_cast(source, narrow, ONNX_TYPE[want]), _cast(narrow, target, _FLOAT)]

    def finish(
        self, proto: onnx.NodeProto, node: ir.Node, assignment: Assignment, names: Names
    ) -> list[onnx.NodeProto]:
        _widen_attributes(proto)
        nodes = [proto]
        if _closed(node, assignment):
            return nodes
        if node.op_type == "ConstantOfShape" and not node.domain:
            fmt = assignment.stored(node.outputs[0])
            if fmt is not None:
                convert_fill(proto, fmt, Format.FP32)
            return nodes
        for slot, value in enumerate(node.outputs):
            fmt = assignment.stored(value)
            if not value.name or fmt is None or fmt is Format.FP32:
                continue
            name = proto.output[slot]
            if node.op_type == "Cast" and not node.domain:
                proto.output[slot] = names.value(f"{name}__narrow")
                _set_int(proto, "to", ONNX_TYPE[fmt])
                nodes.append(_cast(proto.output[slot], name, _FLOAT))
                continue
            proto.output[slot] = names.value(f"{name}__wide")
            if slot == 0 and node.op_type in self.profile.biased_twice:
                nodes += _take_bias_out(proto, node, fmt, names)
            nodes += self.convert(nodes[-1].output[0] if slot == 0 else proto.output[slot], name,
                                  Format.FP32, fmt, names)  # fmt: skip
        return nodes

    def spell_weight(self, weight: Weight, names: Names, *, main: bool) -> SpelledWeight:
        inline = not main or weight.tensor.size <= INLINE_ELEMENTS
        if weight.fmt is None:
            if inline or np.dtype(weight.tensor.dtype.numpy()).kind not in "biuf":
                return SpelledWeight(whole_tensor(weight.name, weight.tensor))
            return SpelledWeight(_declare(weight, weight.tensor.dtype.value), weight)
        if inline:
            return SpelledWeight(to_tensor_proto(weight.name, _carry(weight), Format.FP32))
        if self.lean and weight.fmt is not Format.FP32:
            narrow = Weight(names.value(f"{weight.name}__narrow"), weight.tensor, weight.fmt)
            return SpelledWeight(
                _declare(narrow, ONNX_TYPE[weight.fmt]), narrow, (_cast(narrow.name, weight.name, _FLOAT),)
            )
        return SpelledWeight(_declare(weight, _FLOAT), weight)


class Emulator:
    """Builds runnable emulations of one model; rounded weights are kept for the next one."""

    def __init__(self, profile: Profile = STRICT) -> None:
        check_casts()
        self.profile = profile
        self._rounded: dict[tuple[int, Format | None], tuple[ir.TensorProtocol, Array]] = {}
        self._room = 3 * LEAN_BYTES  # of rounded weights to keep

    def session(self, assignment: Assignment) -> Session:
        lean = assignment.sites.model.weight_bytes > LEAN_BYTES
        written = self.write(assignment, lean=lean)
        weights = {w.name: _narrow(w) if lean else self.carried(w) for w in written.weights}
        return Session(written.proto, weights, lean=lean)

    def write(self, assignment: Assignment, *, lean: bool = False) -> Rewritten:
        written = rewrite(assignment, CarrierDialect(self.profile, lean))
        written.proto.ir_version = RUNTIME_IR_VERSION
        return written

    def carried(self, weight: Weight) -> Array:
        """A weight rounded to its format and held in FP32."""
        key = (id(weight.tensor), weight.fmt)
        if key in self._rounded:
            return self._rounded[key][1]
        array = _carry(weight)
        if array.nbytes <= self._room:
            self._room -= array.nbytes
            self._rounded[key] = (weight.tensor, array)  # the tensor, so that its id stays its own
        return array


def emulate(assignment: Assignment, profile: Profile = STRICT) -> onnx.ModelProto:
    """The emulation as one self-contained FP32 model that any runtime can run; meant for models of moderate size."""
    written = Emulator(profile).write(assignment)
    pending = {w.name: w for w in written.weights}
    for tensor in written.proto.graph.initializer:
        if tensor.name in pending:
            tensor.ClearField("data_location")
            tensor.ClearField("external_data")
            tensor.raw_data = np.ascontiguousarray(_carry(pending[tensor.name])).tobytes()
    return written.proto


def carry_feeds(feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs as an emulation takes them: float16 and bfloat16 arrays widened, which is exact; sequences are lists."""
    return {name: _carry_feed(feed) for name, feed in feeds.items()}


def _carry_feed(feed: Any) -> Any:
    if isinstance(feed, list):
        return [_carry_feed(each) for each in feed]
    narrow = isinstance(feed, np.ndarray) and feed.dtype.name in ("float16", "bfloat16")
    return feed.astype(np.float32) if narrow else feed


def _narrow(weight: Weight) -> Array:
    return np.asarray(weight.tensor.numpy()) if weight.fmt is None else convert_weight(weight.tensor, weight.fmt)


def _carry(weight: Weight) -> Array:
    narrow = _narrow(weight)
    return narrow if weight.fmt is None else np.asarray(narrow, dtype=np.float32)


def _declare(weight: Weight, element_type: int) -> onnx.TensorProto:
    proto = onnx.TensorProto(name=weight.name, data_type=element_type, dims=weight.tensor.shape.numpy())
    proto.data_location = onnx.TensorProto.EXTERNAL
    proto.external_data.add(key="location", value="given-by-memory")
    return proto


def _cast(source: str, target: str, element_type: int) -> onnx.NodeProto:
    node = onnx.NodeProto(op_type="Cast", input=[source], output=[target])
    node.attribute.add(name="to", type=onnx.AttributeProto.INT, i=element_type)
    return node


def _set_int(proto: onnx.NodeProto, name: str, value: int) -> None:
    for attribute in proto.attribute:
        if attribute.name == name:
            attribute.i = value
            return
    proto.attribute.add(name=name, type=onnx.AttributeProto.INT, i=value)


def _widen_attributes(proto: onnx.NodeProto) -> None:
    """Attributes that name FP16 or BF16 in the model as given name FP32 in the carrier."""
    if proto.domain:
        return
    for attribute in proto.attribute:
        if attribute.name == WIDENED_ATTRIBUTES.get(proto.op_type) and attribute.i in _NARROW_TYPES:
            attribute.i = _FLOAT
        elif attribute.name == "value" and attribute.t.data_type in _NARROW_TYPES:
            wide = round_to(ir.serde.deserialize_tensor(attribute.t).numpy(), Format.FP32)
            attribute.t.CopyFrom(to_tensor_proto(attribute.t.name, wide, Format.FP32))


def _closed(node: ir.Node, assignment: Assignment) -> bool:
    """Whether the node's results need no rounding because its inputs have been rounded already."""
    if node.op_type not in CLOSED or node.domain:
        return False
    read = {assignment.read(node, slot) for slot in range(len(node.inputs))} - {None}
    stored = {assignment.stored(value) for value in node.outputs} - {None}
    return len(read) == 1 and read == stored


def _take_bias_out(proto: onnx.NodeProto, node: ir.Node, fmt: Format, names: Names) -> list[onnx.NodeProto]:
    """A kernel that rounds its sum of products and adds the bias after that: split it so."""
    if len(proto.input) < 3 or not proto.input[2]:
        return []
    bias = proto.input[2]
    del proto.input[2]
    product = proto.output[0]
    narrow, rounded = names.value(f"{product}__narrow"), names.value(f"{product}__rounded")
    rank = next((len(v.shape) for v in (node.inputs[1], node.inputs[0]) if v is not None and v.shape is not None), 4)
    shape, spread = names.value(f"{bias}__shape"), names.value(f"{bias}__spread")
    dims = np.array([1, -1, *[1] * (rank - 2)], dtype=np.int64)
    constant = onnx.NodeProto(op_type="Constant", output=[shape])
    constant.attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t.CopyFrom(
        onnx.TensorProto(data_type=onnx.TensorProto.INT64, dims=dims.shape, raw_data=dims.tobytes())
    )
    return [
        _cast(product, narrow, ONNX_TYPE[fmt]),
        _cast(narrow, rounded, _FLOAT),
        constant,
        onnx.NodeProto(op_type="Reshape", input=[bias, shape], output=[spread]),
        onnx.NodeProto(op_type="Add", input=[rounded, spread], output=[names.value(f"{product}__biased")]),
    ]
