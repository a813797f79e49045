"""Parses and builds with an imported TensorRT module, 8.6 to 11 or TensorRT-RTX. Runs inside the child process only.

Everything that differs between releases is asked of `capabilities`; no attribute is used that the release lacks.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from halfwise.compiler import capabilities
from halfwise.compiler.build import BuildRequest, InputProfile, Refusal
from halfwise.compiler.capabilities import Capabilities
from halfwise.compiler.handover import REGISTERED, Report, request_from
from halfwise.core.child.serve import Answer, Request
from halfwise.core.errors import InputError, MissingBackend
from halfwise.core.exhausted import ran_short
from halfwise.core.wording import listed

__all__ = ["build", "build_with", "clean_message", "import_first"]

_MOST_KEPT = 40  # messages of one severity that the logger keeps for the report
_METADATA = re.compile(r"\[ONNX Layer: (?P<node>.*?)\](?=\[ONNX Layer: |[\x1e\x1f]|$)")
_PARSED = re.compile(r"(?:^|: )Parsing node: (?P<node>.*) \[(?P<operator>\w+)\]")
_LACKS = re.compile(r"(?P<library>[\w.+-]+): cannot open shared object file")
_FLOATING = ("FLOAT", "HALF", "BF16")


class _CannotBuild(Exception):
    """A reason, in words, why no engine comes out."""

    def __init__(self, message: str, refusals: tuple[Refusal, ...] = ()) -> None:
        super().__init__(message)
        self.refusals = refusals


def build(request: Request) -> Answer:
    """What a child does: import the first of the modules that is there, and build as asked."""
    module = import_first(request.data["modules"])
    return Answer(asdict(build_with(module, request_from(request.data["request"]))))


def build_with(module: Any, request: BuildRequest) -> Report:
    """Parse, set up and build; Never raises for what a model causes."""
    can = capabilities.of(module)
    logger = _line_logger(module)
    try:
        _check_request(can, request)
        report = _build(module, can, logger, request)
    except _CannotBuild as reason:
        short = any(map(ran_short, (*logger.errors, str(reason))))  # no answer about the model
        return Report(
            "failed" if short else "refused",
            f"memory or threads ran out: {reason}" if short else str(reason),
            version=can.version,
            title=can.title,
            refusals=reason.refusals,
            warnings=logger.seen(),
        )
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)
        said = [clean_message(message) for message in logger.errors]
        told = "; ".join([*dict.fromkeys(said[-3:]), f"{type(error).__name__}: {error}"])
        no_gpu = can.needs_gpu and not isinstance(error, OSError)
        hint = " (TensorRT needs an NVIDIA GPU and its driver to build)" if no_gpu else ""
        return Report("failed", told + hint, version=can.version, title=can.title, warnings=logger.seen())
    return report


def import_first(modules: Sequence[str]) -> Any:
    """Raises MissingBackend where none is there, and InputError where memory for its libraries is lacking."""
    why = "not installed"
    for name in modules:
        try:
            return import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                why = str(error)
        except (ImportError, OSError) as error:
            why = _reason(str(error))
    if ran_short(why):
        raise InputError(f"memory ran out: {why}")
    raise MissingBackend(why)


def _reason(told: str) -> str:
    """Why a library of another package was not loaded: that package is silent about it, and the next misses a file."""
    lacking = _LACKS.match(told)
    if lacking is None:
        return told
    for library in (path for folder in sys.path for path in Path(folder).glob(f"*/{lacking['library']}")):
        try:
            ctypes.CDLL(str(library))
        except OSError as error:
            return str(error)
    return told


def _build(module: Any, can: Capabilities, logger: Any, request: BuildRequest) -> Report:
    builder = module.Builder(logger)
    network = builder.create_network(_network_flags(module, can, request))
    parser = module.OnnxParser(network, logger)
    if not parser.parse_from_file(str(request.model_path)):
        raise _refused(_refusals(parser, can, *logger.parsed))
    if network.num_layers == 0 and network.num_outputs == 0:
        raise _CannotBuild("the file holds no graph; is it an ONNX model?")
    config = builder.create_builder_config()
    config.profiling_verbosity = module.ProfilingVerbosity.DETAILED
    if not request.tf32:
        config.clear_flag(module.BuilderFlag.TF32)
    _choose_compute_capabilities(module, config, request.compute_capabilities)
    _add_profile(builder, config, network, request.profiles)
    constrained: dict[str, tuple[str, ...]] = {}
    if request.typing == "weak":
        config.set_flag(module.BuilderFlag.FP16)
        if request.fp32_nodes:
            config.set_flag(module.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
            constrained = _constrain(module, can, network, logger.node_of_layer, request.fp32_nodes)
    before = len(logger.errors)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        said = list(logger.errors)[before:] or list(logger.errors)
        reasons = dict.fromkeys(clean_message(message) for message in said)
        raise _CannotBuild("; ".join(list(reasons)[:3]) or "the builder returned no engine and gave no reason")
    if request.engine_path is not None:
        with request.engine_path.open("wb") as file:
            file.write(plan)
    if request.layer_info_path is not None:
        _write_layer_info(module, logger, plan, request.layer_info_path)
    return Report(
        "built",
        version=can.version,
        title=can.title,
        engine_bytes=int(plan.nbytes),
        constrained=constrained,
        unmatched=tuple(node for node in request.fp32_nodes if node not in constrained),
        warnings=logger.seen(),
        notes=_notes(can, request),
    )


def _check_request(can: Capabilities, request: BuildRequest) -> None:
    if request.typing == "weak" and not can.weak_typing:
        raise _CannotBuild("it knows strong typing only; give it a model typed FP16 and FP32 instead of constraints")
    if request.typing == "strong" and not can.strong_typing:
        raise _CannotBuild("it has no strong typing (that came with 9.1); ask for weak typing with FP32 layers")
    if request.typing == "strong" and request.fp32_nodes:
        raise _CannotBuild("layer precisions need weak typing; under strong typing the model's own types decide")
    if request.fp32_nodes and not can.precision_constraints:
        raise _CannotBuild("its builder cannot be made to obey layer precisions")
    if request.compute_capabilities and not can.compute_capabilities:
        raise _CannotBuild("it builds for the GPU of this machine; compute capabilities cannot be chosen")
    for wanted in request.compute_capabilities:
        if wanted not in can.compute_capabilities:
            known = ", ".join(can.compute_capabilities)
            raise _CannotBuild(f"it does not build for compute capability {wanted!r}; it knows {known}")


def _network_flags(module: Any, can: Capabilities, request: BuildRequest) -> int:
    creation = module.NetworkDefinitionCreationFlag
    flags = 1 << int(creation.EXPLICIT_BATCH) if can.implicit_batch else 0
    if request.typing == "strong" and not can.strong_only:
        flags |= 1 << int(creation.STRONGLY_TYPED)
    return flags


def _choose_compute_capabilities(module: Any, config: Any, wanted: Sequence[str]) -> None:
    if not wanted:
        return
    config.num_compute_capabilities = len(wanted)  # makes the slots
    for slot, capability in enumerate(wanted):
        member = getattr(module.ComputeCapability, "SM" + capability.replace(".", ""))
        if not config.set_compute_capability(member, slot):
            raise _CannotBuild(f"it did not take compute capability {capability}")


def _add_profile(builder: Any, config: Any, network: Any, given: Mapping[str, InputProfile]) -> None:
    """One optimisation profile for the inputs that need it: of open shape, or holding a shape."""
    inputs = [network.get_input(index) for index in range(network.num_inputs)]
    outputs = (network.get_output(index).name for index in range(network.num_outputs))
    both = {f"__{name}": name for name in outputs if name in given}  # as the parser calls an input that is an output
    names = [both.get(tensor.name, tensor.name) for tensor in inputs]
    for name in given:
        if name not in names:
            raise _CannotBuild(f"the profile names {name!r}, which is no input of the model ({', '.join(names)})")
    profile, needed = builder.create_optimization_profile(), False
    for tensor, name in zip(inputs, names, strict=True):
        shape, wanted = tuple(tensor.shape), given.get(name)
        if tensor.is_shape_tensor:
            if wanted is None or wanted.values is None:
                raise _CannotBuild(
                    f"input {tensor.name!r} holds a shape, so the range of its values must be known: "
                    "give sample inputs or a profile"
                )
            profile.set_shape_input(tensor.name, *wanted.values)
            needed = True
        elif -1 in shape:
            if wanted is None:
                raise _CannotBuild(
                    f"input {tensor.name!r} has the open shape {shape}: give sample inputs or a profile (min, opt, max)"
                )
            profile.set_shape(tensor.name, wanted.min, wanted.opt, wanted.max)
            needed = True
    if needed and config.add_optimization_profile(profile) < 0:
        raise _CannotBuild("it did not take the optimisation profile; its log says why")


def _constrain(
    module: Any, can: Capabilities, network: Any, node_of_layer: Mapping[str, str], nodes: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Set every floating-point layer of `nodes` and its outputs to FP32; node -> the layers that were set.

    Layers are found by the node that the parser wrote into their metadata, or registered them for: a layer's name is
    not its node's name, and may even be another node's.
    """
    wanted, done = set(nodes), dict[str, list[str]]()
    float32 = module.DataType.FLOAT
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        owners = _METADATA.findall(layer.metadata) if can.layer_metadata and layer.metadata else []
        owners = owners or [node_of_layer.get(layer.name, "")]
        hit = [node for node in owners if node in wanted]
        outputs = [(slot, layer.get_output(slot)) for slot in range(layer.num_outputs)]
        floating = [slot for slot, tensor in outputs if tensor is not None and _is_floating(tensor)]
        if not hit or not floating or any(tensor is not None and tensor.is_shape_tensor for _, tensor in outputs):
            continue
        layer.precision = float32
        for slot in floating:
            layer.set_output_type(slot, float32)
        if can.norm_compute_precision and layer.type == module.LayerType.NORMALIZATION:
            layer.__class__ = module.INormalizationLayer  # get_layer gives the base class only
            layer.compute_precision = float32
        for node in hit:
            done.setdefault(node, []).append(layer.name)
    return {node: tuple(layers) for node, layers in done.items()}


