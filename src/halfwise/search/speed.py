"""What an answer is worth in time: the law of a machine, each node's part, and the fastest of the sets that hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import onnx_ir as ir

from halfwise.core.float_sum import float_sum
from halfwise.core.formats import Format
from halfwise.emulation.latency import Latency, Shapes, latency_of
from halfwise.emulation.timing.law import Law
from halfwise.emulation.timing.operation import Operand, Operation
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites

__all__ = ["Speed", "TimeTable", "fastest", "time_table"]

LEAST_GAIN = 0.003  # of the time: less is within what a law can tell
TRIALS = 8  # sets that are measured because they are predicted to be faster
_CAST_SHARE = 0.5  # of a node's casts that it pays itself: neighbours in FP32 share the others
_LEAST = 0.01  # of a launch: what a node costs at least


@dataclass(frozen=True)
class Speed:
    """Predicts the time of decisions as one target runs them; `rule` says which nodes become one kernel."""

    law: Law
    guides: bool = True  # whether sets are chosen by it, or only told
    rule: str = "ort"

    def latency(self, decision: Assignment, shapes: Shapes) -> Latency:
        return latency_of(decision, shapes, self.law, rule=self.rule)


@dataclass(frozen=True, eq=False)
class TimeTable:
    """Microseconds of each node in FP16 and in FP32, and of each tensor's casts: what a set of FP32 nodes takes.

    A kernel's time is shared by its nodes, so that a fusion that a set breaks is told a little too fast.
    """

    nodes: dict[ir.Node, tuple[float, float]]
    tensors: tuple[tuple[ir.Node | None, tuple[ir.Node | None, ...], float], ...]  # maker, readers, a cast's time
    launch: float

    def microseconds(self, keep: frozenset[ir.Node]) -> float:
        total = float_sum(wide if node in keep else narrow for node, (narrow, wide) in self.nodes.items())
        for maker, readers, cast in self.tensors:
            made = maker is None or maker in keep
            total += cast * any((reader is None or reader in keep) is not made for reader in readers)
        return total

    def costs(self) -> dict[ir.Node, float]:
        """What each node costs in FP32 by itself, never nothing."""
        casts = dict.fromkeys(self.nodes, 0.0)
        for maker, readers, cast in self.tensors:
            for node in {maker, *readers}:
                if node is not None:
                    casts[node] += _CAST_SHARE * cast
        least = _LEAST * self.launch
        return {node: max(wide - narrow + casts[node], least) for node, (narrow, wide) in self.nodes.items()}


def time_table(speed: Speed, sites: Sites, shapes: Shapes, io: Format) -> TimeTable:
    decisions = Assignment.all_narrow(sites, io=io), Assignment(sites, {}, io)
    narrow, wide = (_by_node(speed.latency(each, shapes)) for each in decisions)
    nodes = {site.node: (narrow.get(site.name, 0.0), wide.get(site.name, 0.0)) for site in sites.all}
    free = {site.node: site for site in sites.free}
    tensors = []
    for value in dict.fromkeys(v for site in sites.free for v in (*site.node.inputs, *site.node.outputs)):
        if value is None or value.const_value is not None or decisions[1].stored(value) is None:
            continue
        maker = value.producer()
        readers: list[ir.Node | None] = [
            user for user, slot in value.uses() if user in free and free[user].inputs[slot]
        ]
        if value.is_graph_output() and io is Format.FP32:
            readers.append(None)
        shape = shapes.get(value, ())
        cast = speed.law.microseconds(Operation("Cast", (Operand(shape),), (shape,)), "fp16")
        tensors.append((maker if maker in free else None, tuple(dict.fromkeys(readers)), cast))
    return TimeTable(nodes, tuple(tensors), speed.law.roof.launch_us)


def _by_node(latency: Latency) -> dict[str, float]:
    """The time of a kernel in equal parts under each of its nodes, in microseconds."""
    found: dict[str, float] = {}
    for kernel, each in latency.kernels:
        for name in kernel.nodes:
            found[name] = found.get(name, 0.0) + each / len(kernel.nodes)
    return found


def fastest(
    sites: Sites, keep: frozenset[ir.Node], table: TimeTable, holds: Callable[[frozenset[ir.Node]], bool]
) -> frozenset[ir.Node]:
    """From a set that holds to faster ones: FP32 grows where that saves casts, or where FP32 itself is faster.

    All of the model in FP32 is looked at, too.
    """
    free = frozenset(site.node for site in sites.free) - sites.forced
    best = keep
    for trial in range(TRIALS):
        grown = _descended(best, free, table)
        if trial == 0:
            grown = min(grown, free, key=table.microseconds)
        if table.microseconds(grown) >= table.microseconds(best) * (1 - LEAST_GAIN):
            break
        if not holds(grown):  # errors that cancelled no longer do
            break
        best = grown
    return best


def _descended(keep: frozenset[ir.Node], free: frozenset[ir.Node], table: TimeTable) -> frozenset[ir.Node]:
    """The best step after the other, as long as one is faster."""
    best, least = keep, table.microseconds(keep)
    for _ in range(len(free)):
        step = min(_grown(best, free), key=table.microseconds, default=best)
        if table.microseconds(step) >= least:
            break
        best, least = step, table.microseconds(step)
    return best


def _grown(keep: frozenset[ir.Node], free: frozenset[ir.Node]) -> Iterator[frozenset[ir.Node]]:
    """One neighbour more, with one of its own or without; or all neighbours."""
    near = dict.fromkeys(other for node in keep for other in (*node.predecessors(), *node.successors()))
    beside = [node for node in near if node in free and node not in keep]
    for node in beside:
        yield keep | {node}
        for further in (*node.predecessors(), *node.successors()):
            if further in free and further not in keep:
                yield keep | {node, further}
    if len(beside) > 1:
        yield keep | frozenset(beside)
