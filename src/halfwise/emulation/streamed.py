"""Runs a large model segment by segment: a weight is held while its segment runs, for all the inputs at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray
from onnx import helper

from halfwise.core.errors import InputError, MissingBackend
from halfwise.core.formats import format_of_dtype
from halfwise.core.set_aside import is_aside, set_aside
from halfwise.emulation.kept_walks import KeptWalks, identity_of
from halfwise.emulation.large_tables import places_in
from halfwise.emulation.ort import MANY, RUNTIME_IR_VERSION, Answer, AnySession, Device, Session
from halfwise.emulation.row_products import results_of_rows, rows_of, shape_of
from halfwise.emulation.segments import LARGE_BYTES, Product, Segment, multiplies, segments
from halfwise.emulation.sessions import session_for
from halfwise.emulation.weight_supply import WeightSupply
from halfwise.emulation.weights import RoundedWeights
from halfwise.model.model import Model
from halfwise.precision.rewrite import Weight

__all__ = ["Sessions", "StreamedSession", "answered", "declared"]

Array = NDArray[Any]
Sessions = dict[tuple[bytes, Device], AnySession]  # by their content and where they run

LIVE_BYTES = 1 << 29  # of tensors that all inputs together hold between segments; beyond it some wait
LEAST_LIVE_BYTES = 1 << 27  # of a small model, whose weights are soon read once more


@dataclass
class _Lane:
    """One input on its way: the tensors that are still read, or why it ended."""

    number: int
    values: dict[str, Any] = field(default_factory=dict)
    failed: Exception | None = None

    @property
    def bytes(self) -> int:
        arrays = (value for value in self.values.values() if isinstance(value, np.ndarray))
        return sum(array.nbytes for array in arrays if not is_aside(array))


@dataclass(frozen=True)
class _Ready:
    """A segment's session for inputs of some types: what it takes and gives, by the names in it."""

    session: AnySession
    takes: tuple[tuple[str, str], ...]
    gives: tuple[tuple[str, str], ...]


def declared(model: Model) -> dict[str, onnx.ValueInfoProto]:
    """What a model says of its inputs and of what its nodes make, by name."""
    made = (value for node in model.graph for value in node.outputs)
    typed = (value for value in (*model.graph.inputs, *made) if value.type is not None)
    return {value.name or "": ir.serde.serialize_value(value) for value in typed}


