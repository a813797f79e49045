"""A Python build script for a target: self-contained, finds its layers when it runs, and stops where it cannot."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.core.targets import Target, Typing
from halfwise.deploy.layer_names import METADATA_NODE, METADATA_SEPARATORS
from halfwise.deploy.script_run import RUN
from halfwise.deploy.trtexec import InputShape
from halfwise.deploy.trtexec_grammar import IoFormat

__all__ = ["ScriptRequest", "build_script"]


@dataclass(frozen=True)
class ScriptRequest:
    """What the script is to build. Paths that are not absolute are taken from the folder the script lies in.

    `values`: of inputs that may hold a shape, the least, usual and greatest values; TensorRT says whether they do.
    `model_io`: inputs and outputs with a type or layouts of their own; a type for weak typing only.
    `nodes`: ONNX node name -> the format to keep it in; for weak typing only, a typed model says it itself.
    """

    target: Target
    onnx: str
    engine: str = "model.engine"
    layer_info: str = "layers.json"
    outputs: str = "engine-outputs"
    nodes: tuple[tuple[str, Format], ...] = ()
    shapes: tuple[InputShape, ...] = ()
    values: tuple[InputShape, ...] = ()
    tf32: bool = True
    model_io: tuple[tuple[str, IoFormat], ...] = ()


def build_script(request: ScriptRequest) -> str:
    """The text of the script; raises InputError where the target cannot be built this way."""
    builder = request.target.runtime.builder
    if builder is None:
        raise InputError(
            f"target {request.target}: a build script is for TensorRT; name a version, e.g. --target trt-10.9"
        )
    weak = request.target.typing is Typing.WEAK
    _check_nodes(request, weak)
    # In a raw string: JSON text has no bare triple quote, and ends with a brace, so any name is safe in it.
    settings = json.dumps(_settings(request, weak), indent=2)
    text = _HEAD.replace("@SETTINGS@", settings) + _PARSE + (_WEAK if weak else _STRONG)
    if request.model_io:
        text += _MODEL_IO
    text += RUN + _BUILD.replace("@MODEL_IO@", _SET_MODEL_IO if request.model_io else "")
    # Last, so that no name in the settings can be taken for a mark.
    head, _, tail = text.partition("@MODULES@")
    return head + repr(builder.modules) + tail


def _check_nodes(request: ScriptRequest, weak: bool) -> None:
    """Refuse precisions of nodes that the target does not take."""
    target = request.target
    if weak and not target.within("8.6"):
        raise InputError(
            f"target {target}: TensorRT before 8.6 does not tell which ONNX node a layer came from; "
            "use the trtexec command, or TensorRT 8.6 or later"
        )
    if request.nodes and not weak:
        raise InputError(
            f"target {target}: a strongly typed build takes no precisions for nodes; give it the typed ONNX model"
        )
    for name, fmt in request.nodes:
        if not target.supports(fmt):
            raise InputError(f"node {name!r} cannot be {fmt.value}: {target.why_not(fmt)}")


def _settings(request: ScriptRequest, weak: bool) -> dict[str, Any]:
    """What the script builds, and from what."""
    settings: dict[str, Any] = {
        "target": str(request.target),
        "model": request.onnx,
        "engine": request.engine,
        "layer_info": request.layer_info,
        "outputs": request.outputs,
        "tf32": request.tf32,
        "shapes": {shape.name: [shape.minimum, shape.optimum, shape.maximum] for shape in request.shapes},
        "values": {held.name: [held.minimum, held.optimum, held.maximum] for held in request.values},
    }
    if request.model_io:
        settings["model_io"] = {
            name: {"type": each.type if weak and each.type in ("fp32", "fp16") else None, "layouts": each.layouts}
            for name, each in request.model_io
        }
    if weak:
        settings["nodes"] = {name: fmt.value for name, fmt in request.nodes}
    else:
        # TensorRT 11 is strongly typed without being asked, and calls the flag deprecated.
        settings["strongly_typed_flag"] = not request.target.within("11.0")
    return settings


_HEAD = '''\
#!/usr/bin/env python3
"""Builds a TensorRT engine from a plan of halfwise.

