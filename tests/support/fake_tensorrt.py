"""A TensorRT module of any release, with exactly the names that release's bindings have; it "builds" a scripted model.

The model file is JSON: inputs, layers (name, the ONNX node they come from, type, output type) or parser errors. A name
that the release lacks cannot be read, called or set: it raises AttributeError, as the real module would.
"""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from tests.support.paths import DATA

BINDINGS = DATA / "bindings"


def names_of(release: str) -> dict[str, list[str]]:
    """Class -> names, as read from the released wheel of `release`, such as "10.16"."""
    (found,) = sorted(BINDINGS.glob(f"tensorrt-{release}.*.json")) or sorted(BINDINGS.glob(f"tensorrt-{release}.json"))
    return dict(json.loads(found.read_text(encoding="utf-8"))["classes"])


def make(release: str, *, metadata: bool = True) -> ModuleType:
    """The module of `release`; without `metadata` its parser leaves the layers' metadata empty."""
    names = names_of(release)
    module = ModuleType("tensorrt")
    module.__version__ = release  # type: ignore[attr-defined]
    for name, members in names.items():
        if name in _ENUMS:
            setattr(module, name, _enum(name, members))
        else:
            setattr(module, name, _strict(name, members))
    module.ILogger.Severity = _enum("Severity", ["INTERNAL_ERROR", "ERROR", "WARNING", "INFO", "VERBOSE"])  # type: ignore[attr-defined]
    module.built = []  # type: ignore[attr-defined]  # what every build was given, for the tests to look at
    module.with_metadata = metadata  # type: ignore[attr-defined]
    for name in names:
        getattr(module, name)._module = module
    return module


_ENUMS = (
    "BuilderFlag",
    "NetworkDefinitionCreationFlag",
    "ProfilingVerbosity",
    "DataType",
    "LayerType",
    "LayerInformationFormat",
)


class _Member(Enum):
    def __int__(self) -> int:
        return int(self.value)

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


def _enum(name: str, members: list[str]) -> Any:
    made = _Member(name, {member: number for number, member in enumerate(members)})  # type: ignore[call-overload]
    if name == "NetworkDefinitionCreationFlag" and "STRONGLY_TYPED" in members:
        ordered = ["EXPLICIT_BATCH", "STRONGLY_TYPED"] if "EXPLICIT_BATCH" in members else ["STRONGLY_TYPED"]
        made = _Member(name, {member: number for number, member in enumerate(ordered)})  # type: ignore[call-overload]
    return made


def _strict(name: str, members: list[str]) -> type:
    """The behaviour of class `name`, less everything the release does not have."""
    behaviour = _BEHAVIOUR.get(name, object)
    body = {
        key: value
        for key, value in vars(behaviour).items()
        if key.startswith("_") and key not in ("__dict__", "__weakref__")
    }
    body |= {key: value for key, value in vars(behaviour).items() if key in members}
    for key in members:
        body.setdefault(key, None)

    def set_known(self: Any, key: str, value: Any) -> None:
        if not key.startswith("_") and key not in type(self)._members:
            raise AttributeError(f"{name} has no {key!r}")
        object.__setattr__(self, key, value)

    if name == "ILogger":
        return type(name, (), body)
    return type(name, (), {**body, "_members": frozenset(members), "__setattr__": set_known})


class _Logger:
    def __init__(self) -> None:
        pass


class _Builder:
    def __init__(self, logger: Any) -> None:
        self._logger = logger

    def create_network(self, flags: int = 0) -> Any:
        network = self._module.INetworkDefinition()
        network._flags = flags
        network._inputs, network._layers, network._outputs = [], [], 0
        return network

    def create_builder_config(self) -> Any:
        config = self._module.IBuilderConfig()
        config._set, config._profiles = {"TF32"}, []
        return config

    def create_optimization_profile(self) -> Any:
        profile = self._module.IOptimizationProfile()
        profile._shapes, profile._values = {}, {}
        return profile

    def build_serialized_network(self, network: Any, config: Any) -> Any:
        self._module.built.append((network, config))
        if network._failure:
            self._logger.log(self._module.ILogger.Severity.ERROR, network._failure)
            return None
        return _Plan(b"an engine")


class _Plan(bytes):
    @property
    def nbytes(self) -> int:
        return len(self)


