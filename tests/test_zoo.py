"""The zoo's models are what they claim: valid, healthy in FP32, and failing (or not) when every tensor is FP16."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.inliner
import onnxruntime
import pytest
from benchmarks.zoo import ZooModel, detr_head, encoder, transformer
from onnx import TensorProto, helper, numpy_helper

_FP16_MAX = 65504.0
_FLOAT = TensorProto.FLOAT


class StrictRounding:
    """Rewrites a model so that each float edge passes through FP16 unless both of its ends are FP32.

    Graph inputs and initializers count as FP32 producers, graph outputs as FP32 consumers. Bodies of If, Loop and Scan
    are rounded throughout. `clamp` rounds initializers as TensorRT does: finite values never become infinite.
    """

    def __init__(self, model: onnx.ModelProto, fp32: Iterable[str] = (), clamp: bool = False) -> None:
        self._model = onnx.inliner.inline_local_functions(model) if model.functions else copy.deepcopy(model)
        self._fp32 = set(fp32)
        self._clamp = clamp

    def model(self) -> onnx.ModelProto:
        inferred = onnx.shape_inference.infer_shapes(self._model, strict_mode=True)
        unknown = self._fp32 - {node.name for node in inferred.graph.node}
        assert not unknown, f"no such nodes: {sorted(unknown)}"
        self._round_graph(inferred.graph, {}, is_body=False)
        return inferred

    def _round_graph(self, graph: onnx.GraphProto, outer: dict[str, str], is_body: bool) -> None:
        kinds = {value.name: value.type.tensor_type.elem_type for value in [*graph.value_info, *graph.output]}
        rounded = dict(outer)
        exact: set[str] = set()
        nodes: list[onnx.NodeProto] = []
        for source in graph.input:
            if source.type.tensor_type.elem_type == _FLOAT:
                self._add_rounding(nodes, rounded, source.name)
                if not is_body:
                    exact.add(source.name)
        for initializer in list(graph.initializer):
            if initializer.data_type == _FLOAT:
                values = _to_fp16(numpy_helper.to_array(initializer), self._clamp)
                graph.initializer.append(numpy_helper.from_array(values, f"{initializer.name}::fp16"))
                rounded[initializer.name] = f"{initializer.name}::fp16"
                exact.add(initializer.name)
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    self._round_graph(attribute.g, rounded, is_body=True)
            wide = node.name in self._fp32
            for index, name in enumerate(node.input):
                if name in rounded and not (wide and name in exact):
                    node.input[index] = rounded[name]
            nodes.append(node)
            for name in node.output:
                if kinds.get(name) == _FLOAT:
                    self._add_rounding(nodes, rounded, name)
                    if wide:
                        exact.add(name)
        for output in graph.output:
            if output.name in rounded and output.name not in exact:
                output.name = rounded[output.name]
        del graph.node[:]
        graph.node.extend(nodes)

    def _add_rounding(self, nodes: list[onnx.NodeProto], rounded: dict[str, str], name: str) -> None:
        half, back = f"{name}::half", f"{name}::fp16"
        nodes.append(helper.make_node("Cast", [name], [half], name=half, to=TensorProto.FLOAT16))
        nodes.append(helper.make_node("Cast", [half], [back], name=back, to=_FLOAT))
        rounded[name] = back


def _to_fp16(values: npt.NDArray[np.float32], clamp: bool) -> npt.NDArray[np.float32]:
    if clamp:
        values = np.where(np.isfinite(values), np.clip(values, -_FP16_MAX, _FP16_MAX), values)
    with np.errstate(over="ignore"):
        return values.astype(np.float16).astype(np.float32)


def run(model: onnx.ModelProto, feeds: dict[str, npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    return session(model).run(None, feeds)


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def errors(zoo: ZooModel, fp32: Iterable[str] = (), clamp: bool = False) -> dict[str, list[float]]:
    """Per output, its error on each input: rel_l2 for floats (inf if not finite), else the share that differs."""
    exact, half = session(zoo.model), session(StrictRounding(zoo.model, fp32, clamp).model())
    result: dict[str, list[float]] = {output.name: [] for output in zoo.model.graph.output}
    for feed in zoo.inputs:
        for name, wanted, got in zip(result, exact.run(None, feed), half.run(None, feed), strict=True):
            result[name].append(_error(wanted, got))
    return result


def _error(wanted: npt.NDArray[Any], got: npt.NDArray[Any]) -> float:
    if not np.issubdtype(wanted.dtype, np.floating):
        return float(np.mean(wanted != got))
    if not np.all(np.isfinite(got.astype(np.float64))):
        return float("inf")
    reference = wanted.astype(np.float64)
    return float(np.linalg.norm(got.astype(np.float64) - reference) / np.linalg.norm(reference))


def worst(zoo: ZooModel, fp32: Iterable[str] = (), clamp: bool = False) -> float:
    return max(max(values) for values in errors(zoo, fp32, clamp).values())


def best_of_the_worst_outputs(zoo: ZooModel, clamp: bool = False) -> float:
    """The error that every input shows on at least one output."""
    return min(max(values) for values in zip(*errors(zoo, (), clamp).values(), strict=True))


@pytest.mark.parametrize(
    ("build", "nodes"),
    [(encoder, 305), (partial(transformer, 6), 379), (partial(transformer, 24), 1477), (detr_head, 169)],
)
def test_node_counts_are_those_of_the_benchmark(build: Callable[[], ZooModel], nodes: int) -> None:
    names = [node.name for node in build().model.graph.node]
    assert len(names) == nodes
    assert len(set(names)) == nodes


def test_the_deepest_transformer_has_2941_nodes() -> None:
    assert len(transformer(48).model.graph.node) == 2941


def test_22_nodes_mend_the_encoder_and_each_is_needed() -> None:
    zoo = encoder()
    assert len(zoo.known_good) == 22
    assert best_of_the_worst_outputs(zoo) > 0.5
    assert worst(zoo, zoo.known_good) < 0.003
    for layer in ("/layers.1/norm1", "/norm"):
        for op in ("Pow", "ReduceMean_1"):
            assert worst(zoo, set(zoo.known_good) - {f"{layer}/{op}"}) > zoo.tolerance


def test_the_encoder_overflows_in_pow_only() -> None:
    zoo = encoder()
    pows = [name.removesuffix("/Pow") for name in zoo.known_good if name.endswith("/Pow")]
    model = copy.deepcopy(zoo.model)
    for norm in pows:
        for op in ("Pow", "ReduceMean_1"):
            model.graph.output.append(helper.make_tensor_value_info(f"{norm}/{op}_output_0", _FLOAT, None))
    squares_and_means = session(model).run(None, zoo.inputs[0])[1:]
    assert all(square.max(axis=-1).min() > _FP16_MAX for square in squares_and_means[::2])
    assert all(mean.max() < _FP16_MAX / 2 for mean in squares_and_means[1::2])


def test_the_encoder_without_overflow_is_healthy() -> None:
    assert worst(encoder(overflow=False)) < 0.003


def test_20_nodes_mend_the_detr_head_and_each_is_needed() -> None:
    zoo = detr_head()
    assert len(zoo.known_good) == 20
    assert best_of_the_worst_outputs(zoo) > 2 * zoo.tolerance
    assert worst(zoo, zoo.known_good) < zoo.tolerance
    for name in zoo.known_good:
        assert worst(zoo, set(zoo.known_good) - {name}) > zoo.tolerance


@pytest.mark.parametrize("layers", [6, 24])
def test_pow_and_mean_mend_the_transformer(layers: int) -> None:
    zoo = transformer(layers)
    assert best_of_the_worst_outputs(zoo) > 0.5
    assert worst(zoo, zoo.known_good) < zoo.tolerance
