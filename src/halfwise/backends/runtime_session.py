"""Runs a model file with one of ONNX Runtime's providers, and makes sure that it was this provider that ran it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import onnx
from numpy.typing import NDArray

from halfwise.backends.as_written import typed_as
from halfwise.backends.backend import BackendFailure, BackendOptions, BackendRecord, BackendRun, Optimization
from halfwise.backends.bf16_values import run_session
from halfwise.backends.child import answer, rollout_asked
from halfwise.backends.runtime_path import named, with_data_in
from halfwise.backends.seeded_file import Sessions
from halfwise.core.child.serve import Answer, Request
from halfwise.core.errors import HalfwiseError, InputError, MissingBackend
from halfwise.core.formats import format_of_type
from halfwise.emulation.cuda_driver import Gpu, driver, gpu_here
from halfwise.emulation.ort import FEW
from halfwise.model.inputs.rollout import Rollout, chained

__all__ = ["check_provider", "run_model", "serve"]

Array = NDArray[Any]
Feed = Mapping[str, Array]

_CPU = "CPUExecutionProvider"
_LEVELS: dict[Optimization, str] = {
    "disable": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
_SHOWN = 3


@dataclass(frozen=True)
class _Kind:
    """A provider: its name in any capitals, what to install for it, and how it spells the options."""

    provider: str
    install: str
    options: Callable[[BackendOptions], dict[str, str]]
    plugin: str = ""  # a module that brings the provider as a library of its own
    refuses: Callable[[str], str] = lambda capability: ""


def _cuda_options(options: BackendOptions) -> dict[str, str]:
    return {"device_id": str(options.device), "use_tf32": str(int(options.tf32))}


def _tensorrt_options(options: BackendOptions) -> dict[str, str]:
    return {"device_id": str(options.device), "trt_fp16_enable": "0"}  # the model's own types decide


def _rtx_options(options: BackendOptions) -> dict[str, str]:
    return {"device_id": str(options.device)}


def rtx_refuses(capability: str) -> str:
    """Why TensorRT-RTX does not run on a GPU of this compute capability; empty where it does."""
    major, minor = (int(part) for part in capability.split("."))
    if (major, minor) in ((7, 5), (8, 0), (8, 6), (8, 7), (8, 9)) or major >= 12:
        return ""
    return f"TensorRT-RTX does not support compute capability {capability}; it runs on 7.5, 8.x and 12.0 or newer"


_GPU_PACKAGE = (
    "pip install 'halfwise[gpu]' && pip install --force-reinstall --no-deps onnxruntime-gpu (which takes the place of "
    "the CPU package's files)"
)
_KINDS = {
    "ort-cpu": _Kind(_CPU, "pip install onnxruntime", lambda options: {}),
    "ort-cuda": _Kind("CUDAExecutionProvider", _GPU_PACKAGE, _cuda_options),
    "ort-tensorrt": _Kind("TensorrtExecutionProvider", f"{_GPU_PACKAGE}; pip install tensorrt", _tensorrt_options),
    "ort-rtx": _Kind(
        "NvTensorRTRTXExecutionProvider",
        "pip install onnxruntime-ep-nv-tensorrt-rtx beside onnxruntime 1.24 or newer",
        _rtx_options,
        plugin="onnxruntime_ep_nv_tensorrt_rtx",
        refuses=rtx_refuses,
    ),
}


def serve(request: Request) -> Answer:
    return answer(request, partial(run_model, rollout=rollout_asked(request)))


def check_provider(backend: str) -> None:
    """MissingBackend where its provider is not installed, or the driver; neither is started in this process."""
    import onnxruntime as ort

    kind = _KINDS[backend]
    if not kind.plugin or find_spec(kind.plugin) is None:
        _provider(ort, kind, [])
    if kind.provider != _CPU:
        driver()


def run_model(
    backend: str, model: Path, feeds: Sequence[Feed], options: BackendOptions, rollout: Rollout | None = None
) -> BackendRun:
    """The outputs for every sample, or step of a rollout. Not one node is left to another provider unnoticed."""
    import onnxruntime as ort

    kind = _KINDS[backend]
    plugin = _plugin(ort, kind)
    provider = _provider(ort, kind, plugin)
    gpu = gpu_here(options.device) if provider != _CPU else None
    if gpu is not None and (why := kind.refuses(gpu.compute_capability)):
        raise MissingBackend(f"{backend}: {why} (this is {gpu.name})")
    sessions = _sessions(ort, kind, provider, plugin, model, options)
    session = sessions.first
    if provider not in session.get_providers():
        raise MissingBackend(
            f"{backend}: ONNX Runtime {ort.__version__} could not start its {provider} and fell back to the CPU; a "
            f"library that it needs is missing or does not fit: {kind.install}"
        )
    nodes, on_cpu = _assigned(session, provider, model)
    if nodes and not nodes.get(provider):
        raise MissingBackend(
            f"{backend}: the provider supports none of the {sum(nodes.values())} nodes of {model.name} as typed; "
            "all would run on the CPU"
        )
    each = sessions.each()

    def run(index: int, feed: Feed) -> dict[str, Array]:
        return _run(ort, next(each), feed, options, index, provider)

    outputs = tuple(map(dict, chained(rollout, feeds, run)))
    given = dict(session.get_provider_options().get(provider, {}))
    return BackendRun(outputs, _record(ort, backend, provider, session, given, gpu, nodes, on_cpu, options))


# -- the provider -----------------------------------------------------------------------------------------------------


def _plugin(ort: Any, kind: _Kind) -> list[Any]:
    """The devices of a provider that comes as a library of its own; none where it is built in or not there."""
    if not kind.plugin or kind.provider in ort.get_available_providers():
        return []
    try:
        from importlib import import_module

        module = import_module(kind.plugin)
        ort.register_execution_provider_library(module.get_ep_name(), module.get_library_path())
        return [device for device in ort.get_ep_devices() if device.ep_name == module.get_ep_name()]
    except ImportError:
        return []
    except Exception as error:
        raise MissingBackend(f"the library of {kind.plugin} cannot be loaded: {_one_line(error)}") from error


def _provider(ort: Any, kind: _Kind, plugin: Sequence[Any]) -> str:
    if plugin:
        return str(plugin[0].ep_name)
    for name in ort.get_available_providers():
        if name.lower() == kind.provider.lower():
            return str(name)
    raise MissingBackend(f"ONNX Runtime {ort.__version__} as installed here has no {kind.provider}: {kind.install}")


def _sessions(
    ort: Any, kind: _Kind, provider: str, plugin: Sequence[Any], model: Path, options: BackendOptions
) -> Sessions:
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = FEW  # as many as in an emulation
    settings.graph_optimization_level = getattr(ort.GraphOptimizationLevel, _LEVELS[options.optimization])
    settings.log_severity_level = 3 if provider != _CPU else 4  # a child's log says why a library did not load
    settings.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    given = kind.options(options)
    named: dict[str, Any] = {}
    if provider == _CPU:
        # It crashes on FP16 (see transposed_products); without it the same products are made.
        named = {"providers": [_CPU], "disabled_optimizers": ["MatmulTransposeFusion"], "enable_fallback": 0}
    elif plugin:
        settings.add_provider_for_devices([plugin[min(options.device, len(plugin) - 1)]], given)
    else:
        if hasattr(ort, "preload_dlls"):  # finds the libraries of nvidia's wheels before the system's
            with contextlib.suppress(Exception):
                ort.preload_dlls()
        named = {"providers": [(provider, given), _CPU]}
    try:
        content, random = _for_runtime(model, settings)
        return Sessions.begun(lambda: _begun(ort.InferenceSession(content, settings, **named)), random=random)
    except HalfwiseError:
        raise
    except Exception as error:
        raise BackendFailure(f"{provider} cannot build {model.name}: {_reason(error)}") from error


def _begun(session: Any) -> Any:
    session.disable_fallback()  # which would move the whole model to the CPU on an error
    return session


def _for_runtime(model: Path, settings: Any) -> tuple[str | bytes, bool]:
    """The file itself, or its protobuf with the versions that this runtime reads and a seed for each random node, and
    its weights where they are; and whether there are random nodes."""
    from halfwise.emulation.stamp import RUNTIME_IR_VERSION, runtime_opset, stamped
    from halfwise.model.external import beside_its_data
    from halfwise.model.random_draws import seed_file

    try:
        proto = onnx.load(str(model), load_external_data=False)
    except Exception as error:
        raise InputError(f"{model} cannot be read as an ONNX model: {_one_line(error)}") from error
    model = beside_its_data(proto, model)
    opset = next((entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")), 0)
    random = seed_file(proto.graph)
    if not random and proto.ir_version <= RUNTIME_IR_VERSION and runtime_opset(proto, opset) == opset:
        return named(model), False
    with_data_in(settings, model.parent)
    with stamped(proto):
        return bytes(proto.SerializeToString()), random


# -- what ran where ---------------------------------------------------------------------------------------------------


def _assigned(session: Any, provider: str, model: Path) -> tuple[dict[str, int], tuple[str, ...]]:
    """How many nodes each provider took, and which floating-point nodes the wanted one left to the CPU.

    Empty where this ONNX Runtime does not tell.
    """
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return {}, ()
    counts: dict[str, int] = {}
    left: list[str] = []
    for subgraph in session.get_provider_graph_assignment_info():
        nodes = subgraph.get_nodes()
        counts[subgraph.ep_name] = counts.get(subgraph.ep_name, 0) + len(nodes)
        if subgraph.ep_name != provider:
            left += [node.name or node.op_type for node in nodes]
    if not left:
        return counts, ()
    floating = _floating_nodes(model)
    return counts, tuple(name for name in dict.fromkeys(left) if name in floating)


def _floating_nodes(model: Path) -> set[str]:
    """The nodes that read and write floating-point tensors: what is left are shapes, indices and masks."""
    proto = onnx.load(str(model), load_external_data=False)
    with contextlib.suppress(Exception):
        proto = onnx.shape_inference.infer_shapes(proto)
    graph = proto.graph
    typed = (*graph.input, *graph.output, *graph.value_info)
    kinds = {value.name: value.type.tensor_type.elem_type for value in typed}
    kinds.update({tensor.name: tensor.data_type for tensor in graph.initializer})

    def floating(names: Sequence[str]) -> bool:
        return any(format_of_type(kinds.get(name)) is not None for name in names)

    return {node.name for node in graph.node if node.name and floating(node.input) and floating(node.output)}


# -- running ----------------------------------------------------------------------------------------------------------


def _run(ort: Any, session: Any, feed: Feed, options: BackendOptions, index: int, provider: str) -> dict[str, Array]:
    wanted = [value.name for value in session.get_inputs()]
    missing = [name for name in wanted if name not in feed]
    if missing:
        raise InputError(f"sample {index + 1} has no input {missing[0]!r}, which the model wants")
    given = {value.name: typed_as(feed[value.name], value.type) for value in session.get_inputs()}
    names = [value.name for value in session.get_outputs()]
    try:
        if options.io_binding:
            results = _run_bound(ort, session, given, names, "cpu" if provider == _CPU else "cuda", options.device)
        else:
            results = run_session(session, names, given)
    except Exception as error:
        raise BackendFailure(f"{provider} cannot run the model on sample {index + 1}: {_reason(error)}") from error
    return dict(zip(names, results, strict=True))


def _run_bound(
    ort: Any, session: Any, given: Mapping[str, Array], names: Sequence[str], where: str, device: int
) -> list[Array]:
    """With inputs put on the device beforehand and outputs left there until the end."""
    binding = session.io_binding()
    held = {name: ort.OrtValue.ortvalue_from_numpy(array, where, device) for name, array in given.items()}
    for name, value in held.items():
        binding.bind_ortvalue_input(name, value)
    for name in names:
        binding.bind_output(name, where, device)
    session.run_with_iobinding(binding)
    return list(binding.copy_outputs_to_cpu())


def _record(
    ort: Any,
    backend: str,
    provider: str,
    session: Any,
    given: dict[str, str],
    gpu: Gpu | None,
    nodes: dict[str, int],
    on_cpu: tuple[str, ...],
    options: BackendOptions,
) -> BackendRecord:
    return BackendRecord(
        backend=backend,
        library="ONNX Runtime",
        version=ort.__version__,
        device=gpu.name if gpu is not None else "CPU",
        compute_capability=gpu.compute_capability if gpu is not None else "",
        driver=gpu.driver if gpu is not None else "",
        cuda=gpu.cuda if gpu is not None else "",
        tf32=options.tf32 if gpu is not None else None,
        optimization=options.optimization,
        io_binding=options.io_binding,
        providers=tuple(session.get_providers()),
        provider_options={str(key): str(value) for key, value in given.items()},
        nodes=nodes,
        on_cpu=on_cpu,
    )


def _reason(error: Exception) -> str:
    from halfwise.emulation.runtime_words import runtime_reason

    return runtime_reason(error)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
