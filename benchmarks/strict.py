"""Judges a typed FP16/FP32 model honestly: every FP16 tensor is really rounded, nothing is fused; no halfwise in it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

from halfwise.model.held_graphs import held_graphs

__all__ = [
    "Census",
    "Errors",
    "InvalidModel",
    "StrictSession",
    "census",
    "check_valid",
    "draw_alike",
    "judge",
    "rel_l2",
]

Array = NDArray[Any]
Feed = Mapping[str, Array]

_FLOAT = TensorProto.FLOAT
_NARROW = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
_ELEMENTS = {
    "tensor(float)": _FLOAT, "tensor(float16)": TensorProto.FLOAT16, "tensor(bfloat16)": TensorProto.BFLOAT16,
    "tensor(int64)": TensorProto.INT64, "tensor(int32)": TensorProto.INT32, "tensor(bool)": TensorProto.BOOL,
    "tensor(uint8)": TensorProto.UINT8, "tensor(int8)": TensorProto.INT8, "tensor(double)": TensorProto.DOUBLE,
}  # fmt: skip
_TYPE_ATTRIBUTES = ("dtype", "output_dtype")
EQUAL_INTEGERS = 0.999  # share of an integer output that must agree


def _words(text: str) -> list[str]:
    return text.split()


# What only hands values on; a Cast is no node of the model here, because each tool adds its own.
_MOVES = frozenset(
    _words(
        """Identity Reshape Transpose Squeeze Unsqueeze Flatten Slice Split Concat Gather GatherElements GatherND
        Expand Tile Pad DepthToSpace SpaceToDepth ReverseSequence ScatterElements ScatterND Scatter ConstantOfShape
        Trilu Compress Where OneHot EyeLike Dropout"""
    )
)
_RANDOM = frozenset(_words("RandomNormal RandomNormalLike RandomUniform RandomUniformLike Multinomial Bernoulli"))
_UNCOUNTED = frozenset(_words("Cast CastLike Constant Shape Size If Loop Scan"))


class InvalidModel(Exception):
    """The model given does not follow ONNX's rules, or a tensor's type cannot be told."""


@dataclass(frozen=True)
class Census:
    """Nodes of a typed model that work in FP32: all of them, and those that compute rather than move data."""

    fp32: int
    fp32_compute: int


@dataclass(frozen=True)
class Errors:
    """Of a typed model against the FP32 one: the worst rel_l2 over float outputs and inputs (inf where a value is not
    finite), and the smallest share of equal places over the other outputs."""

    rel_l2: float
    equal: float

    def met(self, tolerance: float) -> bool:
        return self.rel_l2 <= tolerance and self.equal >= EQUAL_INTEGERS


class StrictSession:
    """A typed model run on FP32 carriers: behind each tensor that it types FP16 (or BF16) stands a pair of Casts.

    Each node computes in FP32 from rounded inputs and its results are rounded, as a kernel that accumulates in FP32
    does. An FP32 model runs as it is.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        typed = _with_types(model)
        self._narrow_inputs = {
            value.name: value.type.tensor_type.elem_type
            for value in typed.graph.input
            if value.type.tensor_type.elem_type in _NARROW
        }
        _carry(typed.graph, {})
        draw_alike(typed.graph)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.enable_mem_reuse = False  # its search for buffers grows with the square of the nodes
        options.log_severity_level = 4
        self._session = onnxruntime.InferenceSession(
            typed.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self.input_names = [value.name for value in self._session.get_inputs()]
        self.output_names = [value.name for value in self._session.get_outputs()]

    def run(self, feed: Feed) -> list[Array]:
        given = {name: self._as_input(name, feed[name]) for name in self.input_names}
        return list(self._session.run(self.output_names, given))

    def _as_input(self, name: str, array: Array) -> Array:
        if name not in self._narrow_inputs:
            return array
        narrow = helper.tensor_dtype_to_np_dtype(self._narrow_inputs[name])
        with np.errstate(over="ignore"):
            return array.astype(narrow).astype(np.float32)


def draw_alike(graph: onnx.GraphProto) -> bool:
    """Seed what draws random numbers by its name, in every model alike; whether anything does."""
    random = [node for node in graph.node if node.op_type in _RANDOM and not node.domain]
    for node in random:
        if all(attribute.name != "seed" for attribute in node.attribute):
            name = node.name or f"node_of_{node.output[0]}"  # as a model is written whose nodes had no names
            node.attribute.append(helper.make_attribute("seed", float(sum(name.encode()))))
    return bool(random)


def judge(fp32: onnx.ModelProto, typed: onnx.ModelProto, feeds: Sequence[Feed]) -> Errors:
    """The error of `typed` against `fp32` over all feeds; `InvalidModel` where `typed` is not even a model."""
    check_valid(typed)
    wanted, got = StrictSession(fp32), StrictSession(typed)
    worst, equal = 0.0, 1.0
    for feed in feeds:
        answers = dict(zip(got.output_names, got.run(feed), strict=True))
        for name, reference in zip(wanted.output_names, wanted.run(feed), strict=True):
            answer = answers[name]
            if reference.shape != answer.shape:
                worst = math.inf
            elif reference.dtype.kind == "f":
                worst = max(worst, rel_l2(reference, answer))
            else:
                equal = min(equal, float(np.mean(reference == answer)))
    return Errors(worst, equal)


def rel_l2(reference: Array, answer: Array) -> float:
    """Norm of the difference over the norm of the reference; inf for a value that is not finite where FP32's is."""
    agree = (np.isnan(reference) & np.isnan(answer)) | (np.isinf(reference) & (reference == answer))
    wide, other = reference.astype(np.float64)[~agree], answer.astype(np.float64)[~agree]
    if not (np.isfinite(wide).all() and np.isfinite(other).all()):
        return math.inf
    difference, norm = float(np.linalg.norm(other - wide)), float(np.linalg.norm(wide))
    if difference == 0:
        return 0.0
    return difference / norm if norm > 0 else math.inf


def check_valid(model: onnx.ModelProto) -> None:
    """ONNX's own checker and type inference, then ONNX Runtime's loader: what a user would meet next.

    The loader's CPU has few kernels for BF16: one that it lacks, of a model that holds BF16, is no fault of the model.
    """
    try:
        onnx.checker.check_model(model, full_check=True)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.enable_mem_reuse = False
        options.log_severity_level = 4
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except NoKernel as error:
        if not _holds_bf16(model):
            raise InvalidModel(" ".join(str(error).split())[:200]) from error
    except Exception as error:
        raise InvalidModel(" ".join(str(error).split())[:200]) from error


def _holds_bf16(model: onnx.ModelProto) -> bool:
    return TensorProto.BFLOAT16 in _kinds(_with_types(model).graph).values()


def census(model: onnx.ModelProto) -> Census:
    """Count the nodes of a typed model, bodies included, that read or write FP32 values."""
    found = list(_fp32_nodes(_with_types(model).graph, {}))
    return Census(len(found), sum(node.op_type not in _MOVES or bool(node.domain) for node in found))


def _fp32_nodes(graph: onnx.GraphProto, outer: Mapping[str, int]) -> Iterator[onnx.NodeProto]:
    kinds = {**outer, **_kinds(graph)}
    for node in graph.node:
        for body in held_graphs(node):
            yield from _fp32_nodes(body, kinds)
        if node.op_type in _UNCOUNTED and not node.domain:
            continue
        made = {kinds.get(name) for name in node.output if name}
        read = {kinds.get(name) for name in node.input if name}
        floats = made & {_FLOAT, *_NARROW}
        if _FLOAT in made or (not floats and _FLOAT in read and not read & set(_NARROW)):
            yield node


# -- types ------------------------------------------------------------------------------------------------------------


def _with_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy without functions, whose every tensor has a type of its own finding, not one that a tool left there."""
    copy = onnx.inliner.inline_local_functions(model) if model.functions else onnx.ModelProto()
    if not model.functions:
        copy.CopyFrom(model)
    _forget_types(copy.graph)
    try:
        found = onnx.shape_inference.infer_shapes(copy, check_type=True, strict_mode=True)
    except Exception as error:
        raise InvalidModel(" ".join(str(error).split())[:200]) from error
    return _with_types_of_the_runtime(found) if any(node.domain for node in found.graph.node) else found


def _with_types_of_the_runtime(model: onnx.ModelProto) -> onnx.ModelProto:
    """Behind operators that only ONNX Runtime knows, the types are what it says of them."""
    known = _kinds(model.graph)
    untold = [name for node in model.graph.node for name in node.output if name and name not in known]
    if not untold:
        return model
    asked = onnx.ModelProto()
    asked.CopyFrom(model)
    asked.graph.output.extend(onnx.ValueInfoProto(name=name) for name in untold)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(asked.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise InvalidModel(" ".join(str(error).split())[:200]) from error
    kinds = {value.name: _ELEMENTS.get(value.type) for value in session.get_outputs()}
    told = (helper.make_tensor_value_info(name, kind, None) for name in untold if (kind := kinds[name]) is not None)
    model.graph.value_info.extend(told)
    return model


def _forget_types(graph: onnx.GraphProto) -> None:
    del graph.value_info[:]
    for node in graph.node:
        for body in held_graphs(node):
            _forget_types(body)


def _kinds(graph: onnx.GraphProto) -> dict[str, int]:
    """The element type of every tensor of a graph; 0 for what is no tensor."""
    kinds = {value.name: value.type.tensor_type.elem_type for value in (*graph.value_info, *graph.input, *graph.output)}
    kinds.update((tensor.name, tensor.data_type) for tensor in graph.initializer)
    return kinds


# -- carriers ---------------------------------------------------------------------------------------------------------


def _carry(graph: onnx.GraphProto, outer: Mapping[str, int]) -> None:
    """Turn a typed graph into one of FP32 tensors that hold only values of the type each had."""
    kinds = {**outer, **_kinds(graph)}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for body in held_graphs(node):
            _carry(body, kinds)
        _widen_attributes(node)
        nodes.append(node)
        for slot, name in enumerate(node.output):
            if not name:
                continue
            if name not in kinds:
                raise InvalidModel(f"the type of {name!r} cannot be told")
            if kinds[name] in _NARROW:
                nodes += _rounded(node, slot, kinds[name])
    del graph.node[:]
    graph.node.extend(nodes)
    for tensor in graph.initializer:
        _widen(tensor)
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type in _NARROW:
            value.type.tensor_type.elem_type = _FLOAT
    del graph.value_info[:]


def _rounded(node: onnx.NodeProto, slot: int, kind: int) -> list[onnx.NodeProto]:
    """The Casts behind one output of a node; a Cast to the narrow type is the first of them itself."""
    name = node.output[slot]
    half = f"{name}::half"
    back = helper.make_node("Cast", [half], [name], to=_FLOAT)
    if node.op_type == "Cast" and not node.domain:
        node.output[slot] = half
        return [back]
    node.output[slot] = f"{name}::exact"
    return [helper.make_node("Cast", [node.output[slot]], [half], to=kind), back]


def _widen_attributes(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.TENSOR:
            _widen(attribute.t)
        elif attribute.name in _TYPE_ATTRIBUTES and attribute.i in _NARROW:
            attribute.i = _FLOAT


def _widen(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in _NARROW:
        wide = numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))
