"""What slots state, held against the schemas of every operator in every opset; and the inputs that hold a shape."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.defs
import pytest
from onnx import TensorProto

from halfwise.core.notes import NoteKind
from halfwise.model.model import load
from halfwise.model.operator_slots import SHAPE_READERS, SLOTS, shape_slots
from halfwise.model.shape_inputs import holds_shape
from halfwise.precision.sites import Sites
from tests.models.build import model, node, value, weight

INT64 = TensorProto.INT64

# What the schemas call a slot that states something.
NAMES = set(
    """size shape image_shape block_shape input axis dft_length axes cond M output_shape num_mel_bins
    max_output_boxes_per_class depth pads start limit delta roi scales sizes frame_step frame_length starts ends
    steps split repeats tiles K k""".split()
)

# Slots that only integers may fill, and that hold data: indices, labels, lengths of what is there, quantised values.
DATA = {
    "Attention": {6}, "BitShift": {0, 1}, "BitwiseAnd": {0, 1}, "BitwiseNot": {0}, "BitwiseOr": {0, 1},
    "BitwiseXor": {0, 1}, "DequantizeLinear": {0, 2}, "Equal": {0, 1}, "GRU": {4}, "Gather": {1},
    "GatherElements": {1}, "GatherND": {1}, "LSTM": {4}, "MaxUnpool": {1}, "MelWeightMatrix": {2},
    "NegativeLogLikelihoodLoss": {1}, "QLinearConv": {8}, "RNN": {4}, "ReverseSequence": {1}, "RoiAlign": {2},
    "RotaryEmbedding": {3}, "Scan": {0}, "Scatter": {1}, "ScatterElements": {1}, "ScatterND": {1},
    "SequenceAt": {1}, "SequenceErase": {1}, "SequenceInsert": {2}, "SoftmaxCrossEntropyLoss": {1},
    "TensorScatter": {2}, "TfIdfVectorizer": {0},
}  # fmt: skip


def schemas() -> list[onnx.defs.OpSchema]:
    return [schema for schema in onnx.defs.get_all_schemas_with_history() if not schema.domain]


def types(schema: onnx.defs.OpSchema, slot: int) -> set[str]:
    kind = schema.inputs[slot].type_str
    return next((set(c.allowed_type_strs) for c in schema.type_constraints if c.type_param_str == kind), {kind})


def test_every_slot_is_one_of_the_schema_and_named_so_in_every_opset() -> None:
    there: dict[tuple[str, int], set[str]] = {}
    for schema in schemas():
        for slot in SLOTS.get(schema.name, ()):
            if slot < len(schema.inputs):
                there.setdefault((schema.name, slot), set()).add(schema.inputs[slot].name)
    assert set(there) == {(op, slot) for op, slots in SLOTS.items() if onnx.defs.has(op) for slot in slots}
    assert set().union(*there.values()) == NAMES


def test_no_slot_of_integers_alone_is_forgotten() -> None:
    forgotten = {
        f"{schema.name}-{schema.since_version}: {parameter.name}"
        for schema in schemas()
        for slot, parameter in enumerate(schema.inputs)
        if types(schema, slot) & {"tensor(int32)", "tensor(int64)"}
        and not any("float" in kind for kind in types(schema, slot))
        and slot not in SLOTS.get(schema.name, ())
        and slot not in DATA.get(schema.name, ())
    }
    assert forgotten == set()


def test_what_looks_at_a_shape_only_takes_a_tensor_of_any_type() -> None:
    for schema in schemas():
        if schema.name in SHAPE_READERS:
            assert len(schema.inputs) == 1 and len(types(schema, 0)) >= 15
            assert schema.outputs[0].type_str in ("tensor(int64)", "T1")


def test_another_domain_s_operator_states_nothing() -> None:
    assert shape_slots("Reshape") == (1,) and shape_slots("Reshape", "com.microsoft") == ()


# -- inputs that hold a shape -----------------------------------------------------------------------------------------


def held(path: Path, nodes: Sequence[onnx.NodeProto], *, domains: Sequence[str] = (), opset: int = 18) -> bool:
    """Whether the input `n`, two integers, holds a shape in that model of `x`, four by four."""
    weights = [weight("zero", np.zeros(2, np.int64)), weight("one", np.ones(2, np.int64))]
    inputs = [value("x", shape=(4, 4)), value("n", INT64, (2,))]
    proto = model(nodes, inputs, [value("y", shape=None)], weights, opset=opset, domains=domains)
    onnx.save(proto, path)
    graph = load(path).graph
    return holds_shape(next(each for each in graph.inputs if each.name == "n"))


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Reshape", "x n", "y")],
        [node("Slice", "x zero n", "y")],
        [node("Slice", "x zero one zero n", "y")],  # the steps
        [node("Split", "x n", "y z", axis=0)],
        [node("CenterCropPad", "x n", "y")],
        [node("ReduceSum", "x n", "y")],
        [node("Unsqueeze", "x n", "y")],
        [node("Add", "n one", "m"), node("Expand", "x m", "y")],
    ],
)
def test_an_input_whose_value_decides_a_shape_holds_one(tmp_path: Path, nodes: list[onnx.NodeProto]) -> None:
    assert held(tmp_path / "m.onnx", nodes)


@pytest.mark.parametrize(
    ("nodes", "domains"),
    [
        ([node("Shape", "n", "s"), node("Expand", "x s", "y")], ()),  # only its shape is looked at
        ([node("Size", "n", "s"), node("Trilu", "x s", "y")], ()),
        ([node("Gather", "x n", "y")], ()),
        ([node("Cast", "n", "f", to=1), node("Add", "x f", "y")], ()),
        ([node("Reshape", "x n", "y", domain="mine")], ("mine",)),  # whatever that is
    ],
)
def test_an_input_that_is_data_does_not(tmp_path: Path, nodes: list[onnx.NodeProto], domains: Sequence[str]) -> None:
    assert not held(tmp_path / "m.onnx", nodes, domains=domains)


# -- shape arithmetic -------------------------------------------------------------------------------------------------


def test_what_computes_the_size_of_a_table_is_shape_arithmetic(tmp_path: Path) -> None:
    """A number of bins computed from a shape, in floating point on the way, is no tensor to round."""
    nodes = [
        node("Size", "x", "s"),
        node("Cast", "s", "f", to=1),
        node("Mul", "f half", "h"),
        node("Cast", "h", "bins", to=INT64),
        node("MelWeightMatrix", "bins eight rate low high", "mel"),
        node("MatMul", "x mel", "y"),
    ]
    weights = [
        weight("half", np.float32(0.5)), weight("eight", np.int64(6)), weight("rate", np.int64(8000)),
        weight("low", np.float32(0)), weight("high", np.float32(4000)),
    ]  # fmt: skip
    proto = model(nodes, [value("x", shape=(4, 4))], [value("y", shape=None)], weights, opset=18)
    onnx.save(proto, tmp_path / "m.onnx")
    sites = Sites(load(tmp_path / "m.onnx"))
    (site,) = [site for site in sites.all if site.node.op_type == "Mul"]
    assert site.pinned is not None and site.pinned.kind is NoteKind.SHAPE_ARITHMETIC
