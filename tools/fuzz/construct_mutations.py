"""Constructs that are added to a sound model, in the flow of its values: quantisers, odd types, sequences."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tools.fuzz.attribute_mutations import fill, known_attributes
from tools.fuzz.model_parts import graphs_of, infos_of, names_of, one_of
from tools.fuzz.odd_values import ODD_FLOATS, ODD_TEXTS
from tools.fuzz.splices import Chain, added_weight, fresh, named, spliced

__all__ = [
    "cast_added",
    "constant_added",
    "draw_added",
    "empty_slice_added",
    "graph_output_added",
    "operator_added",
    "optional_added",
    "quantiser_added",
    "rank_added",
    "sequence_added",
    "sequence_map_added",
    "text_added",
    "weight_quantised",
]

_TYPES = tuple(sorted(set(TensorProto.DataType.values()) - {0}))
_QUANTISED = ("UINT8", "INT8", "UINT16", "INT16", "UINT4", "INT4", "FLOAT8E4M3FN", "FLOAT8E5M2", "FLOAT4E2M1", "INT32")


def _tensor(kind: int, shape: list[int], value: float = 0) -> TensorProto:
    """One of any type, of the same value everywhere."""
    count = int(np.prod(shape))
    return helper.make_tensor("t", kind, shape, [value] * count)


def _quantised(random: Random) -> int:
    return int(getattr(TensorProto, random.choice(_QUANTISED)))


def _opset(model: onnx.ModelProto) -> int:
    return max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0)


def quantiser_added(model: onnx.ModelProto, random: Random) -> None:
    """A quantiser and its inverse, of any type, by tensor, axis or block, with or without a zero point."""
    kind = _quantised(random)
    shape: list[int] = random.choice(([], [], [], [1], [4], [8], [0], [2, 2]))
    scale_kind = random.choice((np.float32, np.float32, np.float16, np.float64))
    scale = random.choice((0.02, 0.02, 1.0, *ODD_FLOATS))
    with np.errstate(all="ignore"):
        words = [added_weight(model, "scale", np.full(shape, scale).astype(scale_kind))]
    attributes: dict[str, Any] = {}
    if random.random() < 0.7:
        words.append(added_weight(model, "zero", _tensor(kind, shape)))
    elif random.random() < (0.7 if _opset(model) >= 21 else 0.1):
        attributes["output_dtype"] = kind
    if random.random() < 0.4:
        attributes["axis"] = random.choice((0, 1, -1, 9))
    if random.random() < (0.5 if _opset(model) >= 21 else 0.05):
        attributes["block_size"] = random.choice((0, 1, 2, 3))
    domain = random.choice(("", "", "", "com.microsoft"))
    narrow = fresh(model, "narrow")
    back = {name: value for name, value in attributes.items() if name != "output_dtype"}
    spliced(model, random, lambda read, made: [
        named("QuantizeLinear", [read, *words], [narrow], domain=domain, **attributes),
        named("DequantizeLinear", [narrow, *words], [made], domain=domain, **back),
    ])  # fmt: skip


def weight_quantised(model: onnx.ModelProto, random: Random) -> None:
    """A weight is stored narrow and widened by a node, as weight-only quantisation does."""
    tensor = one_of(random, (t for t in model.graph.initializer if t.data_type == TensorProto.FLOAT and t.dims))
    if tensor is None or min(tensor.dims) < 0 or np.prod(tensor.dims) > 1 << 16:
        return
    shape, name = list(tensor.dims), tensor.name
    axis = random.randrange(len(shape))
    block = random.choice((0, 1, 2)) if _opset(model) >= 21 or random.random() < 0.1 else 0
    wide = [size if block and place == axis else size if place == axis else 1 for place, size in enumerate(shape)]
    scales = added_weight(model, "scales", np.full(wide if block else [shape[axis]], 0.01, np.float32))
    tensor.CopyFrom(_tensor(_quantised(random), shape, 1))
    tensor.name = f"{name}_stored"
    node = named(
        "DequantizeLinear", [tensor.name, scales], [name], axis=axis, **({"block_size": block} if block else {})
    )
    model.graph.node.insert(0, node)


def cast_added(model: onnx.ModelProto, random: Random) -> None:
    """To another type and back, or on."""
    first, then = random.choice(_TYPES), random.choice((TensorProto.FLOAT, TensorProto.FLOAT, random.choice(_TYPES)))
    more = {"saturate": 0} if random.random() < 0.2 else {}
    narrow = fresh(model, "cast")
    if random.random() < 0.8:
        spliced(model, random, lambda read, made: [
            named("Cast", [read], [narrow], to=first, **more), named("Cast", [narrow], [made], to=then)
        ])  # fmt: skip
    else:
        like = added_weight(model, "like", _tensor(first, [1]) if first != TensorProto.STRING else np.zeros(1, "f2"))
        spliced(model, random, lambda read, made: [named("CastLike", [read, like], [made])])


def text_added(model: onnx.ModelProto, random: Random) -> None:
    """String tensors: as weights, constants, made of numbers, and back."""
    text = added_weight(model, "text", TensorProto(data_type=8, dims=[2], string_data=[b"1", b"\xff\xfe"]))
    ways: tuple[Chain, ...] = (
        lambda read, made: [named("Cast", [read], [f"{made}_s"], to=8), named("Cast", [f"{made}_s"], [made], to=1)],
        lambda read, made: [named("Cast", [text], [made], to=1)],
        lambda read, made: [named("Constant", [], [made], value_strings=[each.encode() for each in ODD_TEXTS[:5]])],
        lambda read, made: [named("Constant", [], [made], value_string=b"\xff")],
        lambda read, made: [named("StringConcat", [text, text], [made])],
        lambda read, made: [
            named("StringNormalizer", [text], [f"{made}_n"], case_change_action="LOWER", stopwords=[b"1"]),
            named("Identity", [f"{made}_n"], [made]),
        ],
        lambda read, made: [
            named("LabelEncoder", [text], [made], domain="ai.onnx.ml", keys_strings=["1"], values_floats=[1.0])
        ],
    )  # fmt: skip
    spliced(model, random, random.choice(ways))


def sequence_added(model: onnx.ModelProto, random: Random) -> None:
    """A tensor goes through a sequence."""
    zero, far = added_weight(model, "first", np.array(0, "i8")), added_weight(model, "far", np.array(7, "i8"))
    at = random.choice((zero, zero, far))
    ways: tuple[Chain, ...] = (
        lambda read, made: [
            named("SequenceConstruct", [read, read], [f"{made}_q"]), named("SequenceAt", [f"{made}_q", at], [made])
        ],
        lambda read, made: [
            named("SequenceEmpty", [], [f"{made}_e"], dtype=random.choice(_TYPES)),
            named("SequenceInsert", [f"{made}_e", read], [f"{made}_q"]),
            named("SequenceAt", [f"{made}_q", at], [made]),
        ],
        lambda read, made: [
            named("SplitToSequence", [read], [f"{made}_q"], axis=0, keepdims=random.choice((0, 1))),
            named("SequenceErase", [f"{made}_q", at], [f"{made}_r"]),
            named("ConcatFromSequence", [f"{made}_r"], [made], axis=0, new_axis=random.choice((0, 1))),
        ],
        lambda read, made: [
            named("SequenceConstruct", [read], [f"{made}_q"]), named("SequenceLength", [f"{made}_q"], [made])
        ],
    )  # fmt: skip
    spliced(model, random, random.choice(ways))


def sequence_map_added(model: onnx.ModelProto, random: Random) -> None:
    """A body for each element, which may read what stands around it."""
    outer = random.choice([name for name in names_of(model) if name] or ["absent"])
    item = onnx.ValueInfoProto(name="item")
    if random.random() < 0.7:
        item.type.tensor_type.elem_type = TensorProto.FLOAT
    read_inside = outer if random.random() < 0.3 else "item"
    body = helper.make_graph(
        [named("Add", ["item", read_inside], ["mapped"])], "map", [item], [onnx.ValueInfoProto(name="mapped")]
    )
    zero = added_weight(model, "first", np.array(0, "i8"))
    spliced(model, random, lambda read, made: [
        named("SequenceConstruct", [read, read], [f"{made}_q"]),
        named("SequenceMap", [f"{made}_q"], [f"{made}_m"], body=body),
        named("SequenceAt", [f"{made}_m", zero], [made]),
    ])  # fmt: skip


def optional_added(model: onnx.ModelProto, random: Random) -> None:
    """A tensor that may not be there: as a node, empty, or as an input of the model."""
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2]))
    given = fresh(model, "given")
    ways: tuple[Chain, ...] = (
        lambda read, made: [
            named("Optional", [read], [f"{made}_o"]), named("OptionalGetElement", [f"{made}_o"], [made])
        ],
        lambda read, made: [
            named("Optional", [], [f"{made}_o"], type=kind), named("OptionalGetElement", [f"{made}_o"], [made])
        ],
        lambda read, made: [named("OptionalHasElement", [given], [made])],
        lambda read, made: [named("OptionalGetElement", [given], [made])],
    )  # fmt: skip
    if random.random() < 0.5:
        model.graph.input.append(onnx.ValueInfoProto(name=given, type=kind))
    spliced(model, random, random.choice(ways))


def rank_added(model: onnx.ModelProto, random: Random) -> None:
    """A tensor of many dimensions inside the model, and back."""
    rank = random.choice((5, 8, 9, 30, 32, 33, 40, 64, 65, 100))
    axes = added_weight(model, "axes", np.arange(rank, dtype="i8"))
    wide, back = added_weight(model, "wide", np.array([1] * rank + [-1], "i8")), added_weight(model, "back", np.r_[-1])
    up: dict[str, list[str]] = {"Unsqueeze": [axes], "Reshape": [wide], "Expand": [wide]}
    down: dict[str, list[str]] = {"Squeeze": [axes], "Reshape": [back], "Exp": [], "ReduceSum": []}
    rises, falls = random.choice(sorted(up)), random.choice(sorted(down))
    spliced(model, random, lambda read, made: [
        named(rises, [read, *up[rises]], [f"{made}_u"]), named(falls, [f"{made}_u", *down[falls]], [made])
    ])  # fmt: skip


def empty_slice_added(model: onnx.ModelProto, random: Random) -> None:
    """A tensor of no elements inside the model."""
    nothing = added_weight(model, "none", np.array([0], "i8"))
    empty = added_weight(model, "empty", np.zeros(random.choice(((0,), (0, 3), (2, 0, 4))), np.float32))
    ways: tuple[Chain, ...] = (
        lambda read, made: [named("Slice", [read, nothing, nothing], [made])],
        lambda read, made: [named("Concat", [read, empty], [made], axis=0)],
        lambda read, made: [named("Add", [read, empty], [made])],
        lambda read, made: [
            named("Slice", [read, nothing, nothing], [f"{made}_s"]),
            named(random.choice(("ReduceMax", "ReduceMean", "ReduceSum", "Softmax", "Exp")), [f"{made}_s"], [made]),
        ],
        lambda read, made: [named("NonZero", [empty], [made])],
    )  # fmt: skip
    spliced(model, random, random.choice(ways))


def constant_added(model: onnx.ModelProto, random: Random) -> None:
    """A weight of any type, as an initializer or a node, read where a number was."""
    kind = random.choice(_TYPES)
    shape: list[int] = random.choice(([], [1], [2], [0], [1] * 33, [1, 4], [3, 3]))
    value: Any = b"1" if kind == TensorProto.STRING else 1
    tensor = _tensor(kind, shape, value)
    if random.random() < 0.5:
        weight = added_weight(model, "odd", tensor)
        spliced(model, random, lambda read, made: [named("Identity", [weight], [made])])
    elif random.random() < 0.7:
        spliced(model, random, lambda read, made: [named("Constant", [], [made], value=tensor)])
    else:
        size = added_weight(model, "size", np.array(random.choice(([2, 2], [0], [-1], [1 << 40], [1] * 40)), "i8"))
        spliced(model, random, lambda read, made: [named("ConstantOfShape", [size], [made], value=tensor)])


def draw_added(model: onnx.ModelProto, random: Random) -> None:
    """Numbers that are drawn, with a seed or without."""
    seed = {"seed": random.choice((0.0, 7.0, *ODD_FLOATS))} if random.random() < 0.6 else {}
    op = random.choice(("RandomNormalLike", "RandomUniformLike", "Bernoulli", "Dropout", "Multinomial"))
    narrow = random.choice((TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT32))
    more = {"dtype": narrow} if op != "Dropout" else {}
    seed = {name: int(value) if np.isfinite(value) else 1 for name, value in seed.items()} if op == "Dropout" else seed
    spliced(model, random, lambda read, made: [named(op, [read], [made], **more, **seed)])


def operator_added(model: onnx.ModelProto, random: Random) -> None:
    """Any operator of ONNX, fed with tensors of the model and with odd attributes, before a reader of its kind."""
    schemas = sorted(onnx.defs.get_all_schemas(), key=lambda s: (s.domain, s.name))
    schema = random.choice([s for s in schemas if s.domain == "" or random.random() < 0.1])
    names = [name for name in names_of(model) if name]
    count = random.randint(schema.min_input, min(schema.max_input, schema.min_input + 3))

    def chain(read: str, made: str) -> list[onnx.NodeProto]:
        inputs = [read, *random.choices(names, k=max(0, count - 1))][:count]
        node = named(schema.name, inputs, [made], domain=schema.domain)
        for name, kind in known_attributes(schema):
            if schema.attributes[name].required or random.random() < 0.2:
                fill(node.attribute.add(name=name), kind, random)
        return [node]

    spliced(model, random, chain)


def graph_output_added(model: onnx.ModelProto, random: Random) -> None:
    """An input, a weight, a tensor inside or one of a body is handed out, once more or under no type."""
    graph = random.choice([graph for graph in graphs_of(model) if isinstance(graph, onnx.GraphProto)])
    known = {info.name: info for info in infos_of(model)}
    name = random.choice([name for name in names_of(model) if name] or ["absent"])
    graph.output.append(known[name] if name in known and random.random() < 0.5 else onnx.ValueInfoProto(name=name))
