"""Runs a build script with a stand-in for TensorRT."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from halfwise.core.formats import Format
from halfwise.core.targets import Target
from halfwise.deploy.script import ScriptRequest, build_script

__all__ = ["BF16", "BOOL", "F16", "F32", "I32", "Layer", "Tensor", "fake_tensorrt", "run", "weak"]


F32, F16, BF16, I32, BOOL = "float32", "float16", "bfloat16", "int32", "bool"


class Tensor:
    def __init__(self, dtype=F32, name="t", shape=(1,), is_shape_tensor=False):
        self.dtype, self.name, self.shape, self.is_shape_tensor = dtype, name, shape, is_shape_tensor
        self.allowed_formats = 0


class Layer:
    """A layer of a parsed network; remembers what was asked of it."""

    def __init__(self, name, metadata, inputs=(F32,), outputs=(F32,)):
        self.name, self.metadata = name, metadata
        self.inputs = [Tensor(kind) if isinstance(kind, str) else kind for kind in inputs]
        self.outputs = [Tensor(kind) for kind in outputs]
        self.precision = None
        self.output_types = {}

    num_inputs = property(lambda self: len(self.inputs))
    num_outputs = property(lambda self: len(self.outputs))

    def get_input(self, index):
        return self.inputs[index]

    def get_output(self, index):
        return self.outputs[index]

    def set_output_type(self, index, dtype):
        self.output_types[index] = dtype


def fake_tensorrt(layers, *, inputs=(), outputs=(), version="10.3.0", lacks=(), parses=True, plan=b"plan", loads=True):
    """A module with the part of TensorRT's interface that a script uses; `lacks` names what this version has not."""
    seen = SimpleNamespace(
        flags=None, config=set(), cleared=set(), profile={}, parsed=None, verbosity=None, severity=None
    )
    network = SimpleNamespace(
        num_layers=len(layers),
        get_layer=lambda index: layers[index],
        num_inputs=len(inputs),
        get_input=lambda index: inputs[index],
        num_outputs=len(outputs),
        get_output=lambda index: outputs[index],
    )

    class Config:
        def set_flag(self, flag):
            seen.config.add(flag)

        def clear_flag(self, flag):
            seen.cleared.add(flag)

        def add_optimization_profile(self, profile):
            seen.profile = profile.shapes

        def __setattr__(self, name, value):
            assert name == "profiling_verbosity"
            seen.verbosity = value

    class Profile:
        def __init__(self):
            self.shapes = {}

        def set_shape(self, name, low, usual, high):
            self.shapes[name] = (low, usual, high)

        def set_shape_input(self, name, low, usual, high):
            self.shapes[name] = ("values", low, usual, high)

    class Builder:
        def __init__(self, logger):
            pass

        def create_network(self, flags):
            seen.flags = flags
            return network

        def create_builder_config(self):
            return Config()

        def create_optimization_profile(self):
            return Profile()

        def build_serialized_network(self, network, config):
            return plan

    class OnnxParser:
        num_errors = 0 if parses else 1

        def __init__(self, network, logger):
            pass

        def parse_from_file(self, path):
            seen.parsed = path
            return parses

        def get_error(self, index):
            return "no importer for Foo"

    class Logger:
        VERBOSE, WARNING = "verbose", "warning"

        def __init__(self, severity):
            seen.severity = severity

    inspector = SimpleNamespace(get_engine_information=lambda form: json.dumps({"Layers": [], "form": form}))
    engine = SimpleNamespace(create_engine_inspector=lambda: inspector) if loads else None

    def enum(*names, number=False):
        kept = [name for name in names if name not in lacks]
        return SimpleNamespace(**{name: index if number else name for index, name in enumerate(kept)})

    module = SimpleNamespace(
        __version__=version,
        Builder=Builder,
        OnnxParser=OnnxParser,
        Logger=Logger,
        Runtime=lambda logger: SimpleNamespace(deserialize_cuda_engine=lambda plan: engine),
        ILayer=SimpleNamespace() if "metadata" in lacks else SimpleNamespace(metadata=""),
        BuilderFlag=enum("FP16", "BF16", "TF32", "OBEY_PRECISION_CONSTRAINTS"),
        NetworkDefinitionCreationFlag=enum("EXPLICIT_BATCH", "STRONGLY_TYPED", number=True),
        TensorFormat=enum("LINEAR", "CHW2", "HWC8", "CHW16", number=True),
        ProfilingVerbosity=SimpleNamespace(DETAILED="detailed"),
        LayerInformationFormat=SimpleNamespace(JSON="json"),
        float32=F32,
        float16=F16,
    )
    if "bfloat16" not in lacks:
        module.bfloat16 = BF16
    return module, seen


def run(folder: Path, request: ScriptRequest, module, monkeypatch, name="tensorrt", arguments=()) -> int:
    """Run the script as its user would, with `module` in TensorRT's place; returns the exit code."""
    if not (folder / "m.onnx").exists() and request.onnx == "m.onnx":
        (folder / "m.onnx").write_bytes(b"model")
    script = folder / "build_engine.py"
    script.write_text(build_script(request), encoding="utf-8")
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(sys, "argv", [str(script), *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    return ended.value.code


def weak(*nodes: str | tuple[str, Format], target="trt-10.3+weak", **options) -> ScriptRequest:
    wanted = tuple((node, Format.FP32) if isinstance(node, str) else node for node in nodes)
    return ScriptRequest(Target.parse(target), "m.onnx", nodes=wanted, **options)
