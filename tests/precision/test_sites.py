"""Where precision is a choice: against ONNX's schemas of every opset, and the rules that go beyond them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.defs
import pytest
from onnx import TensorProto

from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.model.model import load
from halfwise.model.moving import MOVES
from halfwise.model.ops import CLOSED, PARAMETER_SLOTS, slot_rule, takes_any_format
from halfwise.precision.sites import Site, Sites
from tests.models.build import f32, graph, model, node, value, weight

EVERY_SCHEMA = [s for s in onnx.defs.get_all_schemas_with_history() if not s.domain and not s.deprecated]
TYPE_NAME = {Format.FP16: "tensor(float16)", Format.BF16: "tensor(bfloat16)"}


def sites(proto: onnx.ModelProto, fmt: Format = Format.FP16) -> dict[str, Site]:
    return {site.name: site for site in Sites(load(proto), fmt).all}


def slots(site: Site) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
    return site.inputs, site.outputs


# -- schemas ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", TYPE_NAME)
def test_nothing_narrows_that_a_schema_of_any_opset_forbids(fmt: Format) -> None:
    for schema in EVERY_SCHEMA:
        rule = slot_rule(schema.name, "", schema.since_version, fmt)
        allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
        for formal, flags in ((schema.inputs, rule.inputs), (schema.outputs, rule.outputs)):
            for parameter, (narrows, letter) in zip(formal, flags, strict=bool(flags)):
                if narrows:
                    assert letter == parameter.type_str or schema.name == "DequantizeLinear"  # it follows its scale
                    assert TYPE_NAME[fmt] in allowed[letter], (schema.name, schema.since_version)


@pytest.mark.parametrize("fmt", TYPE_NAME)
def test_slots_that_must_agree_narrow_together(fmt: Format) -> None:
    for schema in EVERY_SCHEMA:
        rule = slot_rule(schema.name, "", schema.since_version, fmt)
        by_letter: dict[str, set[bool]] = {}
        for index, (narrows, letter) in enumerate(rule.inputs):
            if not takes_any_format(schema.name, "", index):
                by_letter.setdefault(letter, set()).add(narrows)
        for narrows, letter in rule.outputs:
            if letter in by_letter:
                by_letter[letter].add(narrows)
        mixed = [letter for letter, flags in by_letter.items() if len(flags) > 1]
        assert not mixed, (schema.name, schema.since_version)


def test_tables_name_operators_that_exist() -> None:
    known = {schema.name for schema in onnx.defs.get_all_schemas_with_history()}
    assert known >= MOVES | CLOSED | set(PARAMETER_SLOTS)


def test_what_the_schemas_are_known_to_demand() -> None:
    def why(op: str, version: int, fmt: Format = Format.FP16) -> Note | None:
        return slot_rule(op, "", version, fmt).why

    def no_form(op: str, version: int, fmt: str = "FP16") -> Note:
        return Note.of(NoteKind.NO_NARROW_FORM, op, version=version, format=fmt)

    assert why("NonMaxSuppression", 11) == no_form("NonMaxSuppression", 11)
    assert why("Range", 11) == no_form("Range", 11)
    assert why("Celu", 12) == no_form("Celu", 12)
    assert why("Conv", 11, Format.BF16) == no_form("Conv", 11, "BF16")
    assert why("Conv", 22, Format.BF16) is None
    assert why("Conv", 7) is None
    assert why("Gelu", 17) == Note.of(NoteKind.NOT_IN_OPSET, "Gelu", version=17)
    resize = slot_rule("Resize", "", 19, Format.FP16)
    assert [narrows for narrows, _ in resize.inputs] == [True, False, False, False]
    norm = slot_rule("BatchNormalization", "", 9, Format.FP16)
    assert all(narrows for narrows, _ in norm.inputs)


# -- nodes of a model ------------------------------------------------------------------------------------------------


def test_a_free_node_and_its_slots() -> None:
    found = sites(
        model(
            [node("Clip", "x low -", "a"), node("TopK", "a k", "v i"), node("Shape", "v", "s")],
            [value("x")],
            [value("v", shape=None), value("i", TensorProto.INT64, None), value("s", TensorProto.INT64, None)],
            [weight("low", np.float32(0)), weight("k", np.array([2]))],
        )
    )
    assert slots(found["n_a"]) == ((True, True, False), (True,))
    assert slots(found["n_v"]) == ((True, False), (True, False))
    assert not found["n_s"].free
    assert not found["n_s"].has_fp32


def test_outputs_that_stay_in_fp32() -> None:
    found = sites(
        model(
            [node("LayerNormalization", "x g", "y mean deviation")],
            [value("x")],
            [value("y"), value("mean", shape=None), value("deviation", shape=None)],
            [weight("g", f32(1, 1, 1, 1))],
        )
    )
    assert slots(found["n_y"]) == ((True, True), (True, False, False))


def test_a_cast_takes_what_is_stored_and_its_result_is_the_choice() -> None:
    found = sites(
        model(
            [
                node("Cast", "x", "i", to=TensorProto.INT64),
                node("Cast", "i", "f", to=TensorProto.FLOAT),
                node("Cast", "f", "h", to=TensorProto.FLOAT16),
                node("Cast", "h", "y", to=TensorProto.FLOAT),
            ],
            [value("x")],
            [value("y")],
        )
    )
    assert found["n_i"].pinned == found["n_h"].pinned == Note.of(NoteKind.NO_FP32_TENSOR)
    assert slots(found["n_f"]) == slots(found["n_y"]) == ((False,), (True,))
    assert all(site.moves for site in found.values())


def test_shape_arithmetic_stays_on_the_host() -> None:
    """Sizes computed in floating point: scaled, floored, and used as a shape; the same steps on data are free."""
    nodes = [
        node("Shape", "x", "s"),
        node("Cast", "s", "sf", to=TensorProto.FLOAT),
        node("Mul", "sf two", "scaled"),
        node("Floor", "scaled", "floored"),
        node("Cast", "floored", "sizes", to=TensorProto.INT64),
        node("Resize", "x - - sizes", "y"),
        node("Mul", "x two", "m"),
        node("Floor", "m", "z"),
    ]
    proto = model(
        nodes,
        [value("x", shape=[1, 1, 2, 2])],
        [value("y", shape=None), value("z", shape=None)],
        [weight("two", np.float32(2))],
    )
    found = sites(proto)
    for name in ("n_scaled", "n_floored"):
        assert found[name].pinned == Note.of(NoteKind.SHAPE_ARITHMETIC)
    assert {name for name, site in found.items() if site.free} == {"n_y", "n_m", "n_z"}


def test_the_condition_of_a_branch_made_from_shapes_stays_on_the_host() -> None:
    body = graph([node("Relu", "x", "t")], [], [value("t", shape=None)])
    other = graph([node("Neg", "x", "e")], [], [value("e", shape=None)])
    proto = model(
        [
            node("Size", "x", "n"),
            node("Cast", "n", "nf", to=TensorProto.FLOAT),
            node("Greater", "nf two", "c"),
            node("If", "c", "y", then_branch=body, else_branch=other),
        ],
        [value("x")],
        [value("y", shape=None)],
        [weight("two", np.float32(2))],
    )
    found = sites(proto)
    assert found["n_c"].pinned == Note.of(NoteKind.SHAPE_ARITHMETIC)
    assert found["n_y"].inputs == (False,)
    assert found["n_y"].outputs == (True,)
    assert found["n_t"].free
    assert found["n_t"].nested


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "why"),
    [
        ("RandomNormalLike", "x", "made", NoteKind.RANDOM),
        ("Bernoulli", "x", "made", NoteKind.RANDOM),
        ("EyeLike", "x", "made", NoteKind.TABLE),
        ("DynamicQuantizeLinear", "x", "made scale_of zero_of", NoteKind.QUANTISATION),
        ("SequenceConstruct", "x x", "made", NoteKind.CONTAINER),
    ],
)
def test_what_stays_as_it_is(op: str, inputs: str, outputs: str, why: NoteKind) -> None:
    proto = model(
        [node("Relu", "x0", "x"), node(op, inputs, outputs), node("Relu", "x", "y")],
        [value("x0", shape=[2, 2])],
        [value("y", shape=[2, 2])],
        [weight("scale", np.float32(0.5))],
    )
    assert sites(proto)["n_made"].pinned == Note.of(why)


def test_a_type_that_nobody_knows_keeps_a_node_as_it_is() -> None:
    """A custom operator without float inputs says nothing of what it makes."""
    proto = model(
        [node("Magic", "i", "m", domain="acme"), node("Relu", "m", "y")],
        [value("i", TensorProto.INT64)],
        [value("y")],
        domains=["acme"],
    )
    assert sites(proto)["n_y"].pinned == Note.of(NoteKind.UNKNOWN_TYPE, "m")


def test_a_scatter_that_adds_computes() -> None:
    proto = model(
        [
            node("ScatterElements", "x i x", "a"),
            node("ScatterElements", "x i x", "b", reduction="add"),
            node("ScatterElements", "x i x", "c", reduction="none"),
        ],
        [value("x"), value("i", TensorProto.INT64)],
        [value("a"), value("b"), value("c")],
    )
    found = sites(proto)
    assert [found[f"n_{name}"].compute for name in "abc"] == [False, True, False]


def test_the_operands_of_an_elementwise_node_narrow_together() -> None:
    """TensorRT wants one type for both, also where ONNX would not: the exponent follows its base."""
    proto = model(
        [node("Pow", "x e", "p"), node("Where", "c p x", "y")],
        [value("x"), value("c", TensorProto.BOOL)],
        [value("y")],
        [weight("e", np.float32(2))],
    )
    found = sites(proto)
    assert slots(found["n_p"]) == ((True, True), (True,))
    assert slots(found["n_y"]) == ((False, True, True), (True,))


def test_every_tensor_narrow_as_given_leaves_nothing_to_choose() -> None:
    proto = model([node("Relu", "x", "y")], [value("x", TensorProto.FLOAT16)], [value("y", TensorProto.FLOAT16)])
    found = Sites(load(proto))
    assert found.free == ()
    assert found.pinned == ()
    assert found.compute_nodes == 0


def test_sites_of_real_models(shared_models: Path) -> None:
    for path in sorted(shared_models.glob("*/model.onnx")):
        found = Sites(load(path))
        assert found.compute_nodes <= len(found.all)
        assert len(found.free) + len(found.pinned) <= len(found.all)
        assert found.compute_nodes > 10, path
        assert all(site.pinned for site in found.pinned)


@pytest.mark.parametrize(("training", "random"), [(None, False), (False, False), (True, True)])
def test_a_dropout_in_training_is_random(training: bool | None, random: bool) -> None:
    given = "x - t" if training is not None else "x"
    weights = [weight("t", np.array(training))] if training is not None else []
    sites = Sites(load(model([node("Dropout", given, "y")], [value("x")], [value("y")], weights)))
    assert (sites.random == "n_y") is random and sites.all[0].free is not random


def test_a_dropout_whose_mode_is_an_input_may_be_random() -> None:
    inputs = [value("x"), value("t", TensorProto.BOOL, ())]
    assert Sites(load(model([node("Dropout", "x - t", "y")], inputs, [value("y")]))).random == "n_y"
