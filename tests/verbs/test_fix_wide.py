"""A verdict holds with less rounding, too: where sums stay wide, and as ONNX Runtime runs what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

from halfwise import fix, verify
from halfwise.core.notes import NoteKind
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.profiles import STRICT, WIDE
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from tests.models.build import model, node, value, weight
from tests.support.messages import kinds, only

TOKENS, WIDTH = 8, 16
LOWEST = float(np.finfo(np.float32).min)
LEVELS = (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL)
Array = NDArray[Any]
Feed = dict[str, Array]


def attention(lowest: float, join: str = "Where") -> onnx.ModelProto:
    """One head over left-padded tokens: causal and padding masks are finite, and one joins the other."""
    rng = np.random.default_rng(0)
    weights = {
        "wq": rng.standard_normal((WIDTH, WIDTH)) / np.sqrt(WIDTH),
        "wk": rng.standard_normal((WIDTH, WIDTH)) / np.sqrt(WIDTH),
        "causal": np.triu(np.full((TOKENS, TOKENS), lowest), 1),
        "lowest": np.float32(lowest),
        "one": np.float32(1.0),
    }
    nodes = [
        node("MatMul", "x wq", "q"),
        node("MatMul", "x wk", "k"),
        node("Transpose", "k", "kt", perm=[0, 2, 1]),
        node("MatMul", "q kt", "s"),
        node("Sub", "one mask", "padded"),
        node("Mul", "padded lowest", "padding"),
        node("Where", "past padding lowest", "m") if join == "Where" else node("Min", "causal padding", "m"),
        node("Add", "s m", "sm"),
        node("Softmax", "sm", "p", axis=-1),
        node("MatMul", "p x", "y"),
    ]
    return model(
        nodes,
        [value("x", shape=(1, TOKENS, WIDTH)), value("mask", shape=(1, 1, TOKENS))],
        [value("y", shape=(1, TOKENS, WIDTH))],
        [
            weight("past", np.tri(TOKENS, dtype=bool)),
            *(weight(name, np.asarray(array, dtype=np.float32)) for name, array in weights.items()),
        ],
    )


def samples(count: int = 4) -> list[Feed]:
    """Some tokens are padding, on the left, so that their rows are masked throughout."""
    rng = np.random.default_rng(1)
    found = []
    for index in range(count):
        mask = np.ones((1, 1, TOKENS), dtype=np.float32)
        mask[..., : 2 + index % 3] = 0
        found.append({"x": rng.standard_normal((1, TOKENS, WIDTH)).astype(np.float32), "mask": mask})
    return found


def error(typed: Path, given: onnx.ModelProto, feeds: list[Feed], level: Any) -> float:
    """The worst relative error of what was written, by ONNX Runtime's CPU provider."""
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    found = []
    exact = ort.InferenceSession(given.SerializeToString(), providers=["CPUExecutionProvider"])
    delivered = ort.InferenceSession(str(typed), options, providers=["CPUExecutionProvider"])
    for feed in feeds:
        wanted, got = exact.run(None, feed)[0], delivered.run(None, feed)[0].astype(np.float32)
        found.append(float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted)))
    return max(found)


@pytest.mark.parametrize(
    ("lowest", "join", "target"),
    [
        (-1e9, "Where", "onnx"),
        (LOWEST, "Where", "onnx"),
        (LOWEST, "Min", "onnx"),
        (LOWEST, "Where", "trt-8.6"),
        (LOWEST, "Where", "ort-cuda"),
    ],
)
def test_rows_that_are_masked_throughout_stay_uniform_where_sums_are_wide(
    lowest: float, join: str, target: str, tmp_path: Path
) -> None:
    """-65504 plus a score is -65504 where the sum is rounded, and another number where it is not."""
    given = attention(lowest, join)
    made = fix(given, samples(), target=target, out=tmp_path)
    assert made.met and not made.fp16_verdict.met
    assert made.typed is not None
    assert max(error(made.typed.path, given, samples(), level) for level in LEVELS) < 0.01
    assert made.by_profile["wide"] <= 1 and len(made.fp32_nodes) <= 4 * (join == "Min")


def test_the_second_search_says_why_it_was_made() -> None:
    made = fix(attention(LOWEST), samples())
    assert only(made.notes, NoteKind.SEARCHED_TWICE).values == {"profiles": ["wide"]}
    assert made.to_json()["profiles"] == made.by_profile