Exit code: 0 built; 1 a node was not found or the build failed; 2 the model or its shapes are not usable;
3 TensorRT is missing or cannot do this. With --verbose it prints TensorRT's whole log.
With --run FOLDER it runs the engine that was built on the .npz files of inputs in a folder.
"""
import ctypes
import importlib
import json
import re
import sys
from pathlib import Path

MODULES = @MODULES@
# shapes: [min, opt, max] of each input with dynamic shape, from the samples; the engine accepts nothing outside them.
# values: [min, opt, max] of the contents of each input that is a shape tensor.
SETTINGS = json.loads(r"""
@SETTINGS@
""")
HERE = Path(__file__).resolve().parent


class Stop(Exception):
    """Ends the script with a message and an exit code."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def import_tensorrt():
    for name in MODULES:
        try:
            return importlib.import_module(name)
        except ImportError as error:
            reason = error
    raise Stop(3, "cannot import {}: {}".format(" or ".join(MODULES), reason))


def say(text):
    print(text, file=sys.stderr)


'''

_PARSE = """\
def parse(trt, logger, builder, flags):
    network = builder.create_network(flags)
    parser = trt.OnnxParser(network, logger)
    model = HERE / SETTINGS["model"]
    if not model.is_file():
        raise Stop(2, "{}: no such file".format(model))
    if not parser.parse_from_file(str(model)):
        for index in range(parser.num_errors):
            say("parser: {}".format(parser.get_error(index)))
        raise Stop(2, "{}: TensorRT's parser refuses this model".format(model))
    return network


def set_shapes(builder, config, network):
    shapes, values = SETTINGS["shapes"], SETTINGS["values"]
    inputs = [network.get_input(index) for index in range(network.num_inputs)]
    holding = [tensor.name for tensor in inputs if tensor.is_shape_tensor]
    dynamic = [tensor.name for tensor in inputs if -1 in tuple(tensor.shape) and not tensor.is_shape_tensor]
    for names, known, what in ((dynamic, shapes, "shape"), (holding, values, "value")):
        missing = [name for name in names if name not in known]
        if missing:
            told = "the {0} of input {1} is dynamic: add [min, opt, max] to {0}s in SETTINGS"
            raise Stop(2, told.format(what, missing[0]))
    if dynamic or holding:
        profile = builder.create_optimization_profile()
        for name in dynamic:
            profile.set_shape(name, *[tuple(shape) for shape in shapes[name]])
        for name in holding:
            profile.set_shape_input(name, *[tuple(row) for row in values[name]])
        config.add_optimization_profile(profile)


"""

_WEAK = f'''\
SEPARATORS = {METADATA_SEPARATORS!r}
ONNX_LAYER = re.compile({METADATA_NODE!r}, re.DOTALL)


def onnx_nodes(metadata):
    """The ONNX nodes that a layer was made from."""
    parts = [ONNX_LAYER.fullmatch(part) for part in re.split(SEPARATORS, metadata or "")]
    return [part.group("node") for part in parts if part]


def layers_by_node(network):
    found = {{}}
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        for node in onnx_nodes(layer.metadata):
            found.setdefault(node, []).append(layer)
    return found


def tensors(layer):
    inputs = [layer.get_input(index) for index in range(layer.num_inputs)]
    outputs = [layer.get_output(index) for index in range(layer.num_outputs)]
    return [tensor for tensor in inputs if tensor is not None], outputs


def keep(layer, dtype, floats):
    """Ask for `dtype` in a layer and on its float outputs; integer and shape layers stay as they are."""
    inputs, outputs = tensors(layer)
    if inputs and inputs[0].is_shape_tensor:
        return False
    if not any(tensor.dtype in floats for tensor in inputs + outputs):
        return False
    layer.precision = dtype
    for index, tensor in enumerate(outputs):
        if tensor.dtype in floats:
            layer.set_output_type(index, dtype)
    return True


def network_and_config(trt, logger, builder):
    flag = trt.BuilderFlag
    for name in ("FP16", "OBEY_PRECISION_CONSTRAINTS"):
        if not hasattr(flag, name):
            raise Stop(3, "TensorRT {{}} has no weak typing: build the typed model instead".format(trt.__version__))
    if not hasattr(trt.ILayer, "metadata"):
        raise Stop(3, "TensorRT {{}} has no layer metadata; it came with 8.6".format(trt.__version__))
    creation = trt.NetworkDefinitionCreationFlag
    flags = 1 << int(creation.EXPLICIT_BATCH) if hasattr(creation, "EXPLICIT_BATCH") else 0
    network = parse(trt, logger, builder, flags)
    config = builder.create_builder_config()
    config.set_flag(flag.FP16)
    config.set_flag(flag.OBEY_PRECISION_CONSTRAINTS)
    wanted = SETTINGS["nodes"]
    dtypes = {{"fp32": trt.float32, "fp16": trt.float16}}
    if "bf16" in wanted.values():
        if not (hasattr(flag, "BF16") and hasattr(trt, "bfloat16")):
            raise Stop(3, "TensorRT {{}} has no BF16".format(trt.__version__))
        config.set_flag(flag.BF16)
        dtypes["bf16"] = trt.bfloat16
    found = layers_by_node(network)
    unresolved = [node for node in wanted if node not in found]
    for node in unresolved:
        say("not found: no layer came from ONNX node {{}}".format(json.dumps(node)))
    if unresolved:
        raise Stop(1, "{{}} of {{}} nodes not found, nothing built".format(len(unresolved), len(wanted)))
    layers = [(layer, dtypes[fmt]) for node, fmt in wanted.items() for layer in found[node]]
    kept = sum(keep(layer, dtype, set(dtypes.values())) for layer, dtype in layers)
    say("kept out of FP16: nodes {{}}, layers {{}}".format(len(wanted), kept))
    return network, config


