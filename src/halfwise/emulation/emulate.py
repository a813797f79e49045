"""Emulates a mixed-precision model in FP32: every narrow tensor is rounded, by Cast pairs that a CPU runs honestly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.formats import Format, format_of_dtype, format_of_type, round_to
from halfwise.emulation.arena import shrink
from halfwise.emulation.endless_loops import bounded, deciding
from halfwise.emulation.four_bits import has_four_bits, with_four_bits
from halfwise.emulation.given_weights import INLINE_ELEMENTS, declared_weight
from halfwise.emulation.kept_sessions import KeptSessions
from halfwise.emulation.kept_walks import KeptWalks, identity_of
from halfwise.emulation.ort import RUNTIME_IR_VERSION, AnySession, Device, check_casts
from halfwise.emulation.own_operators import in_full, own_steps
from halfwise.emulation.profiles import STRICT, Profile
from halfwise.emulation.profiles.conversions import converted
from halfwise.emulation.profiles.fused_kernels import FUSED_KERNELS
from halfwise.emulation.profiles.fusion import Fusion
from halfwise.emulation.profiles.fusions import fused_nodes
from halfwise.emulation.profiles.opset_check import exist_in
from halfwise.emulation.profiles.steps import Steps, cast
from halfwise.emulation.shared import Recipe, SharedSession, attached
from halfwise.emulation.streamed import Sessions, declared
from halfwise.emulation.unpacked_tensor import FP8
from halfwise.emulation.weights import RoundedWeights
from halfwise.model.held_graphs import held_graphs
from halfwise.model.model import Model
from halfwise.model.ops import BODIES, CLOSED, TYPE_ATTRIBUTES
from halfwise.model.random_draws import draws, seed
from halfwise.model.weights import convert_fill, convert_weight, to_tensor_proto, whole_tensor
from halfwise.precision.assignment import Assignment
from halfwise.precision.rewrite import Names, Rewritten, SpelledWeight, Weight, rewrite
from halfwise.precision.sites import Sites

__all__ = ["Emulator", "emulate"]

Array = NDArray[Any]

_FLOAT = onnx.TensorProto.FLOAT

LARGE_BYTES = 1 << 28  # a model with more weights than this runs segment by segment
MOST_WHOLE_BYTES = 1 << 31  # the same of one that runs many times in a row: each would read and round them anew


@dataclass(frozen=True)
class EmulationWriter:
    """Every float tensor is FP32; a narrow one holds only values that its format has."""

    profile: Profile = STRICT
    inside: dict[ir.Node, onnx.NodeProto] = field(default_factory=dict)  # nodes that run as part of another's kernel
    unstored: set[str] = field(default_factory=set)  # names of tensors that no kernel stores
    spelled: dict[Weight, SpelledWeight] = field(default_factory=dict)  # small weights, as they were written before
    large: bool = False  # too large to hold weights of 4 bits, which no session is given by memory

    def tensor_type(self, native: int, fmt: Format) -> int:
        return _FLOAT

    def is_alias(self, have: Format, want: Format) -> bool:
        return want is Format.FP32 or have is want

    def convert(self, source: str, target: str, have: Format, want: Format, names: Names) -> list[onnx.NodeProto]:
        if source in self.unstored:
            return [onnx.NodeProto(op_type="Identity", input=[source], output=[target])]
        if have is Format.FP32 and want is Format.FP16 and self.profile.conversion:
            return converted(source, target, self.profile.conversion, names)
        return self.stored(source, target, want, names)

    def stored(self, source: str, target: str, fmt: Format, names: Names) -> list[onnx.NodeProto]:
        """A result as its kernel stores it."""
        narrow = names.value(f"{target}__narrow")
        return [cast(source, narrow, fmt.onnx_type), cast(narrow, target, _FLOAT)]

    def finish(
        self, proto: onnx.NodeProto, node: ir.Node, assignment: Assignment, names: Names
    ) -> list[onnx.NodeProto]:
        _widen_attributes(proto)
        in_full(proto)
        if draws(node):
            seed(proto, node.name or "")
        nodes = [proto]
        if node.op_type in BODIES and not node.domain:  # what leaves its bodies is rounded there
            return bounded(proto, node, names) if deciding(node, assignment) else nodes
        fused = fused_nodes(assignment, self.profile.fusion)
        if node in fused.ending or not fused.wide.isdisjoint(node.outputs):
            self.inside[node] = onnx.NodeProto()
            self.inside[node].CopyFrom(proto)
        self.unstored.update(proto.output[slot] for slot, value in enumerate(node.outputs) if value in fused.wide)
        if _closed(node, assignment) and fused.wide.isdisjoint(node.inputs):
            return nodes
        if node.op_type == "ConstantOfShape" and not node.domain:
            fmt = assignment.stored(node.outputs[0])
            if fmt is not None:
                convert_fill(proto, fmt, Format.FP32)
            return nodes
        apart = own_steps(proto, node, assignment, names, stores=self.profile.apart)
        if apart is not None:
            nodes, results = apart
            for slot, name in results.items():
                fmt = assignment.stored(node.outputs[slot])
                plain = fmt is None or fmt is Format.FP32
                same = [onnx.NodeProto(op_type="Identity", input=[name], output=[proto.output[slot]])]
                nodes += same if plain or fmt is None else self.stored(name, proto.output[slot], fmt, names)
            return nodes
        steps: Steps | None = None
        for slot, value in enumerate(node.outputs):
            fmt = assignment.stored(value)
            if not value.name or fmt is None or fmt is Format.FP32 or value in fused.wide:
                continue
            name = proto.output[slot]
            if node.op_type == "Cast" and not node.domain:
                proto.output[slot] = names.value(f"{name}__narrow")
                _set_int(proto, "to", fmt.onnx_type)
                nodes.append(cast(proto.output[slot], name, _FLOAT))
                continue
            proto.output[slot] = names.value(f"{name}__wide")
            wide = proto.output[slot]
            if steps is None:
                ending = fused.ending.get(node)
                steps = Steps(node, fmt, names, assignment.sites.model.opset(""), wide)
                spelled = self._as_kernel(proto, node, steps) if ending is None else self._as_fused(ending, steps)
                if spelled is not None:
                    nodes, steps.results[0] = spelled
            wide = steps.results.get(slot, wide)
            nodes += self.stored(wide, name, fmt, names)
        return nodes

    def _as_kernel(self, proto: onnx.NodeProto, node: ir.Node, steps: Steps) -> tuple[list[onnx.NodeProto], str] | None:
        """A node in the steps of its kernel, and the name of what the last of them gives."""
        kernel = self.profile.kernels.get(f"{node.domain}:{node.op_type}" if node.domain else node.op_type)
        if kernel is None:
            return None
        copy = onnx.NodeProto()
        copy.CopyFrom(proto)
        return _written(kernel(copy, steps), steps)

    def _as_fused(self, fusion: Fusion, steps: Steps) -> tuple[list[onnx.NodeProto], str] | None:
        """The same of nodes that run as one; None where the kernel rounds at its boundary only or not all were seen."""
        kernel = fusion.kernel or (FUSED_KERNELS.get(fusion.kind) if self.profile.kernels else None)
        if kernel is None or not all(node in self.inside for node in fusion.nodes):
            return None
        return _written(kernel(fusion, {node: self.inside[node] for node in fusion.nodes}, steps), steps)

    def spell_weight(self, weight: Weight, names: Names, *, main: bool) -> SpelledWeight:
        small, stored = weight.tensor.size <= INLINE_ELEMENTS, np.dtype(weight.tensor.dtype.numpy())
        numeric = stored.kind in "biuf" and stored.isbuiltin == 1
        if main and not small and (weight.fmt is not None or numeric):
            kind = weight.tensor.dtype.value if weight.fmt is None else _FLOAT
            return SpelledWeight(declared_weight(weight.name, kind, weight.tensor.shape.numpy()), weight)
        if main and not small and self.large and (has_four_bits(weight) or weight.tensor.dtype in FP8):
            kind = weight.tensor.dtype.value
            return SpelledWeight(declared_weight(weight.name, kind, weight.tensor.shape.numpy()), weight)
        if not small:
            return _whole(weight)
        if weight not in self.spelled:
            self.spelled[weight] = _whole(weight)
        return self.spelled[weight]


def _whole(weight: Weight) -> SpelledWeight:
    if weight.fmt is None:
        return SpelledWeight(whole_tensor(weight.name, weight.tensor))
    return SpelledWeight(to_tensor_proto(weight.name, _widen_weight(weight), Format.FP32))


def _written(result: str | None, steps: Steps) -> tuple[list[onnx.NodeProto], str] | None:
    """A kernel's steps and what they give; None where there are none, or the model's opset cannot say them."""
    if result is not None and exist_in(steps.nodes, steps.opset):
        return steps.nodes, result
    steps.results.clear()
    return None


class Emulator:
    """Builds runnable emulations of one model, on one device; rounded weights are kept for the next one.

    `walked` is told how many parts of a walk are done. Finished walks are `kept`. A stream runs a session `in_a_row`.
    """

    def __init__(
        self,
        profile: Profile = STRICT,
        device: Device = "cpu",
        walked: Callable[[int, int], None] = lambda *_: None,
        kept: KeptWalks | None = None,
        in_a_row: bool = False,
    ) -> None:
        check_casts(device)
        self.profile, self.device = profile, device
        self.walked = walked
        self.kept = kept or KeptWalks()
        self.in_a_row = in_a_row
        self.weights = RoundedWeights()
        self._segments: Sessions = {}
        self._spelled: dict[Weight, SpelledWeight] = {}
        self._sessions = KeptSessions()
        self._others: list[Emulator] = []
        self._written: dict[tuple[Any, ...], Rewritten] = {}  # the last: other samples often follow at once

    def under(self, profile: Profile) -> Emulator:
        """One of another profile on the same device, the same again; what weights become does not depend on either."""
        known = next((each for each in self._others if each.profile is profile), None)
        if known is not None:
            return known
        other = Emulator(profile, self.device, self.walked, self.kept, self.in_a_row)
        other.weights, other._segments, other._spelled = self.weights, self._segments, self._spelled
        self._others.append(other)
        return other

    def rest(self) -> None:
        """Others may have the memory of rounded weights and sessions: they are made again when they are asked for."""
        for each in (self, *self._others):
            each._sessions = KeptSessions()
            each._written.clear()
        self._segments.clear()
        shrink()
        self.weights.forget()

    def make_room(self, sites: Sites) -> None:
        """For a walk through the model, node by node."""
        for each in (self, *self._others):
            each._sessions.make_room(sites)

    def session(self, assignment: Assignment) -> AnySession:
        return self._sessions.session(assignment, lambda: self._begun(assignment))

    def _begun(self, assignment: Assignment) -> AnySession:
        model = assignment.sites.model
        written = self.write(assignment)
        whole = self.in_a_row and self.device == "cpu" and model.emulated_bytes <= MOST_WHOLE_BYTES
        values = declared(model) if self.streams(model) and not whole else None
        recipe = Recipe(written.proto, tuple(written.weights), self.weights, values, self.device)
        own = recipe.session(self.walked, self._segments, self.kept)
        return SharedSession(own, recipe) if attached() and self.device == "cpu" else own

    def write(self, assignment: Assignment) -> Rewritten:
        """Nobody changes what is handed out."""
        key = (assignment.sites, frozenset(assignment.formats.items()), assignment.io)
        if key not in self._written:
            self._written.clear()
            self._written[key] = self._write(assignment)
        return self._written[key]

    def _write(self, assignment: Assignment) -> Rewritten:
        assignment = _as_reverted(assignment, self.profile.reverted)
        large = self.streams(assignment.sites.model)
        written = rewrite(assignment, EmulationWriter(self.profile, spelled=self._spelled, large=large))
        written.proto.ir_version = RUNTIME_IR_VERSION
        _hand_out(assignment.sites.model, written.proto.graph)
        if self.profile.fusion:
            _drop_unread(written.proto.graph)
        return written

    def stores(self, node: ir.Node, assignment: Assignment) -> tuple[bool, ...]:
        """Which of a node's results its kernel stores: those inside of a fusion it does not."""
        wide = fused_nodes(assignment, self.profile.fusion).wide
        return tuple(value not in wide for value in node.outputs)

    def streams(self, model: Model) -> bool:
        """Whether it runs segment by segment."""
        return model.unpacked_bytes > LARGE_BYTES

    def keeps(self, model: Model) -> bool:
        """Whether walks through it are kept."""
        return self.kept.folder is not None and self.streams(model)

    def walk_key(self, assignment: Assignment, feed: Mapping[str, Any], *also: object) -> str:
        """Under which something is kept that a walk of one input finds out; empty where nothing is."""
        if not self.keeps(assignment.sites.model):
            return ""
        written = self.write(assignment)
        content = written.proto.SerializeToString(deterministic=True)
        return identity_of(content, (weight.tensor for weight in written.weights), feed, *also)