def _is_floating(tensor: Any) -> bool:
    return str(tensor.dtype).rpartition(".")[2] in _FLOATING


def _write_layer_info(module: Any, logger: Any, plan: Any, path: Path) -> None:
    engine = module.Runtime(logger).deserialize_cuda_engine(plan)
    if engine is None:
        raise RuntimeError("the engine was built but cannot be read back, so its layers cannot be listed")
    text = engine.create_engine_inspector().get_engine_information(module.LayerInformationFormat.JSON)
    path.write_text(text, encoding="utf-8")


def _notes(can: Capabilities, request: BuildRequest) -> tuple[str, ...]:
    if can.product == "tensorrt-rtx":
        targets = ", ".join(request.compute_capabilities) or "the compiler's default compute capabilities"
        return (f"built for {targets}; kernels are compiled again on the target GPU, and the engine was not run here",)
    return ("built for the GPU of this machine; the engine was not run",)


_NEVER = "false"  # the condition on which it reads an operator
_PLUGINS = "checkFallbackPluginImporter"  # where it looks for those that are not ONNX's


def _refusals(parser: Any, can: Capabilities, last: tuple[str, str] = ("", "")) -> tuple[Refusal, ...]:
    """`last`: the node that the parser read last, and its operator; some errors name their importer only."""
    found = []
    for index in range(parser.num_errors):
        error = parser.get_error(index)
        message = clean_message(str(error.desc()))
        unknown = message == _NEVER or error.func() == _PLUGINS
        if message in ("", _NEVER):
            message = f"not supported ({str(error.code()).rpartition('.')[2]})"
        number = int(error.node())
        if error.func() == "importInput":  # which reports the tensor as its file
            found.append(Refusal("", "", f"input {error.file()!r}: {message}"))
        elif number < 0 and last[1] and error.func() == f"import{last[1]}":
            found.append(Refusal(*last, message))
        elif can.named_parser_errors:
            node = error.node_name()
            found.append(Refusal(node, error.node_operator(), message.removeprefix(f"{node}: "), unknown))
        else:
            found.append(Refusal("", "", message if number < 0 else f"node number {number}: {message}"))
    return tuple(dict.fromkeys(found))