'''

_STRONG = """\
def network_and_config(trt, logger, builder):
    creation = trt.NetworkDefinitionCreationFlag
    flags = 1 << int(creation.EXPLICIT_BATCH) if hasattr(creation, "EXPLICIT_BATCH") else 0
    # Also set where a release with weak typing runs a script that was written for a later one.
    if SETTINGS["strongly_typed_flag"] or hasattr(trt.BuilderFlag, "FP16"):
        if not hasattr(creation, "STRONGLY_TYPED"):
            raise Stop(3, "TensorRT {} has no strong typing; it came with 9.1".format(trt.__version__))
        flags |= 1 << int(creation.STRONGLY_TYPED)
    network = parse(trt, logger, builder, flags)
    narrow = [getattr(trt, name) for name in ("float16", "bfloat16") if hasattr(trt, name)]
    layers = [network.get_layer(index) for index in range(network.num_layers)]
    if not any(layer.get_output(0).dtype in narrow for layer in layers if layer.num_outputs):
        say("note: no tensor of this model is FP16, so neither is the engine")
    return network, builder.create_builder_config()


"""

_SET_MODEL_IO = """\
    set_model_io(trt, network)
"""

_MODEL_IO = """\
def set_model_io(trt, network):
    inputs = [network.get_input(index) for index in range(network.num_inputs)]
    outputs = [network.get_output(index) for index in range(network.num_outputs)]
    tensors = {tensor.name: tensor for tensor in inputs + outputs}
    types = {"fp32": trt.float32, "fp16": trt.float16}
    for name, wanted in SETTINGS["model_io"].items():
        if name not in tensors:
            raise Stop(2, "the model has no input or output {}".format(json.dumps(name)))
        if wanted["type"]:
            tensors[name].dtype = types[wanted["type"]]
        formats = 0
        for layout in wanted["layouts"]:
            known = "LINEAR" if layout == "chw" else layout.upper()
            if not hasattr(trt.TensorFormat, known):
                raise Stop(3, "TensorRT {} has no memory layout {}".format(trt.__version__, layout))
            formats |= 1 << int(getattr(trt.TensorFormat, known))
        tensors[name].allowed_formats = formats


"""

_BUILD = """\
def write_whole(name, content):
    part = HERE / (name + ".part")
    part.write_bytes(content)
    part.replace(HERE / name)


def write_layer_info(trt, logger, plan):
    engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
    if engine is None:
        say("note: the engine cannot be loaded here, so no layer info was written")
        return
    info = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
    write_whole(SETTINGS["layer_info"], info.encode("utf-8"))


def build():
    trt = import_tensorrt()
    logger = trt.Logger(trt.Logger.VERBOSE if "--verbose" in sys.argv else trt.Logger.WARNING)
    builder = trt.Builder(logger)
    network, config = network_and_config(trt, logger, builder)
    if not SETTINGS["tf32"]:
        config.clear_flag(trt.BuilderFlag.TF32)
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
@MODEL_IO@    set_shapes(builder, config, network)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise Stop(1, "the build failed; TensorRT's messages above say why")
    write_whole(SETTINGS["engine"], plan)
    write_layer_info(trt, logger, plan)


def main():
    if {"-h", "--help"} & set(sys.argv):
        print(__doc__)
        return 0
    try:
        if "--run" in sys.argv:
            folder = sys.argv[sys.argv.index("--run") + 1 :]
            if not folder:
                raise Stop(2, "--run: name a folder with .npz files of inputs")
            run(folder[0])
            return 0
        build()
    except Stop as stop:
        say(str(stop))
        return stop.code
    say("built {}".format(HERE / SETTINGS["engine"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
"""
