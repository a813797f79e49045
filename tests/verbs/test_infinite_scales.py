"""A scale of a quantiser that FP16 had no room for: everything behind it is NaN, and each verb names the scale."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from halfwise.core.errors import InputError
from halfwise.core.notes import NoteKind
from halfwise.verbs.doctor import doctor
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.scan import scan
from halfwise.verbs.verify import verify
from tests.models.build import model, node, value
from tests.models.typed_graphs import FLOAT, HALF, tensor


def broken(kind: int, scale: float = np.inf) -> onnx.ModelProto:
    """Two layers; the second quantiser reads what the infinite scale of the first made NaN."""
    rng = np.random.default_rng(3)
    nodes = [
        node("MatMul", "x w", "a"),
        node("QuantizeLinear", "a s z", "aq"),
        node("DequantizeLinear", "aq s z", "ad"),
        node("MatMul", "ad v", "b"),
        node("QuantizeLinear", "b t z", "bq"),
        node("DequantizeLinear", "bq t z", "bd"),
        node("Relu", "bd", "y"),
    ]
    held = [
        tensor("w", kind, rng.standard_normal((8, 8)).astype(np.float32)),
        tensor("v", kind, rng.standard_normal((8, 8)).astype(np.float32)),
        tensor("s", kind, np.float32(scale)),
        tensor("t", kind, np.float32(0.05)),
        # of FP8, as NaN becomes no number of an integer type, which hides it
        onnx.helper.make_tensor("z", onnx.TensorProto.FLOAT8E4M3FN, (), [0.0]),
    ]
    ends = [value("x", kind, (2, 8))], [value("y", kind, (2, 8))]
    return model(nodes, *ends, held, opset=19, ir_version=10)


def feeds() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(5)
    return [{"x": rng.standard_normal((2, 8)).astype(np.float32)} for _ in range(4)]


@pytest.mark.parametrize("kind", [HALF, FLOAT], ids=["fp16", "fp32"])
def test_scan_calls_it_an_error(kind: int) -> None:
    (found,) = [each for each in scan(broken(kind)).findings if each.rule in ("HW105", "HW115")]
    assert (found.rule, found.severity, found.where.name) == ("HW105", "error", "s")


def test_fix_names_the_scale_and_what_to_do() -> None:
    with pytest.raises(InputError, match=r"'s' as infinity; quantise again"):
        fix(broken(HALF), feeds())


def test_the_first_node_behind_it_is_named_through_a_quantiser() -> None:
    with pytest.raises(InputError, match=r"from node 'n_ad' \(DequantizeLinear\) on"):
        fix(broken(FLOAT), feeds())
    with pytest.raises(InputError, match=r"from node 'n_ad' \(DequantizeLinear\) on"):
        verify(broken(FLOAT), broken(FLOAT, 0.05), feeds())


def test_doctor_says_that_nothing_is_finite(tmp_path: Path) -> None:
    onnx.save(broken(HALF), tmp_path / "model.onnx")
    for index, feed in enumerate(feeds()):
        np.savez(tmp_path / f"{index}.npz", x=feed["x"])
    result = doctor(tmp_path)
    assert [each.rule for each in result.findings] == ["HW105"]
    (note,) = [each for each in result.notes if each.kind is NoteKind.NOT_RUN_HERE]
    assert "from node 'n_ad' (DequantizeLinear) on" in str(note.values["why"])
