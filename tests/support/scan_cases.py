"""Small graphs that are scanned, and the findings by their rules."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from halfwise.core.finding import Finding
from halfwise.model.model import load
from halfwise.verbs.scan import ScanResult, scan
from tests.models.numbered_graph import NumberedGraph


class Graph(NumberedGraph):
    """A writer with constants that name themselves, scanned when it is done."""

    def scanned(self, y: str, shape: list[int | str], elem_type: int = TensorProto.FLOAT) -> ScanResult:
        self.output(y, "y", shape, elem_type)
        return scan(load(self.model(self.opset)))


def rules(result: ScanResult) -> list[str]:
    """The rules of what was found, but for the summary of the weights."""
    return [finding.rule for finding in result.findings if finding.rule != "HW101"]


def of(result: ScanResult, rule: str) -> Finding:
    (found,) = (finding for finding in result.findings if finding.rule == rule)
    return found


def linear(weight: npt.ArrayLike) -> ScanResult:
    """x @ weight"""
    graph = Graph()
    array = np.asarray(weight, dtype=np.float32)
    x = graph.input("x", [2, array.shape[0]])
    return graph.scanned(graph.op("MatMul", [x, graph.weight("weight", array)], ""), [2, array.shape[1]])
