"""Which layers a node became: from registrations, from metadata, and where names collide."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfwise.compiler.buildlog.layer_text import nodes_of_metadata
from halfwise.core.errors import InputError
from halfwise.core.notes import NoteKind
from halfwise.core.targets import Target
from halfwise.deploy.layer_names import LayerMap, nodes_in_metadata, read_registrations, shadowed_names
from halfwise.deploy.trtexec import InputShape, LayerPrecision, TrtexecRequest, trtexec_command
from tests.support.messages import kinds, only
from tests.support.says import Says
from tests.support.trtexec_cases import request

COLLISION = """\
[07/07/2026-02:10:59] [V] [TRT] Registering layer: node_linear for ONNX node: node_linear
[07/07/2026-02:10:59] [V] [TRT] Registering layer: gemm1.bias required by ONNX-TRT
[07/07/2026-02:10:59] [V] [TRT] Registering layer: node_linear_1 for ONNX node: node_linear
[07/07/2026-02:10:59] [V] [TRT] node_linear_1 [Gemm] inputs: [relu -> (-1, 1024)[FLOAT]],
[07/07/2026-02:10:59] [V] [TRT] Registering layer: node_linear_1_2 for ONNX node: node_linear_1
[07/07/2026-02:10:59] [V] [TRT] Registering layer: ONNXTRT_Broadcast_4 required by ONNX-TRT
[07/07/2026-02:10:59] [V] [TRT] Registering layer: node_linear_1_5 for ONNX node: node_linear_1
"""


def test_a_helper_layer_may_take_another_nodes_name():
    layers = LayerMap.from_log(COLLISION.splitlines())
    assert layers.layers_of("node_linear") == ("node_linear", "node_linear_1")
    assert layers.layers_of("node_linear_1") == ("node_linear_1_2", "node_linear_1_5")
    assert layers.nodes["node_linear_1"] == "node_linear"
    assert layers.nodes["ONNXTRT_Broadcast_4"] is None
    assert layers.layers_of("absent") == ()
    assert "gemm1.bias" in layers.all_layers


def test_the_command_for_the_second_linear_names_its_own_layers():
    layers = LayerMap.from_log(COLLISION.splitlines())
    wanted = layers.layers_of("node_linear_1")
    command = trtexec_command(request("trt-10.16.1+weak", *wanted, known_layers=layers.all_layers))
    assert "--layerPrecisions=node_linear_1_2:fp32,node_linear_1_5:fp32" in command.argv


def test_a_model_parsed_twice_is_one_map_and_two_models_are_refused(says: Says):
    once = list(read_registrations(COLLISION.splitlines()))
    assert LayerMap.from_registrations(once + once) == LayerMap.from_registrations(once)
    with pytest.raises(InputError) as caught:
        LayerMap.from_registrations([*once, ("node_linear_1", "other")])
    says(caught.value)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("[ONNX Layer: a]", ("a",)),
        ("[ONNX Layer: a]\x1e[ONNX Layer: b]\x1f[ONNX Layer: a]", ("a", "b")),
        ("[ONNX Layer: b | Local Function: Block_1]", ("b",)),
        ("[ONNX Layer: b | then (If_3) | f(x)]", ("b",)),
        ("[ONNX Layer: a | b]", ("a | b",)),
        ("[ONNX Layer: a][ONNX Layer: b]", ("a", "b")),
        ("[ONNX Layer: x[0]]\x1f[ONNX Layer: y]z]", ("x[0]", "y]z")),
        ("[ONNX Layer: a]\x1f[ONNX Layer: cut o", ("a",)),
        ("", ()),
    ],
)
def test_metadata(text, nodes):
    assert nodes_in_metadata(text) == nodes


@given(
    st.lists(
        st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\x1e\x1f|"), min_size=1), unique=True
    )
)
def test_any_names_in_metadata_are_found_and_the_audit_finds_the_same(nodes):
    metadata = "\x1f".join(f"[ONNX Layer: {node}]" for node in nodes)
    assert nodes_in_metadata(metadata) == tuple(nodes) == nodes_of_metadata(metadata)


def test_shadowed_names():
    assert shadowed_names(["X", "X_1", "Y_2", "X_1_5", "X_a"]) == (("X_1", "X"), ("X_1_5", "X_1"))
    assert shadowed_names(["X_1", "Y_2"], ["X", "Z"]) == (("X_1", "X"),)


def test_a_name_that_may_be_another_nodes_second_layer_is_told_even_where_the_plan_has_but_one_of_them():
    """The collision of node_linear and node_linear_1, seen in 10.16: the second name is the first one's bias."""
    layers = (LayerPrecision("node_linear_1"),)
    nodes = ("node_linear", "node_linear_1", "node_softmax")
    told = trtexec_command(TrtexecRequest(Target.parse("trt-8.6"), "m.onnx", layers=layers, nodes=nodes)).notes
    assert only(told, NoteKind.NAME_SHADOWED).values == {"other": "node_linear"}
    alone = trtexec_command(TrtexecRequest(Target.parse("trt-8.6"), "m.onnx", layers=layers)).notes
    assert NoteKind.NAME_SHADOWED not in kinds(alone)


@pytest.mark.parametrize("target", ["trt-8.6", "trt-10.9", "trt-11.4", "rtx-1.7"])
def test_the_limits_of_open_shapes_are_told(target, says: Says):
    shapes = (InputShape("x", (1, 8), (4, 8), (9, 8)), InputShape("y", (2, 2), (2, 2), (2, 2)))
    notes = trtexec_command(TrtexecRequest(Target.parse(target), "m.onnx", shapes=shapes)).notes
    (note,) = [note for note in notes if "limits" in note.values]
    says(note.values["limits"])


def test_inputs_of_one_shape_are_told_together(says: Says) -> None:
    cache = [InputShape(f"past.{n}", (1, 4, 16), (1, 4, 16), (1, 4, 16)) for n in range(24)]
    shapes = (*cache, InputShape("ids", (1, 1), (1, 8), (1, 16)), InputShape("mask", (1, 1), (1, 8), (1, 16)))
    notes = trtexec_command(TrtexecRequest(Target.parse("trt-11.0"), "m.onnx", shapes=shapes)).notes
    says(only(notes, NoteKind.SHAPE_LIMITS).values["limits"])