class _Network:
    num_inputs = property(lambda self: len(self._inputs))
    num_layers = property(lambda self: len(self._layers))
    num_outputs = property(lambda self: self._outputs)

    def get_input(self, index: int) -> Any:
        return self._inputs[index]

    def get_output(self, index: int) -> Any:
        return SimpleNamespace(name=f"output_{index}")

    def get_layer(self, index: int) -> Any:
        return self._layers[index]


class _Config:
    def set_flag(self, flag: Any) -> None:
        if flag.name == "FP16" and self._set & {"STRONGLY_TYPED"}:
            raise ValueError("FP16 on a strongly typed network")
        self._set.add(flag.name)

    def clear_flag(self, flag: Any) -> None:
        self._set.discard(flag.name)

    def add_optimization_profile(self, profile: Any) -> int:
        self._profiles.append(profile)
        return len(self._profiles) - 1


class _Profile:
    def set_shape(self, name: str, least: Any, usual: Any, most: Any) -> None:
        self._shapes[name] = (tuple(least), tuple(usual), tuple(most))

    def set_shape_input(self, name: str, least: Any, usual: Any, most: Any) -> None:
        self._values[name] = (tuple(least), tuple(usual), tuple(most))


class _Layer:
    num_outputs = property(lambda self: len(self._tensors))

    def get_output(self, index: int) -> Any:
        return self._tensors[index]

    def set_output_type(self, index: int, kind: Any) -> None:
        self._types[index] = kind.name


class _Parser:
    def __init__(self, network: Any, logger: Any) -> None:
        self._network, self._logger, self._errors = network, logger, []

    num_errors = property(lambda self: len(self._errors))

    def get_error(self, index: int) -> Any:
        error = self._module.ParserError()
        error._fields = self._errors[index]
        return error

    def parse_from_file(self, path: str) -> bool:
        script = json.loads(Path(path).read_text(encoding="utf-8"))
        module, network = self._module, self._network
        network._failure = script.get("failure")
        network._outputs = 1
        for name, shape, is_shape in script.get("inputs", []):
            network._inputs.append(self._tensor(name, shape, "FLOAT", is_shape))
        for name, node, kind, dtype in script.get("layers", []):
            layer = module.ILayer()
            layer.name, layer.type, layer._types = name, module.LayerType[kind], {}
            layer.metadata = f"[ONNX Layer: {node}]" if node and module.with_metadata else ""
            layer._tensors = [self._tensor(f"{name}_out", [1], dtype, False)]
            network._layers.append(layer)
            if node:
                message = f"Registering layer: {name} for ONNX node: {node}"
                self._logger.log(module.ILogger.Severity.VERBOSE, message)
        self._errors = script.get("errors", [])
        return not self._errors

    def _tensor(self, name: str, shape: list[int], dtype: str, is_shape: bool) -> Any:
        tensor = self._module.ITensor()
        tensor.name, tensor.shape, tensor.is_shape_tensor = name, shape, is_shape
        tensor.dtype = self._module.DataType[dtype]
        return tensor


class _ParserError:
    def code(self) -> str:
        return "ErrorCode.UNSUPPORTED_NODE"

    def desc(self) -> str:
        return str(self._fields["desc"])

    def node(self) -> int:
        return int(self._fields["node"])

    def func(self) -> str:
        return "parseNode"

    def file(self) -> str:
        return "ModelImporter.cpp"

    def node_name(self) -> str:
        return str(self._fields["name"])

    def node_operator(self) -> str:
        return str(self._fields["op"])


class _Runtime:
    def __init__(self, logger: Any) -> None:
        pass

    def deserialize_cuda_engine(self, plan: bytes) -> Any:
        return self._module.ICudaEngine()


class _Engine:
    def create_engine_inspector(self) -> Any:
        return self._module.EngineInspector()


class _Inspector:
    def get_engine_information(self, form: Any) -> str:
        return json.dumps({"Layers": [], "Format": form.name})


_BEHAVIOUR: dict[str, type] = {
    "ILogger": _Logger,
    "Builder": _Builder,
    "INetworkDefinition": _Network,
    "IBuilderConfig": _Config,
    "IOptimizationProfile": _Profile,
    "ILayer": _Layer,
    "INormalizationLayer": _Layer,
    "OnnxParser": _Parser,
    "ParserError": _ParserError,
    "Runtime": _Runtime,
    "ICudaEngine": _Engine,
    "EngineInspector": _Inspector,
}