def _hand_out(model: Model, graph: onnx.GraphProto) -> None:
    """What is watched inside the model becomes an output of its emulation."""
    for value in model.judged_values[len(set(model.graph.outputs)) :]:
        info = ir.serde.serialize_value(value)
        if format_of_type(info.type.tensor_type.elem_type) is not None:
            info.type.tensor_type.elem_type = _FLOAT
        info.type.tensor_type.ClearField("shape")
        graph.output.append(info)


def _as_reverted(assignment: Assignment, nodes: frozenset[str]) -> Assignment:
    """The assignment as the engine runs it: some nodes in the narrow format although they are to stay in FP32."""
    sites = assignment.sites
    back = {s.node: sites.fmt for s in sites.free if s.name in nodes and assignment.of(s.node) is Format.FP32}
    return Assignment(sites, {**assignment.formats, **back}, assignment.io) if back else assignment


def emulate(assignment: Assignment, profile: Profile = STRICT) -> onnx.ModelProto:
    """The emulation as one self-contained FP32 model that any runtime can run; meant for models of moderate size."""
    written = Emulator(profile).write(assignment)  # no other is handed out the same
    proto, weights = with_four_bits(written.proto, written.weights)
    pending = {w.name: w for w in weights}
    for tensor in proto.graph.initializer:
        if tensor.name in pending:
            tensor.ClearField("data_location")
            tensor.ClearField("external_data")
            tensor.raw_data = np.ascontiguousarray(_widen_weight(pending[tensor.name])).tobytes()
    return proto


