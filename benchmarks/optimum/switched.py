"""One model in which every node's precision is an input: any set of FP32 nodes is one fast run.

A node in FP16 reads its inputs rounded and rounds its outputs, as the `strict` profile says; under `wide`, what no
kernel has to store is not rounded between two of them. A test compares both with the emulator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from benchmarks.optimum.graphs import Problem
from halfwise.emulation.profiles.wide import unstored
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.unseen_bound import bound_for_unseen

__all__ = ["Switched"]

_FLAG = "narrow_"


class Switched:
    """Error over allowed error of every sample, for any set of nodes in FP16. `feeds` are the problem's own if none
    are given."""

    def __init__(
        self, problem: Problem, sites: Sites, *, wide: bool = False, feeds: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        self.names = [site.name for site in sites.free]
        inside = unstored(Assignment.all_narrow(sites, frozenset())) if wide else frozenset()
        makers = {value.name: value.producer().name for value in inside}  # type: ignore[union-attr]
        slots = {site.name: (site.inputs, site.outputs) for site in sites.free}
        nodes: list[onnx.NodeProto] = []
        weights = {each.name: numpy_helper.to_array(each) for each in problem.model.graph.initializer}
        narrow_weights: list[onnx.TensorProto] = []
        for node in problem.model.graph.node:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            ins, outs = slots.get(node.name, ((), ()))
            for slot, narrow in enumerate(ins):
                if narrow:
                    value, made = node.input[slot], f"{node.name}_in{slot}"
                    if value in weights:  # stored within FP16's range
                        stored = np.clip(weights[value], -65504.0, 65504.0).astype(np.float16).astype(np.float32)
                        narrow_weights.append(numpy_helper.from_array(stored, f"{made}_stored"))
                        nodes.append(helper.make_node("Where", [_FLAG + node.name, f"{made}_stored", value], [made]))
                        copy.input[slot] = made
                    elif value in makers:
                        copy.input[slot] = _round(nodes, value, _apart(nodes, node.name, makers[value], made), made)
                    else:
                        copy.input[slot] = _round(nodes, value, _FLAG + node.name, made)
            rounded = [slot for slot, narrow in enumerate(outs) if narrow and node.output[slot] not in makers]
            for slot in rounded:
                copy.output[slot] = f"{node.output[slot]}_wide"
            nodes.append(copy)
            for slot in rounded:
                _round(nodes, copy.output[slot], _FLAG + node.name, node.output[slot])
        graph = onnx.GraphProto()
        graph.CopyFrom(problem.model.graph)
        del graph.node[:], graph.value_info[:]
        graph.node.extend(nodes)
        graph.initializer.extend(narrow_weights)
        graph.input.extend(helper.make_tensor_value_info(_FLAG + name, TensorProto.BOOL, [1]) for name in self.names)
        model = helper.make_model(graph, opset_imports=problem.model.opset_import, ir_version=8)
        settings = ort.SessionOptions()
        settings.intra_op_num_threads = 1
        settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        settings.log_severity_level = 4
        self.session = ort.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
        self.batch = {"x": np.concatenate([feed["x"] for feed in feeds or problem.feeds])}
        self.right = self.outputs(0)
        self.runs = 0

    def outputs(self, narrow: int) -> np.ndarray:
        flags = {_FLAG + name: np.array([bool(narrow >> place & 1)]) for place, name in enumerate(self.names)}
        found: np.ndarray = self.session.run(None, {**self.batch, **flags})[0]
        return found

    def errors(self, narrow: int) -> np.ndarray:
        """Of each sample, relative in L2; infinite where it is not finite."""
        self.runs += 1
        with np.errstate(all="ignore"):
            apart = (self.outputs(narrow).astype(np.float64) - self.right).reshape(len(self.right), -1)
            right = self.right.astype(np.float64).reshape(len(self.right), -1)
            found = np.sqrt((apart**2).sum(1) / np.maximum((right**2).sum(1), 1e-300))
        return np.where(np.isfinite(found), found, np.inf)

    def bound(self, narrow: int, tolerance: float) -> float:
        """What halfwise asks of the samples it searches: the ratio to expect of one that was not given."""
        return bound_for_unseen([float(each) for each in self.errors(narrow) / tolerance])

    def mask(self, wide: Sequence[str]) -> int:
        """All nodes in FP16 but these."""
        kept = set(wide)
        return sum(1 << place for place, name in enumerate(self.names) if name not in kept)


def _apart(nodes: list[onnx.NodeProto], reader: str, maker: str | None, made: str) -> str:
    """Whether the reader is in FP16 and the maker is not."""
    nodes.append(helper.make_node("Not", [f"{_FLAG}{maker}"], [f"{made}_from_wide"]))
    nodes.append(helper.make_node("And", [_FLAG + reader, f"{made}_from_wide"], [f"{made}_apart"]))
    return f"{made}_apart"


def _round(nodes: list[onnx.NodeProto], value: str, flag: str, result: str) -> str:
    nodes.append(helper.make_node("Cast", [value], [f"{result}_half"], to=TensorProto.FLOAT16))
    nodes.append(helper.make_node("Cast", [f"{result}_half"], [f"{result}_back"], to=TensorProto.FLOAT))
    nodes.append(helper.make_node("Where", [flag, f"{result}_back", value], [result]))
    return result
