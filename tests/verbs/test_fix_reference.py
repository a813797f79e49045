"""A typed model beside its FP32 original: the original's outputs judge, its weights go back where they were rounded."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnxruntime.transformers.float16 import convert_float_to_float16

from halfwise.core.errors import InputError
from halfwise.core.notes import NoteKind
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.model.fp32_model import fp32_model
from halfwise.model.model import load
from halfwise.model.restored import restored
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.verbs.bisect.run import bisect
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.fix.result import FixResult
from halfwise.verbs.gate import gate
from halfwise.verbs.stages import stages
from halfwise.verbs.trace import trace
from halfwise.verbs.verify import verify
from tests.models.build import model, node, value, weight
from tests.models.typed_graphs import FLOAT, samples

RNG = np.random.default_rng(5)


def original(factor: float = 1.0, scale: float = 1.0) -> onnx.ModelProto:
    """Weights that FP16 has to round; `scale` shrinks one of them, and a factor behind it gives that back."""
    nodes = [
        node("MatMul", "x w0", "a"),
        node("Mul", "a back", "b"),
        node("Mul", "b b", "c"),
        node("ReduceMean", "c", "m", axes=[-1], keepdims=1),
        node("Sqrt", "m", "r"),
        node("Div", "b r", "n"),
        node("Gemm", "n w1 bias", "y"),
    ]
    held = [
        weight("w0", (RNG.standard_normal((32, 64)) * scale).astype(np.float32)),
        weight("back", np.float32(factor / scale)),
        weight("w1", RNG.standard_normal((64, 8)).astype(np.float32)),
        weight("bias", RNG.standard_normal(8).astype(np.float32)),
    ]
    return model(nodes, [value("x", FLOAT, ("n", 32))], [value("y", FLOAT, ("n", 8))], held)


def typed(proto: onnx.ModelProto, keep: bool = True) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    return convert_float_to_float16(copy, keep_io_types=keep)


def note(result: FixResult, kind: NoteKind) -> dict[str, object]:
    return dict(next(each for each in result.notes if each.kind is kind).values)


def weights_of(proto: onnx.ModelProto) -> dict[str, bytes]:
    return {each.name: numpy_helper.to_array(each).astype(np.float32).tobytes() for each in proto.graph.initializer}


@pytest.mark.parametrize("keep", [True, False], ids=["io-kept", "io-fp16"])
def test_the_plan_is_that_of_the_original(keep: bool, tmp_path: Path) -> None:
    whole = original(factor=300.0)
    asked = {"tolerance": "rel_l2<=2e-3"}
    result = fix(typed(whole, keep), samples(whole), reference=whole, out=tmp_path, **asked)  # type: ignore[arg-type]
    alone = fix(whole, samples(whole), **asked)  # type: ignore[arg-type]
    assert result.met and alone.met
    assert [each.name for each in result.plan.nodes] == [each.name for each in alone.plan.nodes]
    assert note(result, NoteKind.WEIGHTS_RESTORED) == {"taken": 4, "weights": 4}
    assert result.typed is not None
    assert verify(whole, result.typed.path, samples(whole), tolerance="rel_l2<=2e-3").met


def test_what_the_conversion_lost_is_seen_and_mended(tmp_path: Path) -> None:
    """Weights of 3e-8 that FP16 stores as 0 or 6e-8: the file keeps to its own numbers, and those are wrong."""
    whole = original(scale=2.0**-25)
    narrow = typed(whole)
    alone = fix(narrow, samples(whole))
    assert alone.measured.typed_verdict is not None
    result = fix(narrow, samples(whole), reference=whole, out=tmp_path)
    assert result.measured.typed_verdict is not None and not result.measured.typed_verdict.met
    assert result.met
    assert result.typed is not None and verify(whole, result.typed.path, samples(whole)).met


def test_weights_are_found_by_place_by_content_and_turned() -> None:
    whole = original()
    narrow = typed(whole)
    for each in (*narrow.graph.initializer, *narrow.graph.node):
        if isinstance(each, onnx.TensorProto):
            each.name = f"other_{each.name}"
        else:
            for slot, name in enumerate(each.input):
                each.input[slot] = f"other_{name}" if name in ("w0", "w1", "bias", "back") else name
            each.name = "" if each.op_type == "MatMul" else each.name
    gemm = next(each for each in narrow.graph.node if each.op_type == "Gemm")
    gemm.attribute.add(name="transB", type=onnx.AttributeProto.INT, i=1)
    turned = next(each for each in narrow.graph.initializer if each.name == "other_w1")
    turned.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(turned).T.copy(), "other_w1"))
    found = restored(fp32_model(load(narrow)), load(whole))
    assert sorted(found.taken) == ["other_back", "other_bias", "other_w0", "other_w1"]
    feed = widen_feeds(samples(whole)[0])
    runs = [Emulator().session(Assignment(Sites(each), {})).run(feed)["y"] for each in (found.model, load(whole))]
    np.testing.assert_allclose(runs[0], runs[1], rtol=1e-5, atol=1e-6)


def test_what_a_converter_puts_in_place_is_taken_back() -> None:
    """Values beyond FP16, clamped or infinite, and tiny ones raised to its least."""
    wide = np.array([-3.4e38, 1e-9, 1e-7, 7e4, 0.3, -2.0], np.float32)
    for clamp, least in ((65504.0, 5.96e-8), (1e4, 1e-7), (np.inf, 0.0)):
        held = np.where(np.abs(wide) > 65504, np.sign(wide) * clamp, wide)
        held = np.where(np.abs(wide) < 1e-7, least, held).astype(np.float16)
        nodes = [node("Add", "x w", "y")]
        pair = [
            model(nodes, [value("x", kind, (6,))], [value("y", kind, (6,))], [weight("w", array)])
            for kind, array in ((FLOAT, wide), (onnx.TensorProto.FLOAT16, held))
        ]
        found = restored(fp32_model(load(pair[1])), load(pair[0]))
        assert found.taken == ["w"]


def test_a_weight_of_another_training_is_told_and_kept() -> None:
    whole = original()
    narrow = typed(whole)
    bias = next(each for each in narrow.graph.initializer if each.name == "bias")
    moved = numpy_helper.to_array(bias) * np.float16(1.0 + 2.0**-9)
    bias.CopyFrom(numpy_helper.from_array(moved.astype(np.float16), "bias"))
    result = fix(narrow, samples(whole), reference=whole)
    assert note(result, NoteKind.WEIGHTS_DIFFER) == {"count": 1, "names": ["bias"]}
    assert result.met  # against the original, by less than the tolerance
    with pytest.raises(InputError, match=r"in FP32 already.*bias"):
        fix(narrow, samples(whole), reference=whole, tolerance="rel_l2<=1e-4")


def test_weights_that_leave_little_room_are_no_reason_for_fp32_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of weights that were packed: their error is no rounding, and no choice of formats lessens it."""
    monkeypatch.setattr("tests.verbs.test_fix_reference.RNG", np.random.default_rng(5))
    whole = original(factor=300.0)
    narrow = typed(whole)
    bias = next(each for each in narrow.graph.initializer if each.name == "bias")
    bias.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bias) * np.float16(1.25), "bias"))
    own = verify(whole, fp32_model(load(narrow)), samples(whole)).outputs["y"].rel_l2
    result = fix(narrow, samples(whole), reference=whole, tolerance=f"rel_l2<={own / 0.8}", margin=0.3)
    assert result.met and not result.fp32_nodes and len(result.plan.repairs) == 1
    assert note(result, NoteKind.ORIGINAL_NEAR)["ratio"] == pytest.approx(0.8, rel=0.01)
    far = fix(narrow, samples(whole), reference=whole, tolerance=f"rel_l2<={own / 0.2}", margin=0.3)
    assert far.met and NoteKind.ORIGINAL_NEAR not in {each.kind for each in far.notes}