class StreamedSession:
    """Like a session over the whole of a model. `known` keeps the sessions of segments, which hold no large weight."""

    def __init__(
        self,
        proto: onnx.ModelProto,
        given: Sequence[Weight],
        values: Mapping[str, onnx.ValueInfoProto],
        weights: RoundedWeights,
        known: Sessions,
        walked: Callable[[int, int], None] = lambda *_: None,
        device: Device = "cpu",
        kept: KeptWalks | None = None,
        *,
        redraw: bool = True,
    ) -> None:
        self._walked, self._device, self._kept, self._redraw = walked, device, kept or KeptWalks(), redraw
        graph = proto.graph
        self.input_names = tuple(value.name for value in graph.input)
        self.output_names = tuple(value.name for value in graph.output)
        self._outputs = frozenset(self.output_names)
        self._proto, self._rounded, self._known = proto, weights, known
        self._weights = {weight.name: weight for weight in given}
        self._weight_bytes = sum(4 * weight.tensor.size for weight in given)
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        self._infos = {info.name: info for info in graph.value_info}
        self._values = values
        uncut = {name for name, each in values.items() if each.type.WhichOneof("value") not in (None, "tensor_type")}
        large = {weight.name for weight in given if 4 * weight.tensor.size >= LARGE_BYTES}
        self._segments = segments(graph, large, uncut)
        made_of_weights = (name for segment in self._segments if segment.of_weights for name in segment.gives)
        self._large = large.union(made_of_weights)
        self._ready: dict[tuple[Any, ...], _Ready] = {}
        self._brief: dict[tuple[Any, ...], _Ready] = {}  # of the segment that runs: they hold its weights

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Array]:
        """Outputs by name."""
        found = next(self.answers([feeds]))
        if isinstance(found, Exception):
            raise found
        return {name: found[name] for name in outputs or self.output_names}

    def answers(self, feeds: Sequence[Mapping[str, Any]]) -> Iterator[Answer]:
        """The outputs of each input, or why it has none; the weights are read once for all."""
        keys = [self._key(feed) for feed in feeds]
        known = [self._kept.answer(key) for key in keys]
        fresh = iter(self._walk([feed for feed, answer in zip(feeds, known, strict=True) if answer is None]))
        answers = [next(fresh) if answer is None else answer for answer in known]
        for key, before, answer in zip(keys, known, answers, strict=True):  # all, before the first is judged
            if before is None and not isinstance(answer, Exception):
                self._kept.keep(key, answer)
        yield from answers

    @property
    def _live_bytes(self) -> int:
        """Between segments: the more weights there are, the dearer it is to read them once more."""
        return min(max(self._weight_bytes, LEAST_LIVE_BYTES), LIVE_BYTES)

    def _key(self, feed: Mapping[str, Any]) -> str:
        """Under which the answer is kept; empty where none is."""
        if self._kept.folder is None:
            return ""
        weights = (weight.tensor for weight in self._weights.values())
        given = {name: feed[name] for name in self.input_names}
        return identity_of(self._proto.SerializeToString(deterministic=True), weights, given, self._device)

    def _walk(self, feeds: Sequence[Mapping[str, Any]]) -> list[Answer]:
        """No weight is held when it is done."""
        done: list[Answer | None] = [None] * len(feeds)
        waiting = list(range(len(feeds)))
        while waiting:
            lanes = [_Lane(number, {n: feeds[number][n] for n in self.input_names}) for number in waiting]
            waiting = []
            shared: dict[str, Any] = {}
            places = [self._place(segment) for segment in self._segments]
            supply = WeightSupply(self._segments, places, self._weights, self._rounded)
            for number, segment in enumerate(self._segments):
                self._walked(number, len(self._segments))
                supply.begin(number)
                self._through(segment, lanes, shared, partial(supply.of, number))
                while len(lanes) > 1 and sum(lane.bytes for lane in lanes) > self._live_bytes:
                    waiting.insert(0, lanes.pop().number)
            supply.end()
            for lane in lanes:
                lane.values = {**shared, **lane.values}
                done[lane.number] = lane.failed or {name: self._given(name, lane) for name in self.output_names}
            lanes.clear()
        return [each for each in done if each is not None]

    def _through(
        self, segment: Segment, lanes: Sequence[_Lane], shared: dict[str, Any], read: Callable[[], dict[str, Any]]
    ) -> None:
        """Its weights, `read` for it, live no longer than this. `shared` is what was made of weights alone."""
        going = [lane for lane in lanes if lane.failed is None]
        if not (self._picked(segment, going) or self._by_parts(segment, going)):
            self._with_weights(segment, going, read(), shared)
            self._brief.clear()
        made = self._outputs.intersection(segment.gives)
        for lane in lanes:
            lane.values |= set_aside({name: lane.values[name] for name in made if name in lane.values})
        for name in segment.done:
            if name not in self.output_names:
                shared.pop(name, None)
                for lane in lanes:
                    lane.values.pop(name, None)

    def _with_weights(
        self, segment: Segment, going: Sequence[_Lane], weights: Mapping[str, Any], shared: dict[str, Any]
    ) -> None:
        if segment.of_weights and going:
            self._step(segment, going[0], weights, shared, shared)
            for lane in going:
                lane.failed = going[0].failed
        elif not self._at_once(segment, going, weights, shared):
            for lane in going:
                self._step(segment, lane, weights, shared, lane.values)

    def _picked(self, segment: Segment, lanes: Sequence[_Lane]) -> bool:
        """Of a weight that inputs pick entries of, only these are read."""
        picked = segment.picked
        weight = self._weights.get(picked.table) if picked is not None else None
        if picked is None or weight is None:
            return False
        asked = [lane.values.get(picked.indices) for lane in lanes]
        length = weight.tensor.shape.numpy()[0]
        if not all(places_in(each, length) for each in asked):
            return False
        for lane, each in zip(lanes, asked, strict=True):
            lane.values[picked.result] = self._rounded.picked(weight, np.asarray(each))
        return True

    def _step(
        self,
        segment: Segment,
        lane: _Lane,
        weights: Mapping[str, Any],
        shared: Mapping[str, Any],
        into: dict[str, Any],
    ) -> None:
        try:
            known = {**shared, **lane.values}
            feeds = {name: known[name] for name in segment.reads if name in known}
            into.update(self._run(segment, feeds, weights))
        except MissingBackend:
            raise
        except Exception as error:
            lane.failed = InputError(f"at {segment.places}: {error}")
            lane.values.clear()

    def _at_once(
        self, segment: Segment, lanes: Sequence[_Lane], weights: Mapping[str, Any], shared: Mapping[str, Any]
    ) -> bool:
        """A product with a weight of two dimensions, of the rows of all inputs."""
        product = segment.product
        table = weights.get(product.table, shared.get(product.table)) if product is not None else None
        shape = shape_of(table)
        if product is None or table is None or len(shape) != 2:
            return False
        rows = rows_of([lane.values.get(product.rows) for lane in lanes], shape[product.turned])
        if rows is None or (not product.turned and (len(rows) < 2 or any(len(each) == 1 for each in rows))):
            return False
        bias = {name: weights[name] for name in (product.bias,) if name in weights}
        return self._products(product, lanes, rows, [table], shape[1 - product.turned], bias)

    def _by_parts(self, segment: Segment, lanes: Sequence[_Lane]) -> bool:
        """The same with a table that is rounded part by part."""
        product = segment.product
        weight = self._weights.get(product.table) if product is not None else None
        if product is None or product.bias or weight is None or self._device != "cpu":
            return False
        axis = int(not product.turned)  # of the table's columns in the product
        if not self._rounded.has_parts(weight, axis):
            return False
        shape = weight.tensor.shape.numpy()
        rows = rows_of([lane.values.get(product.rows) for lane in lanes], shape[1 - axis])
        parts = self._rounded.parts(weight, axis)
        return rows is not None and self._products(product, lanes, rows, parts, shape[axis], {})

    def _products(
        self,
        product: Product,
        lanes: Sequence[_Lane],
        rows: Sequence[Array],
        tables: Iterable[Any],
        columns: int,
        bias: Mapping[str, Any],
    ) -> bool:
        def run(each: Array, table: Any) -> Array:
            found = self._run(product.segment, {product.rows: each, product.table: table, **bias}, {})
            return np.asarray(found[product.result])

        try:
            made = results_of_rows(rows, columns, tables, run)
        except MissingBackend:
            raise
        except Exception:
            return False
        for lane, part in zip(lanes, made, strict=True):
            lane.values[product.result] = part.reshape(*lane.values[product.rows].shape[:-1], part.shape[1])
        return True

    def _given(self, name: str, lane: _Lane) -> Any:
        """An output, which may be an input or a weight as it is."""
        if name in lane.values:
            return lane.values[name]
        if name in self._weights:
            return self._rounded.of(self._weights[name])
        return onnx.numpy_helper.to_array(self._constants[name])

    def _place(self, segment: Segment) -> Device:
        """A GPU multiplies large weights: the rest is a small part of the work, and has the processor's bits here."""
        return self._device if multiplies(segment, self._large) else "cpu"

    # -- one segment ------------------------------------------------------------------------------------------------

    def _run(self, segment: Segment, feeds: Mapping[str, Any], weights: Mapping[str, Any]) -> dict[str, Any]:
        taken = {**feeds, **{name: array for name, array in weights.items() if name not in segment.foreign}}
        key = (segment, *(value.dtype if isinstance(value, np.ndarray) else None for value in taken.values()))
        ready = self._ready.get(key) or self._brief.get(key)
        if ready is None:
            constant = {name: weights[name] for name in weights if name in segment.foreign}
            ready = self._load(segment, taken, constant)
            (self._brief if constant else self._ready)[key] = ready
        found = ready.session.run({inside: taken[name] for inside, name in ready.takes})
        return {name: found[inside] for inside, name in ready.gives}

    def _load(self, segment: Segment, taken: Mapping[str, Any], constant: Mapping[str, Array]) -> _Ready:
        names, device = _spelling(segment), self._place(segment)
        proto = self._spelled(segment, names, taken)
        session: AnySession
        if constant:
            held = {names.get(name, name): array for name, array in constant.items()}
            session = Session(proto, held, lean=True, threads=MANY, device=device, redraw=self._redraw)
        else:
            content = proto.SerializeToString(deterministic=True), device
            if content not in self._known:
                self._known[content] = session_for(proto, threads=MANY, device=device, redraw=self._redraw)
            session = self._known[content]
        gives = tuple((names.get(name, name), name) for name in segment.gives)
        return _Ready(session, tuple((names.get(name, name), name) for name in taken), gives)

    def _spelled(self, segment: Segment, names: Mapping[str, str], taken: Mapping[str, Any]) -> onnx.ModelProto:
        graph = onnx.GraphProto(name="segment")
        for node in segment.nodes:
            proto = graph.node.add()
            proto.CopyFrom(node)
            if names:
                proto.name = proto.doc_string = ""
                del proto.metadata_props[:]
                proto.input[:] = [names.get(name, name) for name in node.input]
                proto.output[:] = [names.get(name, name) for name in node.output]
        for name in segment.reads:
            if name in taken:
                graph.input.append(self._declared(name, taken[name], shaped=segment.has_bodies))
                graph.input[-1].name = names.get(name, name)
            else:
                graph.initializer.append(self._constants[name])
                graph.initializer[-1].name = names.get(name, name)
        for node in segment.nodes:
            for name in node.output:
                if name in self._infos:
                    graph.value_info.append(self._infos[name])
                    graph.value_info[-1].name = names.get(name, name)
        graph.output.extend(onnx.ValueInfoProto(name=names.get(name, name)) for name in segment.gives)
        made = onnx.ModelProto(ir_version=RUNTIME_IR_VERSION, graph=graph)
        made.opset_import.extend(self._proto.opset_import)
        return made

    def _declared(self, name: str, value: Any, *, shaped: bool) -> onnx.ValueInfoProto:
        """By what it holds now; a body may need the shapes around it, and of a table only a part may be given."""
        if name in self._weights:
            constant = self._constants[name]
            whole = not isinstance(value, np.ndarray) or value.shape == tuple(constant.dims)
            return helper.make_tensor_value_info(name, constant.data_type, constant.dims if whole else None)
        stated = self._values.get(name)
        if not isinstance(value, np.ndarray):
            assert stated is not None
            return stated
        info = helper.make_tensor_value_info(name, _onnx_type(value), None)
        if shaped and stated is not None and stated.type.tensor_type.HasField("shape"):
            info.type.tensor_type.shape.CopyFrom(stated.type.tensor_type.shape)
        return info


def answered(session: AnySession, feeds: Sequence[Mapping[str, Any]]) -> list[dict[str, Array]]:
    """The outputs of each input; the first that has none is an error."""
    found = []
    for number, answer in enumerate(session.answers(feeds), 1):
        if isinstance(answer, InputError) and number > 1:
            raise InputError(f"{answer}, with input {number} of {len(feeds)}") from answer
        if isinstance(answer, Exception):
            raise answer
        found.append(set_aside(answer))
    return found


def _spelling(segment: Segment) -> dict[str, str]:
    """Names by their place, so that equal segments are spelled alike; none where bodies refer to names around them."""
    if segment.has_bodies:
        return {}
    names = {name: f"i{index}" for index, name in enumerate(segment.reads)}
    for node in segment.nodes:
        for name in node.output:
            if name:
                names.setdefault(name, f"v{len(names)}")
    return names


def _onnx_type(array: Array) -> int:
    fmt = format_of_dtype(array.dtype)
    if fmt is not None:
        return fmt.onnx_type
    if array.dtype.kind in "OUS":
        return int(onnx.TensorProto.STRING)
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))