def widen_feeds(feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs as an emulation takes them: narrow arrays widened, which is exact; sequences are lists."""
    return {name: _widen_feed(feed) for name, feed in feeds.items()}


def _widen_feed(feed: Any) -> Any:
    if isinstance(feed, list):
        return [_widen_feed(each) for each in feed]
    fmt = format_of_dtype(feed.dtype) if isinstance(feed, np.ndarray) else None
    return feed.astype(np.float32) if fmt is not None and fmt.narrow else feed


def _narrow(weight: Weight) -> Array:
    return np.asarray(weight.tensor.numpy()) if weight.fmt is None else convert_weight(weight.tensor, weight.fmt)


def _widen_weight(weight: Weight) -> Array:
    narrow = _narrow(weight)
    return narrow if weight.fmt is None else np.asarray(narrow, dtype=np.float32)


def _set_int(proto: onnx.NodeProto, name: str, value: int) -> None:
    for attribute in proto.attribute:
        if attribute.name == name:
            attribute.i = value
            return
    proto.attribute.add(name=name, type=onnx.AttributeProto.INT, i=value)


def _widen_attributes(proto: onnx.NodeProto) -> None:
    """Attributes that name a narrow format in the model as given name FP32 in the carrier."""
    if proto.domain:
        return
    for attribute in proto.attribute:
        if attribute.name in TYPE_ATTRIBUTES and _is_narrow(attribute.i):
            attribute.i = _FLOAT
        elif attribute.name == "value" and _is_narrow(attribute.t.data_type):
            wide = round_to(ir.serde.deserialize_tensor(attribute.t).numpy(), Format.FP32)
            attribute.t.CopyFrom(to_tensor_proto(attribute.t.name, wide, Format.FP32))


def _is_narrow(onnx_type: int) -> bool:
    fmt = format_of_type(onnx_type)
    return fmt is not None and fmt.narrow


def _closed(node: ir.Node, assignment: Assignment) -> bool:
    """Whether the node's results need no rounding because its inputs have been rounded already."""
    if node.op_type not in CLOSED or node.domain:
        return False
    read = {assignment.read(node, slot) for slot in range(len(node.inputs))} - {None}
    stored = {assignment.stored(value) for value in node.outputs} - {None}
    return len(read) == 1 and read == stored


def _drop_unread(graph: onnx.GraphProto) -> None:
    """Remove nodes of the main graph whose results nobody reads: their work is part of another's kernel."""
    read = {value.name for value in graph.output}
    kept = []
    for node in reversed(graph.node):
        if read.isdisjoint(node.output):
            continue
        kept.append(node)
        read.update(node.input)
        for body in held_graphs(node):
            read.update(_names_within(body))
    del graph.node[:]
    graph.node.extend(reversed(kept))


def _names_within(graph: onnx.GraphProto) -> set[str]:
    """Every name that a body mentions, so that what it takes from outside counts as read."""
    names = {value.name for value in graph.output}
    for node in graph.node:
        names.update(node.input)
        for body in held_graphs(node):
            names |= _names_within(body)
    return names
