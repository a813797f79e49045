"""Products of integers, as dynamic quantisers write them: their sums leave FP16, and the search starts from there."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from halfwise.core.notes import NoteKind
from halfwise.verbs.fix.fix import fix
from tests.models.build import model, node, value, weight

Array = np.ndarray[Any, Any]
WIDE, LAYERS = 512, 4
LARGEST = (127, 30, 127, 30)  # of the weights: sums that leave FP16, and some that other inputs may take there


def layers() -> onnx.ModelProto:
    rng = np.random.default_rng(11)
    nodes, held, given = [], [], "x"
    for n in range(LAYERS):
        most = LARGEST[n]
        table = rng.integers(-most, most + 1, (WIDE, WIDE)).astype(np.int8)
        held += [weight(f"w{n}", table), weight(f"k{n}", np.float32(1.0 / (0.58 * most * WIDE**0.5)))]
        nodes += [
            node("DynamicQuantizeLinear", given, f"q{n} s{n} z{n}", name=f"quantise{n}"),
            node("MatMulInteger", f"q{n} w{n} z{n}", f"i{n}", name=f"sum{n}"),
            node("Cast", f"i{n}", f"f{n}", to=onnx.TensorProto.FLOAT, name=f"cast{n}"),
            node("Mul", f"s{n} k{n}", f"t{n}", name=f"scale{n}"),
            node("Mul", f"f{n} t{n}", f"m{n}", name=f"scaled{n}"),
            node("Add", f"m{n} {given}", f"a{n}", name=f"add{n}"),
        ]
        given = f"a{n}"
    ends = [value("x", shape=(8, WIDE))], [value(given, shape=(8, WIDE))]
    return model(nodes, *ends, held, opset=17, ir_version=8)


def samples() -> list[dict[str, Array]]:
    rng = np.random.default_rng(12)
    return [{"x": rng.standard_normal((8, WIDE)).astype(np.float32)} for _ in range(4)]


def test_sums_of_integers_are_kept_from_the_first_search_on() -> None:
    given = layers()
    result = fix(given, samples(), tolerance="5%")
    assert result.met
    assert {each.name for each in result.plan.nodes} == {f"{w}{n}" for w in ("cast", "scaled") for n in range(LAYERS)}
    assert NoteKind.OVERFLOW_HEALED not in {note.kind for note in result.notes}  # which took a search of its own
