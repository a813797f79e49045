"""What no exporter writes is tried in a child before its types are inferred here; what exporters write is not."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from halfwise.model.inference_trial import is_doubtful
from tests.models.build import model, value
from tests.models.zoo import SHAPES


# Each ended the process in the inference of some version of onnx.
@pytest.mark.parametrize(
    "unusual",
    [
        onnx.helper.make_node("RegexFullMatch", [""], ["y"], pattern="a"),
        onnx.helper.make_node("Split", ["x"], [*"yabcdefgh"], num_outputs=3),
        onnx.helper.make_node("Split", ["x"], ["y", *(f"z{i}" for i in range(99))]),
        onnx.helper.make_node("LayerNormalization", ["x", "x"], ["y"], axis=2**31),
        onnx.helper.make_node("GatherND", ["x", "x"], ["y"], batch_dims=2**40),
        onnx.helper.make_node("Transpose", ["x"], ["y"], perm=[0, -(2**62)]),
    ],
)
def test_what_is_unusual_is_doubtful(unusual: onnx.NodeProto) -> None:
    assert is_doubtful(ir.from_proto(model([unusual], [value("x", shape=(2, 3))], [value("y", shape=None)], opset=21)))


@pytest.mark.parametrize("name", list(SHAPES)[:6])
def test_what_is_usual_is_not(name: str) -> None:
    assert not is_doubtful(ir.from_proto(SHAPES[name]().model))


@pytest.mark.parametrize("end", [2**31 - 1, 2**63 - 1])
def test_a_slice_to_the_end_is_usual(end: int) -> None:
    def sliced(**attributes: list[int]) -> ir.Model:
        node = onnx.helper.make_node("Slice", ["x"], ["y"], **attributes)
        return ir.from_proto(model([node], [value("x", shape=(2, 3))], [value("y", shape=None)], opset=9))

    assert not is_doubtful(sliced(axes=[1], starts=[0], ends=[end]))
    assert is_doubtful(sliced(axes=[1], starts=[end], ends=[end]))
    assert is_doubtful(sliced(axes=[1], starts=[0], ends=[end - 1]))
