"""The audit of regions: what a Myelin region of TensorRT 8.6 swallowed, proven or not."""

from __future__ import annotations

import json

import pytest

from halfwise.compiler.audit import NodeInfo, audit
from halfwise.compiler.buildlog import read_lines, read_log
from halfwise.compiler.buildlog.layer_text import region_ends
from halfwise.compiler.layers import EngineLayers, layers_from_log, read_layers
from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from tests.support.audit_cases import DATA, REGION_LOG, fp32, nodes, of_log, verdict
from tests.support.messages import kinds

NORM = ("/norm/ReduceMean", "/norm/Sub", "/norm/Pow", "/norm/ReduceMean_1", "/norm/Sqrt", "/norm/Div")


def test_layernorm_in_a_half_region_is_a_violation_proven_by_the_warning() -> None:
    """TensorRT itself names four of the layers as LayerNorm in FP16: those ran in FP16, whatever was asked for."""
    result = of_log(read_log(REGION_LOG), "/norm/Pow")
    (violation,) = result.violations
    assert (violation.node, violation.wanted, violation.got) == ("/norm/Pow", "fp32", "fp16")
    assert violation.kernels == ("{ForeignNode[/norm/ReduceMean.../out/MatMul]}",)
    assert kinds(violation.messages) == [NoteKind.NORM_WARNED]


def test_what_no_warning_names_is_unproven_and_still_a_violation() -> None:
    """Nothing visible shows an FP32 value (the region reads and writes Half), so the wish is broken."""
    result = of_log(read_log(REGION_LOG), *NORM)
    assert {v.node: v.got for v in result.violations} == {
        "/norm/ReduceMean": "fp16",
        "/norm/Sub": "unproven",
        "/norm/Pow": "fp16",
        "/norm/ReduceMean_1": "unproven",
        "/norm/Sqrt": "fp16",
        "/norm/Div": "fp16",
    }
    assert result.unproven == ()
    assert verdict(result, "/norm/Sub") == ("unknown", "region-only")
    assert kinds(nodes(result)["/norm/Sub"].notes) == [NoteKind.IN_REGION]
    assert verdict(result, "/in/Conv") == ("fp32", "exact")


def test_a_region_with_float_borders_can_neither_be_proven_nor_counted() -> None:
    lines = REGION_LOG.read_text(encoding="utf-8").replace("(Half[", "(Float[").replace("Detected layernorm", "x")
    result = of_log(read_lines(lines.split("\n")), "/norm/Sub")
    assert result.violations == ()
    assert [violation.node for violation in result.unproven] == ["/norm/Sub"]


def test_a_build_that_allowed_fp32_only_proves_its_regions() -> None:
    lines = REGION_LOG.read_text(encoding="utf-8").replace("(Half[", "(Float[").replace("Detected layernorm", "x")
    plain = lines.replace("Precision: FP32+FP16 (obey precision constraints)", "Precision: FP32")
    result = of_log(read_lines(plain.split("\n")), *NORM)
    assert (result.violations, result.unproven) == ((), ())
    assert verdict(result, "/norm/Sub") == ("fp32", "region-only")


def test_nodes_outside_the_region_are_not_put_into_it() -> None:
    lines = REGION_LOG.read_text(encoding="utf-8")
    extra = (
        "[V] /late/Exp [Exp] outputs: [z -> (1)[FLOAT]], \n[V] Registering layer: /late/Exp for ONNX node: /late/Exp\n"
    )
    marker = "[02/03/2025-10:11:12] [W] [TRT] Detected"
    result = of_log(read_lines(lines.replace(marker, extra + marker).split("\n")))
    assert verdict(result, "/late/Exp") == ("unknown", "unknown")


def test_the_logs_own_list_of_a_region_decides_where_there_is_one() -> None:
    log = read_log(DATA / "logs" / "strategies_10.16_weak.log")
    infos = [NodeInfo(name, "X") for name in ("/a/Conv", "/a/Relu", "/m/MatMul", "/s/Softmax", "/gone")]
    result = audit(layers_from_log(log), log, infos)
    assert {node.node: node.coverage for node in result.nodes} == {
        "/a/Conv": "exact",
        "/a/Relu": "exact",
        "/m/MatMul": "region-only",
        "/s/Softmax": "region-only",
        "/gone": "folded",
    }
    assert result.notes[0] == Note.of(NoteKind.REGIONS_OPAQUE, count=1)


