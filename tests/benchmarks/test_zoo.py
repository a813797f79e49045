"""The zoo's models are what they claim: valid, healthy in FP32, and failing (or not) when every tensor is FP16."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx
import onnx.inliner
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.models.zoo import SHAPES, ZooModel, cnn_tiny_weights, detr_head, encoder, norm_log_head, transformer
from tests.models.zoo.graph_writer import GraphWriter

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
            for name in filter(None, node.output):
                assert kinds.get(name), f"the type of {name} is not known, so nobody can say whether it is rounded"
                if kinds[name] == _FLOAT:
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


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = 1  # others wait for one another at length over tensors as small as these
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


class Judged:
    """A model of the zoo and its answers in FP32."""

    def __init__(self, zoo: ZooModel) -> None:
        self.zoo = zoo
        exact = session(zoo.model)
        self.answers = [exact.run(None, feed) for feed in zoo.inputs]

    def errors(self, fp32: Iterable[str] = (), clamp: bool = False) -> dict[str, list[float]]:
        """Per output, its error on each input: rel_l2 for floats (inf if not finite), else the share that differs."""
        half = session(StrictRounding(self.zoo.model, fp32, clamp).model())
        result: dict[str, list[float]] = {output.name: [] for output in self.zoo.model.graph.output}
        for feed, answer in zip(self.zoo.inputs, self.answers, strict=True):
            for name, wanted, got in zip(result, answer, half.run(None, feed), strict=True):
                result[name].append(_error(wanted, got))
        return result

    def worst(self, fp32: Iterable[str] = (), clamp: bool = False) -> float:
        return max(max(values) for values in self.errors(fp32, clamp).values())

    def best_of_the_worst_outputs(self, clamp: bool = False) -> float:
        """The error that every input shows on at least one output."""
        by_output = np.array(list(self.errors((), clamp).values()))
        return float(by_output.max(axis=0).min())


def _error(wanted: npt.NDArray[Any], got: npt.NDArray[Any]) -> float:
    if not np.issubdtype(wanted.dtype, np.floating):
        return float(np.mean(wanted != got))
    reference, answer = wanted.astype(np.float64), got.astype(np.float64)
    if not np.isfinite(answer).all():
        return float("inf")
    return float(np.linalg.norm(answer - reference) / np.linalg.norm(reference))


BUILDERS: dict[str, Callable[[], ZooModel]] = {
    "encoder": encoder,
    "encoder_healthy": partial(encoder, overflow=False),
    "transformer_6": partial(transformer, 6),
    "detr_head": detr_head,
    "cnn_tiny_tensors": partial(cnn_tiny_weights, "tensors"),
    "cnn_tiny_channels": partial(cnn_tiny_weights, "channels"),
    "norm_log_head": norm_log_head,
    **SHAPES,
}


# Their culprits sit in a body or a function, which no name in the main graph reaches.
FAIL_INSIDE = {"if_with_norms", "loop_with_float_state", "scan_with_energy", "local_function"}


@pytest.fixture(params=list(BUILDERS), scope="module")
def judged(request: pytest.FixtureRequest) -> Judged:
    return Judged(BUILDERS[request.param]())


@pytest.fixture
def zoo(judged: Judged) -> ZooModel:
    return judged.zoo


def all_nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    bodies = [attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")]
    return [*graph.node, *(node for body in bodies for node in all_nodes(body))]


@pytest.mark.parametrize("fp32", [(), ("/Exp",), ("/Mul",), ("/Mul", "/Exp"), ("/Mul", "/Exp", "/Add")])
def test_the_strict_rounding_used_here_agrees_with_numpy(fp32: tuple[str, ...]) -> None:
    writer = GraphWriter("chain")
    x = writer.input("x", [5])
    factor, offset = writer.weight("factor", 1.0001), writer.weight("offset", 70000.0)
    product = writer.op("Mul", [x, factor], "")
    power = writer.op("Exp", [product], "")
    writer.output(writer.op("Add", [power, offset], ""), "y", [5])
    values = np.array([0.1, -20.0, 11.0, 3.3333333, -3e-8], np.float32)
    zoo = ZooModel("chain", writer.model(), [{"x": values}], 0.01)

    def edge(tensor: npt.NDArray[np.float32], *ends: str) -> npt.NDArray[np.float32]:
        return tensor if set(ends) <= set(fp32) else tensor.astype(np.float16).astype(np.float32)

    with np.errstate(over="ignore"):
        scaled = edge(values, "/Mul") * edge(np.array([1.0001], np.float32), "/Mul")
        wanted = np.exp(edge(scaled, "/Mul", "/Exp"))
        wanted = edge(edge(wanted, "/Exp", "/Add") + edge(np.array([70000.0], np.float32), "/Add"), "/Add")
    got = session(StrictRounding(zoo.model, fp32).model()).run(None, zoo.inputs[0])[0]
    np.testing.assert_allclose(got, wanted, rtol=2e-7 if "/Add" in fp32 else 0)


def test_models_are_valid_and_their_nodes_have_unique_names(zoo: ZooModel) -> None:
    onnx.checker.check_model(zoo.model, full_check=True)
    names = [node.name for node in all_nodes(zoo.model.graph)]
    assert all(name.startswith("/") for name in names)
    assert len(set(names)) == len(names)


def test_fp32_is_healthy_and_depends_on_the_inputs(judged: Judged) -> None:
    zoo = judged.zoo
    assert len(zoo.inputs) >= 8
    for position, output in enumerate(zoo.model.graph.output):
        results = [answer[position] for answer in judged.answers]
        if not np.issubdtype(results[0].dtype, np.floating):
            continue
        assert all(np.isfinite(result).all() for result in results), output.name
        assert all(result.std() > 0.02 for result in results), output.name
        for left, right in pairwise(results):
            assert np.linalg.norm(left - right) > 0.02 * np.linalg.norm(left), output.name


@pytest.mark.parametrize("clamp", [False, True], ids=["unclamped", "clamped"])
def test_fp16_throughout_fails_on_every_input_or_on_none(judged: Judged, clamp: bool) -> None:
    if judged.zoo.fails:
        assert judged.best_of_the_worst_outputs(clamp) > judged.zoo.tolerance
    else:
        assert judged.worst((), clamp) < judged.zoo.tolerance / 2


def test_known_good_nodes_mend_the_model(judged: Judged) -> None:
    zoo = judged.zoo
    if zoo.name in FAIL_INSIDE:
        assert zoo.known_good == ()
        return
    for clamp in (False, True):
        assert judged.worst(zoo.known_good, clamp) < zoo.tolerance


@pytest.mark.parametrize("name", SHAPES)
def test_each_known_good_node_of_a_shape_is_needed(name: str) -> None:
    zoo = SHAPES[name]()
    judged = Judged(zoo)
    for node in zoo.known_good:
        assert judged.worst(set(zoo.known_good) - {node}) > zoo.tolerance, node


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_are_small_and_carry_their_name(name: str) -> None:
    zoo = SHAPES[name]()
    assert zoo.name == name
    steps = [*all_nodes(zoo.model.graph), *(node for function in zoo.model.functions for node in function.node)]
    assert 5 <= len(steps) <= 30


@pytest.mark.parametrize("name", BUILDERS)
def test_two_builds_are_equal_to_the_byte(name: str) -> None:
    first, second = BUILDERS[name](), BUILDERS[name]()
    assert first.model.SerializeToString(deterministic=True) == second.model.SerializeToString(deterministic=True)
    assert first.known_good == second.known_good
    for left, right in zip(first.inputs, second.inputs, strict=True):
        assert left.keys() == right.keys()
        assert all(np.array_equal(left[key], right[key]) for key in left)


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
    judged = Judged(zoo)
    assert len(zoo.known_good) == 22
    assert judged.best_of_the_worst_outputs() > 0.5
    assert judged.worst(zoo.known_good) < 0.003
    for layer in ("/layers.1/norm1", "/norm"):
        for op in ("Pow", "ReduceMean_1"):
            assert judged.worst(set(zoo.known_good) - {f"{layer}/{op}"}) > zoo.tolerance


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


def test_20_nodes_mend_the_detr_head_and_each_is_needed() -> None:
    zoo = detr_head()
    judged = Judged(zoo)
    assert len(zoo.known_good) == 20
    assert judged.best_of_the_worst_outputs() > 2 * zoo.tolerance
    assert judged.worst(zoo.known_good) < zoo.tolerance
    for name in zoo.known_good:
        assert judged.worst(set(zoo.known_good) - {name}) > zoo.tolerance


@pytest.mark.parametrize("layers", [6, 24])
def test_pow_and_mean_mend_the_transformer(layers: int) -> None:
    zoo = transformer(layers)
    judged = Judged(zoo)
    assert judged.best_of_the_worst_outputs() > 0.5
    assert judged.worst(zoo.known_good) < zoo.tolerance


@pytest.mark.parametrize("kind", ["tensors", "channels"])
def test_three_convolutions_mend_the_cnn_and_nothing_overflows(kind: Literal["tensors", "channels"]) -> None:
    zoo = cnn_tiny_weights(kind)
    judged = Judged(zoo)
    assert [name.rsplit("/", 1)[1] for name in zoo.known_good] == ["Conv"] * 3
    for name in zoo.known_good:
        assert judged.worst(set(zoo.known_good) - {name}) > zoo.tolerance
    model = copy.deepcopy(zoo.model)
    loud = [f"/stages.{stage}/amplify/Relu_output_0" for stage in range(3)]
    model.graph.output.extend(helper.make_tensor_value_info(name, _FLOAT, None) for name in loud)
    peaks = [result.max() for result in session(model).run(None, zoo.inputs[-1])[1:]]
    assert all(1e4 < peak < _FP16_MAX for peak in peaks)


def test_the_heads_outputs_fail_each_for_itself() -> None:
    assert all(min(values) > 0.01 for values in Judged(norm_log_head()).errors().values())
