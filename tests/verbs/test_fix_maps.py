"""Classifiers whose probabilities are a sequence of maps: the tensor behind it is judged, the interface stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from halfwise import fix, scan, verify
from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.core.notes import NoteKind
from halfwise.model.model import load
from tests.models.build import model, node, value, weight
from tests.support.messages import only
from tests.support.says import Says

FEEDS = [{"x": np.random.default_rng(seed).standard_normal((4, 8)).astype(np.float32)} for seed in range(4)]


def classifier(labels: Any, scale: float = 1.0, also: bool = False) -> onnx.ModelProto:
    """Logits behind a large factor and back; `also`: the tensor is an output itself."""
    nodes = [
        node("MatMul", "x w", "a"),
        node("Mul", "a up", "b"),
        node("Mul", "b down", "m"),
        node("Softmax", "m", "p", axis=-1),
        node("ArgMax", "p", "label", axis=1, keepdims=0),
        node("ZipMap", "p", "maps", domain="ai.onnx.ml", **labels),
    ]
    key = TensorProto.INT64 if "classlabels_int64s" in labels else TensorProto.STRING
    kind = helper.make_map_type_proto(key, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    maps = helper.make_value_info("maps", helper.make_sequence_type_proto(kind))
    ends = [value("label", TensorProto.INT64, (4,)), maps, *([value("p", shape=(4, 3))] if also else [])]
    rng = np.random.default_rng(7)
    held = [weight("w", rng.standard_normal((8, 3)).astype(np.float32)), weight("up", np.float32(scale))]
    return model(nodes, [value("x", shape=(4, 8))], ends, [*held, weight("down", np.float32(1 / scale))], opset=13,
                 domains=["ai.onnx.ml"])  # fmt: skip


def ran(given: str | bytes, feed: Any) -> list[Any]:
    return onnxruntime.InferenceSession(given, providers=["CPUExecutionProvider"]).run(None, feed)


@pytest.mark.parametrize("also", [False, True])
@pytest.mark.parametrize("io", [Format.FP32, Format.FP16])
@pytest.mark.parametrize("labels", [{"classlabels_int64s": [5, 7, 2]}, {"classlabels_strings": ["c", "a", "b"]}])
def test_maps_come_out_as_they_did(labels: Any, io: Format, also: bool, tmp_path: Path) -> None:
    given = classifier(labels, scale=2.0**16, also=also)
    onnx.save(given, tmp_path / "given.onnx")
    made = fix(tmp_path / "given.onnx", FEEDS, out=tmp_path / "out", io_types=io)
    assert made.good and made.typed is not None and made.delivered is not None and made.delivered.verdict is not None
    typed = onnx.load(made.typed.path)
    onnx.checker.check_model(typed)
    assert [v.name for v in typed.graph.output] == [v.name for v in given.graph.output]
    for feed in FEEDS:
        narrow = {"x": feed["x"].astype(np.float16)} if io is Format.FP16 else feed
        wanted, got = ran(given.SerializeToString(), feed), ran(str(made.typed.path), narrow)
        assert [list(each) for each in got[1]] == [list(each) for each in wanted[1]]
        far = [abs(one[key] - other[key]) for one, other in zip(wanted[1], got[1], strict=True) for key in one]
        assert max(far) < 0.01
    if io is Format.FP32:
        assert verify(tmp_path / "given.onnx", made.typed.path, FEEDS).verdict.met


def test_the_model_given_in_memory_stays_as_it_is() -> None:
    given = classifier({"classlabels_int64s": [0, 1, 2]})
    before = given.SerializeToString()
    assert load(given).output_names == ("label", "p") and scan(given) is not None
    assert given.SerializeToString() == before


def test_a_map_of_another_origin_is_refused(says: Says) -> None:
    given = classifier({"classlabels_int64s": [0, 1, 2]})
    given.graph.node[-1].op_type = "CastMap"
    with says.raises(InputError):
        load(given)


def test_a_target_without_maps_hands_out_the_tensor(tmp_path: Path) -> None:
    given = classifier({"classlabels_int64s": [5, 7, 2]}, scale=1.0, also=False)
    made = fix(given, FEEDS, target="trt-10.9", out=tmp_path)
    assert made.good and made.typed is not None and made.delivered is not None and made.delivered.verdict is not None
    assert only(made.notes, NoteKind.MAPS_NOT_READ).values["tensors"] == ["p"]
    typed = onnx.load(made.typed.path)
    assert [each.name for each in typed.graph.output] == ["label", "p"]
    assert all(each.op_type != "ZipMap" for each in typed.graph.node)
    again = fix(given, FEEDS, plan=made.plan)
    assert again.met and again.fp32_nodes == made.fp32_nodes
