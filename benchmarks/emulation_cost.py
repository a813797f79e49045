"""What the emulation costs: python -m benchmarks.emulation_cost [--models DIR] [--rounds N].

A run of the all-FP16 emulation against a run of the model as given, same session options; and what another choice of
FP32 nodes costs: a new session, against a graph in which every rounding can be switched by a Where or an If. The
switched graphs do not switch their weights, which favours them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from benchmarks.cases import REAL, Case, load_case, models_folder
from benchmarks.contest import machine, markdown
from halfwise.emulation.emulate import Emulator, emulate
from halfwise.emulation.ort import Session
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites

__all__ = ["Cost", "main", "switchable", "table"]

BUILT = ("encoder", "detr_head", "transformer_24", "transformer_48")
FLAG = "emulation_is_on"
HEAD = ("model", "nodes", "FP32 run", "emulated", "ratio", "new session", "Where run", "If run", "pays after")


@dataclass(frozen=True)
class Cost:
    """Milliseconds, medians."""

    name: str
    nodes: int
    given: float
    emulated: float
    build: float
    where: float
    branch: float

    @property
    def ratio(self) -> float:
        return self.emulated / self.given

    @property
    def pays_after(self) -> float:
        """After how many runs of one choice a new session has cost less than the better switchable graph."""
        extra = min(self.where, self.branch) - self.emulated
        return self.build / extra if extra > 0 else float("inf")


def measure(case: Case, rounds: int) -> Cost:
    """All sides in turn in every round, so that a busy machine hits them alike."""
    loaded = load(case.model)
    sites = Sites(loaded)
    emulator, feed = Emulator(), dict(case.given[0])
    narrow = Assignment.all_narrow(sites)
    whole = emulate(narrow)
    sessions = {
        "given": Session(case.model),
        "emulated": emulator.session(narrow),
        "where": Session(switchable(whole, branch=False)),
        "branch": Session(switchable(whole, branch=True)),
    }
    times: dict[str, list[float]] = {name: [] for name in (*sessions, "build")}
    for index in range(rounds + 1):
        for name, session in sessions.items():
            times[name].append(_milliseconds(lambda session=session: session.run(feed)))  # type: ignore[misc]
        if index < max(3, rounds // 4):
            other = Assignment.all_narrow(sites, frozenset(site.node for site in sites.free[index::7]))
            times["build"].append(_milliseconds(lambda other=other: emulator.session(other)))  # type: ignore[misc]
    medians = {name: statistics.median(values[1:]) for name, values in times.items()}  # the first one warms up
    return Cost(case.name, len(loaded.nodes), **medians)


def switchable(whole: onnx.ModelProto, *, branch: bool) -> onnx.ModelProto:
    """The emulation with every rounding switched by one flag."""
    proto = onnx.ModelProto()
    proto.CopyFrom(whole)
    _switch(proto.graph, branch=branch)
    proto.graph.initializer.append(numpy_helper.from_array(np.array(True), FLAG))
    return proto


def _switch(graph: onnx.GraphProto, *, branch: bool) -> None:
    casts = (n for n in graph.node if n.op_type == "Cast" and not n.name)  # those of the model have a name
    narrow = {n.output[0]: n.input[0] for n in casts if n.output[0].endswith("__narrow")}
    nodes = []
    for node in graph.node:
        nodes.append(node)
        if node.op_type != "Cast" or node.input[0] not in narrow:
            continue
        target, rounded, wide = node.output[0], f"{node.output[0]}__rounded", narrow[node.input[0]]
        if branch:
            arms = [_handing_out(name, f"{target}__{arm}") for name, arm in ((node.input[0], "on"), (wide, "off"))]
            arms[0].node[0].op_type = "Cast"
            arms[0].node[0].attribute.append(helper.make_attribute("to", onnx.TensorProto.FLOAT))
            nodes[-1] = helper.make_node("If", [FLAG], [target], then_branch=arms[0], else_branch=arms[1])
        else:
            node.output[0] = rounded
            nodes.append(helper.make_node("Where", [FLAG, rounded, wide], [target]))
    del graph.node[:]
    graph.node.extend(nodes)


def _handing_out(name: str, inner: str) -> onnx.GraphProto:
    info = helper.make_tensor_value_info(inner, onnx.TensorProto.FLOAT, None)
    return helper.make_graph([helper.make_node("Identity", [name], [inner])], inner, [], [info])


def table(costs: Sequence[Cost]) -> str:
    rows = [
        (
            cost.name,
            str(cost.nodes),
            *(f"{each:.2f}" for each in (cost.given, cost.emulated, cost.ratio, cost.build, cost.where, cost.branch)),
            f"{cost.pays_after:.0f} runs" if cost.pays_after < 1e6 else "never",
        )
        for cost in costs
    ]
    return markdown(HEAD, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=models_folder(), help="folder of real models")
    parser.add_argument("--rounds", type=int, default=20, help="runs of each side")
    options = parser.parse_args(arguments)
    costs = []
    for name in (*BUILT, *REAL):
        case = load_case(name, options.models)
        if case is None:
            print(f"{name}: not there", file=sys.stderr)
            continue
        print(f"{name} ...", file=sys.stderr, flush=True)
        costs.append(measure(case, options.rounds))
    print(f"{machine()}\n\n{table(costs)}\n\nMilliseconds, medians of {options.rounds} rounds.")
    print(f"Median ratio {statistics.median(cost.ratio for cost in costs):.2f}")
    return 0


def _milliseconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e3


if __name__ == "__main__":
    sys.exit(main())
