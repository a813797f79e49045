"""Runs a model with ONNX Runtime, on the CPU unless told otherwise: no fusion, no rewriting, weights by memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from halfwise.core.child.black_box import Fatal, guarded, native_call
from halfwise.core.errors import HalfwiseError, InputError, MissingBackend
from halfwise.core.put_off import Later
from halfwise.core.thread_room import room_for
from halfwise.emulation.arena import use_arena
from halfwise.emulation.culprit import culprit
from halfwise.emulation.four_bits import FOUR_BITS, array_of, value_of
from halfwise.emulation.given_weights import hand_over
from halfwise.emulation.runtime_words import NO_THREAD, runtime_reason
from halfwise.emulation.stamp import RUNTIME_IR_VERSION, stamped
from halfwise.model.held_graphs import held_graphs
from halfwise.model.proto_file import check_rank
from halfwise.model.random_draws import has_draws

if TYPE_CHECKING:
    import onnxruntime as ort
else:
    ort = Later("onnxruntime")  # it starts a thread, and a process with threads is not forked

__all__ = ["FEW", "MANY", "RUNTIME_IR_VERSION", "Answer", "AnySession", "Device", "Session", "check_casts", "upload"]

Array = NDArray[Any]
Answer = dict[str, Array] | Exception
Device = Literal["cpu", "cuda"]

# Threads of a session, never as many as the machine has, for the last bits of a product hang on how many share it.
FEW, MANY = 2, 8

_LOADING, _RUNNING = "loading a model in ONNX Runtime", "running a model in ONNX Runtime"
_CUDA = "CUDAExecutionProvider"
_BY_BITS = {  # what the runtime hands out as bytes and takes as bytes, if it is told what they are
    "tensor(float8e4m3fn)": onnx.TensorProto.FLOAT8E4M3FN,
    "tensor(float8e4m3fnuz)": onnx.TensorProto.FLOAT8E4M3FNUZ,
    "tensor(float8e5m2)": onnx.TensorProto.FLOAT8E5M2,
    "tensor(float8e5m2fnuz)": onnx.TensorProto.FLOAT8E5M2FNUZ,
}
_CUDA_OPTIONS = {"use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC", "arena_extend_strategy": "kSameAsRequested"}


class AnySession(Protocol):
    """A model, ready to run, wherever its parts run."""

    input_names: tuple[str, ...]
    output_names: tuple[str, ...]

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str] | None = None) -> dict[str, Array]:
        """Outputs by name."""
        ...

    def answers(self, feeds: Sequence[Mapping[str, Array]]) -> Iterator[Answer]:
        """The outputs of each input, or why it has none, in their order."""
        ...


@cache
def _prepare_cuda() -> None:
    """Refuse where there is no GPU to run on, before anything is started there."""
    from halfwise.emulation.cuda_driver import gpu_here

    if _CUDA not in ort.get_available_providers():
        raise MissingBackend(
            f"--device cuda: ONNX Runtime {ort.__version__} as installed here has no CUDA provider: "
            "pip install 'halfwise[gpu]' && pip install --force-reinstall --no-deps onnxruntime-gpu"
        )
    gpu_here()
    if hasattr(ort, "preload_dlls"):  # finds the libraries of nvidia's wheels before the system's
        with suppress(Exception):
            ort.preload_dlls()


def _options(*, lean: bool, threads: int, device: Device) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    # The search for a buffer to reuse is quadratic in the nodes: a second at 1,900 nodes, twenty at 7,300. Without it
    # tensors are still freed after their last use, and neither run time nor memory was seen to change.
    options.enable_mem_reuse = False
    options.intra_op_num_threads = threads if room_for(threads) else 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if lean:
        options.add_session_config_entry("session.disable_prepacking", "1")
    if device == "cpu":
        use_arena(options)
    else:
        options.enable_cpu_mem_arena = False  # else each session keeps what its largest run took
    return options


class Session:
    """One model, ready to run. `weights` fill the initializers that the protobuf only declares.

    On a GPU TF32 is off. With `redraw` random nodes that have a seed draw the same numbers in every run.
    """

    def __init__(
        self,
        proto: onnx.ModelProto,
        weights: Mapping[str, Array] | None = None,
        *,
        lean: bool = False,
        threads: int = FEW,
        device: Device = "cpu",
        redraw: bool = True,
    ) -> None:
        options = _options(lean=lean, threads=threads, device=device)
        on_gpu = device == "cuda"
        providers: list[Any] = [(_CUDA, _CUDA_OPTIONS)] if on_gpu else []
        read = _read_by(proto.graph) if weights else frozenset()
        handed = {name: array for name, array in (weights or {}).items() if name in read}
        self._weights = hand_over(options, handed, shared=lean and not on_gpu)
        self._start = partial(_start, options, [*providers, "CPUExecutionProvider"])
        try:
            with stamped(proto):
                content = proto.SerializeToString()
            self._session = self._start(content)
        except Exception as error:
            if NO_THREAD in str(error):  # which says nothing of the model
                raise MissingBackend(f"ONNX Runtime cannot start: {runtime_reason(error)}") from error
            at = self._culprit(error, proto)
            raise InputError(f"ONNX Runtime cannot load the model: {runtime_reason(error)}{at}") from error
        self._proto, self._running = proto, native_call(_RUNNING, content)
        self._redrawn = content if redraw and has_draws(proto.graph) else None
        if on_gpu and _CUDA not in self._session.get_providers():
            raise MissingBackend(
                f"--device cuda: ONNX Runtime {ort.__version__} could not start its CUDA provider and fell back to the "
                "CPU; a CUDA or cuDNN library that it needs is missing"
            )
        self.output_names = tuple(out.name for out in self._session.get_outputs())
        self.input_names = tuple(value.name for value in self._session.get_inputs())
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        self._by_bits = {v.name: _BY_BITS[v.type] for v in inputs if v.type in _BY_BITS}
        self._packed = {v.name: FOUR_BITS[v.type] for v in (*inputs, *outputs) if v.type in FOUR_BITS}

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str] | None = None) -> dict[str, Array]:
        """Outputs by name. A feed may be what `upload` gave."""
        names = list(outputs or self.output_names)
        try:
            # Only a session that was never run begins with the seeds.
            session = self._session if self._redrawn is None else self._start(self._redrawn)
            with guarded(self._running, partial(_shapes, feeds)):
                if self._by_bits or self._packed or ort.OrtValue in map(type, feeds.values()):
                    results = [array_of(value) for value in session.run_with_ort_values(names, self._values(feeds))]
                else:
                    results = session.run(names, dict(feeds))
        except Exception as error:
            given = f", given {_shapes(feeds)}" if isinstance(error, Fatal) else ""
            at = self._culprit(error, self._proto, feeds)
            raise InputError(f"ONNX Runtime cannot run the model: {runtime_reason(error)}{at}{given}") from error
        for name, result in zip(names, results, strict=True):
            check_rank(getattr(result, "ndim", 0), f"the tensor {name!r}")  # of a sequence it is not asked
        return dict(zip(names, results, strict=True))

    def answers(self, feeds: Sequence[Mapping[str, Array]]) -> Iterator[Answer]:
        """The outputs of each input, or why it has none."""
        for feed in feeds:
            try:
                yield self.run({name: feed[name] for name in self.input_names})
            except MissingBackend:
                raise
            except Exception as error:
                yield error

    def _culprit(self, error: Exception, proto: onnx.ModelProto, feeds: Mapping[str, Array] | None = None) -> str:
        """Where a call that ends the process does so; only of the first such call, for it costs one more death."""
        if not isinstance(error, Fatal) or not error.first:
            return ""

        def attempt(cut: onnx.ModelProto) -> None:
            with stamped(cut):
                content = cut.SerializeToString()
            session = self._start(content)
            if feeds is not None:
                with guarded(native_call(_RUNNING, content)):
                    session.run(None, dict(feeds))

        found = culprit(proto, attempt)
        return f" at {found}" if found else ""

    def _values(self, feeds: Mapping[str, Array]) -> dict[str, ort.OrtValue]:
        """The feeds as the runtime's own values, for types that it does not take from NumPy."""
        return {name: self._value(name, array) for name, array in feeds.items()}

    def _value(self, name: str, array: Any) -> ort.OrtValue:
        if isinstance(array, ort.OrtValue):
            return array
        array = np.asarray(array, order="C")
        if name in self._packed:
            return value_of(array, self._packed[name])
        if name in self._by_bits:
            return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint8), self._by_bits[name])
        return ort.OrtValue.ortvalue_from_numpy(array)


