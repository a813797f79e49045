"""Runs a model node by node, so that every tensor can be looked at or changed and is dropped after its last use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.counting import Counts
from halfwise.core.errors import InputError
from halfwise.core.fast_casts import rounded
from halfwise.core.formats import Format
from halfwise.emulation.as_in_model import as_in_model
from halfwise.emulation.body_ranges import OLDEST_OPSET, observed
from halfwise.emulation.branches import branch_taken, handed_out, is_walked
from halfwise.emulation.compiled_node import Compiled, Read
from halfwise.emulation.declared import declared
from halfwise.emulation.emulate import EmulationWriter, Emulator
from halfwise.emulation.large_tables import (
    as_it_lies,
    by_columns,
    of_rows,
    picks_rows,
    turns,
)
from halfwise.emulation.late_constants import constants_late
from halfwise.emulation.lent_weights import LentWeights
from halfwise.emulation.ort import FEW, MANY, RUNTIME_IR_VERSION, AnySession, Device
from halfwise.emulation.packed_weights import dequantised_weight, plain_product
from halfwise.emulation.quantised_tensor import QuantisedTensor, quantised_weight
from halfwise.emulation.row_products import results_of_rows, rows_of
from halfwise.emulation.sessions import session_for
from halfwise.emulation.store import Store, is_large
from halfwise.emulation.table_steps import made_for_all, of_table, turned_table
from halfwise.emulation.weights import Room
from halfwise.model.bodies import bodies_of, nodes_in
from halfwise.model.families import PRODUCTS, RECURRENT
from halfwise.model.model import Model
from halfwise.model.ops import BODIES
from halfwise.model.passing import Passing
from halfwise.precision.assignment import Assignment
from halfwise.precision.rewrite import RewrittenUnit, Weight, rewrite_unit

__all__ = ["Step", "Stepper"]

Array = NDArray[Any]

_PACKED = {"DequantizeLinear", "MatMulNBits", "QuantizeLinear"}
# Operators whose work is worth several threads.
_HEAVY = PRODUCTS | RECURRENT | BODIES | {"Attention", "Einsum", "MatMulNBits"}


@dataclass(frozen=True)
class Step:
    """One node at work: the inputs it took and the outputs it gave, still in the store."""

    node: ir.Node
    inputs: tuple[Array | None, ...]
    outputs: dict[ir.Value, Array]


class Stepper:
    """Executes nodes of the main graph one at a time; `executed` counts nodes, those in subgraphs included."""

    def __init__(self, emulator: Emulator) -> None:
        self.emulator = emulator
        self.executed = 0.0
        self._sessions: dict[tuple[bytes, Device], AnySession] = {}
        self._compiled: dict[tuple[Any, ...], Compiled] = {}
        self._lent = LentWeights(emulator.weights)
        self._inner: dict[ir.Node, tuple[ir.Node, ...]] = {}
        self._outside: dict[ir.Node, frozenset[ir.Value]] = {}
        self._current: tuple[object, dict[ir.Node, Compiled]] | None = None
        self._passing: tuple[Model, Passing] | None = None

    def rest(self) -> None:
        """Others may have the memory of what is made again when it is asked for."""
        self._sessions.clear()
        self._compiled.clear()
        self._current = None
        self._lent = LentWeights(self.emulator.weights)
        self.emulator.rest()

    def account(self, nodes: float) -> None:
        """Count work that stands for so many executions of a node."""
        self.executed += nodes

    def largest(self, weight: ir.Value) -> float:
        """A weight's largest magnitude; infinite where it holds anything that is not finite."""
        assert weight.const_value is not None
        return self.emulator.weights.largest(weight.const_value)

    def walk(self, store: Store, *, branches: bool = False) -> Iterator[Step]:
        """Run the model; each tensor is dropped once nothing needs it any more. With `branches`, the nodes of the
        branch that an If takes are steps, too, before the If itself."""
        model = store.assignment.sites.model
        self.emulator.make_room(store.assignment.sites)
        nodes, left = self._in_order(model), self._uses(model.graph, model.judged_values)
        yield from self._walked(self._told(nodes, self._passing_of(model, nodes)), left, store, branches)

    def _told(self, nodes: Sequence[ir.Node], passing: Passing) -> Iterator[ir.Node]:
        for number, node in enumerate(nodes):
            self.emulator.walked(number, len(nodes))
            passing.at(number)
            yield node
        passing.end()

    def _passing_of(self, model: Model, nodes: Sequence[ir.Node]) -> Passing:
        """One for all that go through a model beside one another."""
        if self._passing is None or self._passing[0] is not model:
            steps = nodes if self.emulator.streams(model) else ()
            self._passing = model, Passing(map(self._weights, steps))
        return self._passing[1]

    def _weights(self, node: ir.Node) -> list[ir.TensorProtocol]:
        """All that it reads as a whole."""
        values = () if picks_rows(node) else self.outside(node)
        return [v.const_value for v in values if v.is_initializer() and v.const_value is not None]

    def _walked(
        self, nodes: Iterable[ir.Node], left: dict[ir.Value, int], store: Store, branches: bool
    ) -> Iterator[Step]:
        for node in nodes:
            branch = branch_taken(node, store) if branches else None
            own = {value for inner in branch or () for value in inner.outputs}
            if branch is not None:
                uses = {value: many for value, many in self._uses(branch, branch.outputs).items() if value in own}
                yield from self._walked(tuple(branch), uses, store, branches)
            outputs = self.run(node, store.assignment, store)
            for value, array in outputs.items():
                store.put(value, array)
            yield Step(node, tuple(self._peek(store, value) for value in node.inputs), outputs)
            for value in own:
                store.drop(value)
            for value in (*node.outputs, *self.outside(node)):
                if value in left and value in store:
                    left[value] -= value not in node.outputs
                    if left[value] <= 0:
                        store.drop(value)

    def run(
        self, node: ir.Node, assignment: Assignment, store: Store, changed: Mapping[ir.Value, Array] | None = None
    ) -> dict[ir.Value, Array]:
        """One node's outputs; `changed` holds inputs to take instead of the stored ones, as they are read."""
        branch = None if assignment.formats else branch_taken(node, store)
        if branch is not None and is_walked(branch, store):
            self.account(1)
            return handed_out(node, branch, store, changed or {})
        compiled = self.compile(node, assignment)
        self.account(1 + len(self.inner(node)))
        if changed is None and node in store.ahead:
            return {compiled.outputs[0]: store.ahead.pop(node)}
        if changed is None and (picks_rows(node) or turns(node)):
            found = of_table(node, compiled, assignment, store)
            if found is not None:
                return {node.outputs[0]: found}
        packed = node.op_type in _PACKED
        if packed and (made := self._of_packed(node, compiled, store, changed or {})) is not None:
            return {compiled.outputs[0]: made}
        feeds, lent = {}, self._lent if self.emulator.streams(assignment.sites.model) else None
        turned = turned_table(node, compiled, store, changed or {})
        for name, value, fmt in compiled.reads if turned is None else compiled.reads[:-1]:
            if changed is not None and value in changed:
                stored = fmt is None or fmt is assignment.stored(value)
                feeds[name] = changed[value] if stored or fmt is None else rounded(changed[value], fmt)
            else:
                feeds[name] = store.taken(value, fmt, node, compiled.device, lent)
        with as_in_model(node, {name: value for name, value, _ in compiled.reads}):
            if turned is not None:
                return {compiled.outputs[0]: self._of_turned(node, store, compiled, feeds, turned)}
            if lent is not None and changed is None and made_for_all(node, compiled, store, feeds):
                return {compiled.outputs[0]: store.ahead.pop(node)}
            results = compiled.session.run(feeds, compiled.names)
        return dict(zip(compiled.outputs, results.values(), strict=True))

    def _of_packed(
        self, node: ir.Node, compiled: Compiled, store: Store, changed: Mapping[ir.Value, Array]
    ) -> Array | None:
        """A product with packed weights, made for all that go beside a store; None where the runtime's kernel does."""
        if node.op_type != "MatMulNBits":
            return None if changed else self._of_quantised(node, compiled, store)
        (_, value, fmt), *_ = compiled.reads
        plain = self._plain(node, compiled, store.assignment)
        together = store.beside if len(store.beside) > 1 and not changed else (store,)
        if plain is None or changed.keys() - {value} or any(value not in each for each in together):
            return None
        session, weight = plain
        taken = [each.as_read(value, changed[value], fmt) if changed else each.read(value, fmt) for each in together]
        columns, width = weight.tensor.shape.numpy()
        if (rows := rows_of(taken, width)) is None:
            return None
        tables = self._tables(node, weight, self._device_of_packed(store.assignment.sites.model))
        name, result = session.input_names[0], compiled.names[0]
        found = results_of_rows(rows, columns, tables, lambda a, b: session.run({name: a, weight.name: b})[result])
        made = [each.reshape(*given.shape[:-1], columns) for each, given in zip(found, taken, strict=True)]
        if changed:
            return made[0]
        for each, array in zip(together, made, strict=True):
            each.ahead[node] = array
        return store.ahead.pop(node)

    def _of_quantised(self, node: ir.Node, compiled: Compiled, store: Store) -> Array | None:
        """What is made of a weight alone, once for all that go beside a store."""
        made = self._numbers(node, compiled, store.assignment)
        array = np.asarray(made.numpy()) if made is not None else self._dequantised(node, compiled, store)
        if array is None:
            return None
        for each in store.beside if len(store.beside) > 1 else (store,):
            each.ahead[node] = array
        return store.ahead.pop(node)

    def _numbers(self, node: ir.Node, compiled: Compiled, assignment: Assignment) -> QuantisedTensor | None:
        if node.op_type != "QuantizeLinear":
            return None
        return quantised_weight(self._unit(node, assignment)[1].nodes[0], compiled.weights)

    def _dequantised(self, node: ir.Node, compiled: Compiled, store: Store) -> Array | None:
        assignment = store.assignment
        stores = all(self.emulator.stores(node, assignment))  # else another's kernel makes it on its way
        fmt = assignment.stored(node.outputs[0]) if stores else Format.FP32
        weights = compiled.weights
        (name, value, _), *_ = compiled.reads
        before = value.producer()
        if before is not None and before.op_type == "QuantizeLinear":
            made = self._numbers(before, self.compile(before, assignment), assignment)
            weights |= {} if made is None else {name: Weight(name, made, None)}
        found = dequantised_weight(self._unit(node, assignment)[1].nodes[0], weights)
        if found is None or fmt is None or (fmt.narrow and found.most > fmt.max):
            return None
        return self.emulator.weights.of(Weight("", found, fmt), room=Room())

    def _plain(self, node: ir.Node, compiled: Compiled, assignment: Assignment) -> tuple[AnySession, Weight] | None:
        """The session of that product, and its weight."""
        found, model = plain_product(self._unit(node, assignment)[0], compiled.weights), assignment.sites.model
        return (
            None if found is None else (self._session(node, found[0], model, self._device_of_packed(model)), found[1])
        )

    def _tables(self, node: ir.Node, weight: Weight, device: Device) -> Iterable[Any]:
        """The whole or its parts, as a product there takes them."""
        weights = self.emulator.weights
        if device == "cuda":
            from halfwise.emulation.gpu_weights import on_gpu

            return [on_gpu(weight, weights)]
        return weights.parts(weight) if weights.has_parts(weight) else [self._lent.to(node, weight)]

    def _device_of_packed(self, model: Model) -> Device:
        return self.emulator.device if self.emulator.streams(model) else "cpu"

    def _of_turned(
        self, node: ir.Node, store: Store, compiled: Compiled, feeds: Mapping[str, Array], table: Array
    ) -> Array:
        """A product with a large table that lies the other way, which is not copied as a whole."""
        name, value, fmt = compiled.reads[-1]
        as_stored = fmt is None or fmt is store.assignment.stored(value)
        rows = next(iter(feeds.values()), None)
        if as_stored and isinstance(rows, np.ndarray) and rows.ndim > 1 and rows.size:
            session = self._lying(node, store.assignment)
            if session is not None:
                (given,) = feeds
                return of_rows(rows, lambda flat: session.run({given: flat, name: table.T}))
        run = compiled.session.run
        return by_columns(table, lambda part: run({**feeds, name: store.as_read(value, part, fmt)}))

    def _lying(self, node: ir.Node, assignment: Assignment) -> AnySession | None:
        """The session of a product that takes its table as it lies."""
        proto = as_it_lies(self._unit(node, assignment)[0])
        return None if proto is None else self._session(node, proto, assignment.sites.model)

    def reads(self, node: ir.Node, assignment: Assignment) -> tuple[Read, ...]:
        """What a node takes from outside, subgraphs included."""
        return self.compile(node, assignment).reads

    def inner(self, node: ir.Node) -> tuple[ir.Node, ...]:
        """The nodes in a node's subgraphs."""
        if node not in self._inner:
            self._inner[node] = tuple(inner for graph in bodies_of(node) for inner in nodes_in(graph))
        return self._inner[node]

    def compile(self, node: ir.Node, assignment: Assignment) -> Compiled:
        decided = assignment if assignment.formats else (assignment.sites, assignment.io)  # FP32 is often made anew
        if self._current is None or self._current[0] != decided:
            self._current = (decided, {})
        known = self._current[1]
        if node not in known:
            known[node] = self._found(node, assignment)
        return known[node]

    def _found(self, node: ir.Node, assignment: Assignment) -> Compiled:
        within = (node, *self.inner(node))
        reads = (assignment.read(node, slot) for slot in range(len(node.inputs)))
        key = (node, self.emulator.stores(node, assignment), *(assignment.of(n) for n in within), *reads)
        if key not in self._compiled:
            self._compiled[key] = self._compile(node, assignment)
        return self._compiled[key]

    def observe(self, node: ir.Node, store: Store, fmt: Format) -> dict[ir.Value, Counts]:
        """How the FP32 tensors in a node's subgraphs lie in `fmt`; nothing where that cannot be asked."""
        model = store.assignment.sites.model
        if not self.inner(node) or node.op_type not in BODIES or node.domain or model.opset() < OLDEST_OPSET:
            return {}
        proto, unit = self._unit(node, store.assignment)
        feeds = {name: store.read(value, read) for name, value, read in unit.reads}
        self.account(1 + len(self.inner(node)))
        try:
            return observed(node, proto.graph, model.ir.opset_imports, feeds, fmt)
        except InputError:
            return {}

    def _compile(self, node: ir.Node, assignment: Assignment) -> Compiled:
        proto_model, unit = self._unit(node, assignment)
        names = {**{name: value for name, value, _ in unit.reads}, **dict(unit.outputs)}
        with as_in_model(node, names):
            session = self._session(node, proto_model, assignment.sites.model)
        outputs = tuple(value for _, value in unit.outputs)
        names_out = tuple(name for name, _ in unit.outputs)
        return Compiled(session, unit.reads, outputs, names_out, self._device(node, assignment.sites.model))

    def _session(self, node: ir.Node, proto: onnx.ModelProto, model: Model, device: Device | None = None) -> AnySession:
        """One for all nodes of equal content."""
        device = device or self._device(node, model)
        content = proto.SerializeToString(deterministic=True), device
        if content not in self._sessions:
            several = MANY if self.emulator.streams(model) else FEW
            threads = several if node.op_type in _HEAVY else 1
            self._sessions[content] = session_for(proto, threads=threads, device=device)
        return self._sessions[content]

    def _device(self, node: ir.Node, model: Model) -> Device:
        """A GPU takes longer to start a session than a CPU to run one node: it has those that many layers share."""
        product = node.op_type in PRODUCTS and not node.domain and any(map(is_large, node.inputs))
        return self.emulator.device if product and self.emulator.streams(model) else "cpu"

    def _unit(self, node: ir.Node, assignment: Assignment) -> tuple[onnx.ModelProto, RewrittenUnit]:
        """A model of one node."""
        unit = rewrite_unit(assignment, EmulationWriter(self.emulator.profile), node)
        model = assignment.sites.model
        graph = onnx.GraphProto(name="node", node=unit.nodes)
        for proto in graph.node:
            proto.name = ""
            proto.doc_string = ""
        shaped = bool(self.inner(node))  # a body's own outputs may need the shapes around it to be inferred
        for name, value, fmt in unit.reads:  # the runtime's own operators want to know the shapes of their weights
            graph.input.append(declared(name, value, fmt, shaped or (bool(node.domain) and value.is_initializer())))
        for name, value in unit.outputs:
            graph.output.append(declared(name, value, assignment.stored(value), shaped=False))
        proto_model = onnx.ModelProto(ir_version=RUNTIME_IR_VERSION, graph=graph)
        for domain, version in model.ir.opset_imports.items():
            proto_model.opset_import.add(domain=domain, version=version)
        return proto_model, unit

    def _uses(self, graph: ir.Graph, kept: Iterable[ir.Value]) -> dict[ir.Value, int]:
        """How many nodes of a graph need each tensor; what is kept is never dropped."""
        left: dict[ir.Value, int] = {}
        for node in graph:
            for value in node.outputs:
                left[value] = 0
            for value in self.outside(node):
                left[value] = left.get(value, 0) + 1
        for value in kept:
            left.pop(value, None)
        return left

    def _in_order(self, model: Model) -> list[ir.Node]:
        """The nodes of the main graph, those that read weights alone as late as can be."""
        nodes = list(model.graph)
        reads = [self.outside(node) for node in nodes]
        weights = {value for each in reads for value in each if value.is_initializer()}
        return [nodes[number] for number in constants_late(reads, [node.outputs for node in nodes], weights)]

    def outside(self, node: ir.Node) -> frozenset[ir.Value]:
        """Every tensor a node needs, those captured by its subgraphs included."""
        if node not in self._outside:
            needed = {value for value in node.inputs if value is not None}
            for inner in self.inner(node):
                needed.update(value for value in inner.inputs if value is not None)
            for graph in bodies_of(node):
                needed.update(graph.outputs)
            self._outside[node] = frozenset(needed)
        return self._outside[node]

    def _peek(self, store: Store, value: ir.Value | None) -> Array | None:
        return store.read(value, None) if value is not None and value in store else None