def region_json(*regions: str, fmt: str = "Row major linear FP16 format") -> EngineLayers:
    tensor = {"Name": "t", "Dimensions": [1, 8], "Format/Datatype": fmt}
    shapes = {"Name": "[HostToDeviceCopy 0]", "LayerType": "ShapeHostToDevice", "Inputs": [], "Outputs": [tensor]}
    moved = {"Name": "/view", "LayerType": "Shuffle", "Inputs": [tensor], "Outputs": [tensor]}
    found = [{"Name": name, "LayerType": "Myelin", "Inputs": [tensor], "Outputs": [tensor]} for name in regions]
    return read_layers(json.dumps({"Layers": [shapes, moved, *found], "Bindings": ["t"]}))


def test_without_a_model_a_region_names_its_two_ends_and_nothing_else_is_made_up() -> None:
    result = audit(region_json("{ForeignNode[/norm/Mean...(Unnamed Layer* 7) [Shuffle] + /norm/Div]}"))
    assert {node.node: (node.coverage, node.compute) for node in result.nodes} == {
        "/view": ("exact", False),
        "/norm/Mean": ("region-only", True),
        "/norm/Div": ("region-only", True),
    }
    inside = (Note.of(NoteKind.IN_REGION, types=["FP16"]),)
    assert all(node.notes == inside for node in result.nodes if node.compute)


def test_without_a_model_a_node_that_may_be_in_a_region_is_no_pass() -> None:
    engine = region_json("{ForeignNode[/norm/Mean.../norm/Div]}")
    result = audit(engine, None, None, fp32("/norm/Sqrt"))
    (unproven,) = result.unproven
    assert unproven.node == "/norm/Sqrt"
    assert list(unproven.messages) == [Note.of(NoteKind.MAYBE_IN_REGION, regions=1)]
    assert not result.kept
    infos = [NodeInfo(name, "X") for name in ("/norm/Mean", "/norm/Sqrt", "/norm/Div")]
    told = audit(engine, None, infos, fp32("/norm/Sqrt"))
    assert [list(v.messages) for v in told.violations] == [[Note.of(NoteKind.IN_REGION, types=["FP16"])]]


def test_a_region_begins_and_ends_where_its_fused_ends_do() -> None:
    engine = region_json("{ForeignNode[PWN(PWN(s1, s2), s3)...e1 + e2]}")
    names = ("before", "s1", "s2", "s3", "middle", "e1", "e2", "behind")
    result = audit(engine, None, [NodeInfo(name, "X") for name in names])
    inside = {node.node for node in result.nodes if node.coverage == "region-only"}
    assert inside == set(names) - {"before", "behind"}


def test_the_types_around_a_region_are_told_as_they_are() -> None:
    def why(fmt: str) -> tuple[Note, ...]:
        return audit(region_json("{ForeignNode[a...b]}", fmt=fmt), None, None, fp32("a")).nodes[-1].notes

    assert why("Row major linear FP32") == (Note.of(NoteKind.IN_REGION, types=["FP32"]),)
    assert why("N/A due to dynamic shapes") == (Note.of(NoteKind.IN_REGION_UNTYPED),)


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("{ForeignNode[a...b]}", ("a", "b")),
        ("{ForeignNode[m.emb.weight.../Sub]}", ("m.emb.weight", "/Sub")),
        ("{ForeignNode[dot....b]}", ("dot.", "b")),
        ("{ForeignNode[w + ONNXTRT_Broadcast_4...ONNXTRT_castHelper_9]}", ("w",)),
        ("{ForeignNode[only]}", ("only",)),
        ("{ForeignNode[a[0]...b, c]}", ("a[0]", "b, c")),
    ],
)
def test_the_ends_of_a_region(name: str, ends: tuple[str, ...]) -> None:
    assert region_ends(name) == ends


def test_the_members_of_a_region_come_from_the_log_where_it_lists_them() -> None:
    log = read_lines(
        [
            "[V] ForeignNode {ForeignNode[w.../d]} metadata: [ONNX Layer: /m]\x1e[ONNX Layer: /d]",
            "[V] Engine Layer Information:",
            "Layer(Myelin): {ForeignNode[w.../d]}, Tactic: 0x0, x (Half[4]) -> y (Half[4])",
        ]
    )
    assert [(node.node, node.coverage) for node in of_log(log).nodes] == [("/m", "region-only"), ("/d", "region-only")]


def test_a_wish_for_bf16_in_a_region() -> None:
    engine = region_json("{ForeignNode[a...b]}", fmt="Row major linear BFloat16 format")
    assert audit(engine, None, None, {"a": Format.BF16}).violations == ()
    assert [v.node for v in audit(engine, None, None, fp32("a")).violations] == ["a"]