def upload(array: Array) -> Any:
    """An array in the memory of the GPU, which several sessions may take as a feed."""
    if array.dtype.isbuiltin != 1 or array.dtype.kind not in "biuf":
        return array
    return ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), "cuda", 0)


def _start(options: ort.SessionOptions, providers: Sequence[Any], content: bytes) -> ort.InferenceSession:
    with guarded(native_call(_LOADING, content)):
        again = int(len(providers) > 1)  # on the CPU; where it is the only provider, that would only print the error
        session = ort.InferenceSession(content, options, providers=providers, enable_fallback=again)
        session.disable_fallback()  # which would move the whole model to the CPU on an error
        return session


def _shapes(feeds: Mapping[str, Array]) -> str:
    return ", ".join(
        f"{name} {'x'.join(map(str, array.shape)) or 'scalar'}" if isinstance(array, np.ndarray) else name
        for name, array in feeds.items()
    )


def _read_by(graph: onnx.GraphProto) -> frozenset[str]:
    """Names that nodes read, in bodies too, or that are outputs. The runtime drops initializers that nothing reads,
    and does not load a model for which it is then given their values."""
    names = {value.name for value in graph.output}
    for node in graph.node:
        names.update(node.input)
        for body in held_graphs(node):
            names |= _read_by(body)
    return frozenset(names)


@cache
def check_casts(device: Device = "cpu") -> None:
    """Make sure that this ONNX Runtime does not drop the Cast pairs that emulation stands on."""
    if device == "cuda":
        _prepare_cuda()
    probe = np.array([1 + 2.0**-11, 2.0**-25, 65520.0, 1 + 3 * 2.0**-11], dtype=np.float32)
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=onnx.TensorProto.FLOAT16),
        helper.make_node("Cast", ["h"], ["y"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    shape = [len(probe)]
    graph = helper.make_graph(
        nodes,
        "probe",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, shape)],
    )
    opset = [helper.make_opsetid("", 13)]
    proto = helper.make_model(graph, opset_imports=opset, ir_version=RUNTIME_IR_VERSION)
    seen = Session(proto, device=device).run({"x": probe})["z"]
    if not np.array_equal(seen, np.array([1.0, 0.0, np.inf, 1 + 2.0**-9], dtype=np.float32)):
        raise HalfwiseError(
            f"ONNX Runtime {ort.__version__} does not round through Cast as it should (got {seen.tolist()}); "
            "emulation cannot be trusted with it: install another version"
        )