def test_a_plan_is_judged_by_both() -> None:
    """What only rounding everywhere keeps right is told as missed, though nothing is searched."""
    given = attention(LOWEST)
    made = fix(given, samples(), repairs="none", force="op:Add")
    applied = fix(given, samples(), plan=made.plan)
    assert not applied.met and applied.by_profile["wide"] > 1 >= applied.by_profile["strict"]
    assert NoteKind.SEARCHED_TWICE_IN_VAIN not in kinds(applied.notes)


def test_verify_judges_a_typed_model_by_both(tmp_path: Path) -> None:
    given = attention(LOWEST)
    made = fix(given, samples(), repairs="none", force="op:Add", out=tmp_path)
    assert made.typed is not None
    found = verify(given, made.typed.path, samples())
    assert not found.met and found.by_profile["wide"] > 1 >= found.by_profile["strict"]
    assert found.to_json()["profiles"] == found.by_profile
    assert not verify(given, given, samples()).by_profile  # nothing in it is rounded


def test_wide_rounds_weights_and_what_a_product_reads() -> None:
    """Against NumPy: the sum stays wide on its way to the next product, which takes FP16."""
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) for _ in range(2))
    bias = rng.standard_normal(WIDTH).astype(np.float32)
    proto = model(
        [node("MatMul", "x a", "p"), node("Add", "p c", "s"), node("Tanh", "s", "t"), node("MatMul", "t b", "y")],
        [value("x", shape=(4, WIDTH))],
        [value("y", shape=(4, WIDTH))],
        [weight("a", a), weight("b", b), weight("c", bias)],
    )
    feed = {"x": rng.standard_normal((4, WIDTH)).astype(np.float32)}

    def half(array: Array) -> Array:
        return array.astype(np.float16).astype(np.float32)

    decision = Assignment.all_narrow(Sites(load(proto)))
    wanted = half(half(np.tanh(half(feed["x"]) @ half(a) + half(bias))) @ half(b))
    got = Emulator(WIDE).session(decision).run(feed)["y"]
    assert np.abs(got - wanted).max() <= 2.0**-9  # an ulp of the last rounding, where sums differ in their order
    assert np.count_nonzero(got != wanted) < wanted.size // 20
    strict = Emulator(STRICT).session(decision).run(feed)["y"]
    assert np.count_nonzero(strict != wanted) > wanted.size // 4


def test_wide_shares_the_weights_that_another_emulation_has_rounded() -> None:
    emulator = Emulator()
    assert emulator.under(WIDE).profile is WIDE and emulator.under(WIDE).device == emulator.device


def test_verify_tells_the_errors_that_fix_told(tmp_path: Path) -> None:
    """A cast in the file stores no more and no less than the same step of the plan: what a product reads is stored."""
    rng = np.random.default_rng(5)
    nodes = [node("Add", "x b", "h"), node("Mul", "h h", "s"), node("MatMul", "s w", "y", name="product")]
    weights = {"b": rng.standard_normal(WIDTH), "w": rng.standard_normal((WIDTH, WIDTH))}
    given = model(
        nodes,
        [value("x", shape=(1, TOKENS, WIDTH))],
        [value("y", shape=(1, TOKENS, WIDTH))],
        [weight(name, array.astype(np.float32)) for name, array in weights.items()],
    )
    feeds = [{"x": feed["x"]} for feed in samples()]
    made = fix(given, feeds, keep="name:product", out=tmp_path)
    assert made.typed is not None and made.fp32_nodes == ("product",)
    assert verify(given, made.typed.path, feeds).by_profile == pytest.approx(made.by_profile, rel=1e-3)


@pytest.mark.parametrize("target", ["onnx", "ort-cuda"])
def test_no_value_is_counted_by_two_profiles(target: str) -> None:
    """What is not finite is counted in the worst profile, not in all of them together."""
    given = model(
        [node("Mul", "x x", "y")], [value("x", shape=(1, TOKENS, WIDTH))], [value("y", shape=(1, TOKENS, WIDTH))]
    )
    feeds = [{"x": 1000 + feed["x"]} for feed in samples()]
    made = fix(given, feeds, target=target, repairs="none")
    assert made.fp16["y"].nonfinite == len(feeds) * TOKENS * WIDTH