def _refused(refusals: tuple[Refusal, ...]) -> _CannotBuild:
    if not refusals:
        return _CannotBuild("its parser failed and gave no reason")
    return _CannotBuild(listed(refusals, quote=str, between="; "), refusals)


def clean_message(text: str) -> str:
    """The part of a TensorRT message that speaks to a user: no source positions, no failed C++ condition."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    # Without a GPU every error is followed by one about the missing driver, which explains nothing.
    told = [line for line in lines if "::catchCudaError" not in line] or lines
    if len(told) > 1 and told[0].startswith("Invalid Node - "):
        told = told[1:]
    message = " ".join(told)
    message = re.sub(r"\.?\s*\(?In \S+(?: \S+)? at /?[\w./\\-]+:\d+\)?", "", message)
    if wrapped := re.search(r"Error Code \d+: [\w ]+ \((?P<inner>.*?)\)?$", message):
        message = wrapped["inner"]
    if quoted := re.search(r'&& "(?P<words>.+?)"', message):
        return quoted["words"]
    return re.sub(r"^.*Assertion failed: .+?: (?!:)", "", message)


def _line_logger(module: Any) -> Any:
    """A logger that prints each message at once, as TensorRT's tools would, and keeps what the report needs."""
    letters = {"INTERNAL_ERROR": "F", "ERROR": "E", "WARNING": "W", "INFO": "I", "VERBOSE": "V"}

    class LineLogger(module.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            module.ILogger.__init__(self)
            self.errors: deque[str] = deque(maxlen=_MOST_KEPT)
            self.warnings: dict[str, None] = {}
            self.node_of_layer: dict[str, str] = {}
            self.parsed: deque[tuple[str, str]] = deque(maxlen=1)

        def log(self, severity: Any, msg: str) -> None:
            letter = letters.get(str(severity).rpartition(".")[2], "I")
            # Unbuffered: what was said last before a crash is what matters.
            _write_all(f"[{letter}] [TRT] {msg}\n".encode("utf-8", errors="replace"))
            if letter in "FE":
                self.errors.append(msg)
            elif letter == "W" and len(self.warnings) < _MOST_KEPT:
                self.warnings[msg] = None
            elif letter == "V" and (found := REGISTERED.search(msg)):
                self.node_of_layer[found["layer"]] = found["node"]
            elif letter == "V" and (found := _PARSED.search(msg)):
                self.parsed.append((found["node"], found["operator"]))

        def seen(self) -> tuple[str, ...]:
            return tuple(self.warnings)

    return LineLogger()


def _write_all(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]