def test_an_original_of_another_interface_is_refused() -> None:
    whole, other = original(), original()
    other.graph.output[0].name = other.graph.node[-1].output[0] = "z"
    with pytest.raises(InputError, match="has no output 'y'"):
        fix(typed(whole), samples(whole), reference=other)


def test_a_plan_asks_for_the_reference_that_it_was_made_with(tmp_path: Path) -> None:
    whole = original(factor=300.0)
    onnx.save(whole, tmp_path / "whole.onnx")
    onnx.save(typed(whole), tmp_path / "typed.onnx")
    folder = tmp_path / "inputs"
    folder.mkdir()
    for index, feed in enumerate(samples(whole)):
        np.savez(folder / f"{index}.npz", **feed)
    assert fix(tmp_path / "typed.onnx", folder, reference=tmp_path / "whole.onnx", out=tmp_path / "out").met
    plan = tmp_path / "out" / "typed.plan.json"
    with pytest.raises(InputError, match="--reference"):
        fix(tmp_path / "typed.onnx", folder, plan=plan)
    again = fix(tmp_path / "typed.onnx", folder, plan=plan, reference=tmp_path / "whole.onnx", out=tmp_path / "again")
    assert again.typed is not None
    assert weights_of(onnx.load(again.typed.path)) == weights_of(onnx.load(tmp_path / "out" / "typed.fp16.onnx"))
    assert gate(plan, tmp_path / "typed.onnx", folder, reference=tmp_path / "whole.onnx").holds


def test_other_verbs_take_the_original_too() -> None:
    """What they say is what they say of the original itself."""
    whole = original(scale=1e-6)
    given, feeds = typed(whole), samples(whole)
    for look in (trace, partial(stages, cut=["n"]), lambda given, fed, **more: bisect(given, "ort-cpu", fed, **more)):
        alone, beside = look(whole, feeds).to_json(), look(given, feeds, reference=whole).to_json()
        assert any(each["kind"] == "weights-restored" for each in beside["messages"])
        for key in ("nodes", "tensors", "whole", "culprits"):
            assert alone.get(key) == beside.get(key)
        assert not any(each["kind"] == "typed-already" for each in alone["messages"])


def test_scales_of_quantisers_are_no_weights_that_differ() -> None:
    """No original has them; the model is quantised after it."""
    held = [weight("w", RNG.standard_normal((8, 8)).astype(np.float32)), weight("step", np.float32(3.0))]
    nodes = [node("MatMul", "x w", "a"), node("Mul", "a step", "y")]
    ends = [value("x", FLOAT, (2, 8))], [value("y", FLOAT, (2, 8))]
    steps = [node("QuantizeLinear", "x step", "q"), node("DequantizeLinear", "q step", "d"), node("MatMul", "d w", "y")]
    held_after = [held[0], weight("step", np.float32(0.1))]
    found = restored(load(model(steps, *ends, held_after, opset=21)), load(model(nodes, *ends, held, opset=21)))
    assert (found.taken, found.differing, found.unknown) == (["w"], [], [])
