"""One input makes variants of itself; where FP32 refuses them, it stands for itself."""

from __future__ import annotations

import numpy as np

import halfwise
from halfwise.core.notes import NoteKind
from tests.models.build import f32, model, node, value, weight
from tests.support.messages import kinds


def test_a_scale_that_may_not_move() -> None:
    """Cubic interpolation runs along the last two axes only: the other scales are 1, and no other number."""
    resize = node("Resize", "x - scales", "y", mode="cubic")
    proto = model(
        [resize], [value("x", shape=(1, 1, 4, 4)), value("scales", shape=(4,))], [value("y", shape=(1, 1, "h", "w"))]
    )
    feed = {"x": np.random.default_rng(0).random((1, 1, 4, 4), np.float32), "scales": f32(1, 1, 2.5, 2.5)}
    fixed = halfwise.fix(proto, feed)
    assert fixed.met
    assert NoteKind.ONE_CONSTANT_SAMPLE in kinds(fixed.notes)
    assert NoteKind.ONE_SAMPLE not in kinds(fixed.notes)


def test_variants_that_run_are_used() -> None:
    proto = model([node("Mul", "x w", "y")], [value("x")], [value("y")], [weight("w", f32(1, 2, 3, 4))])
    fixed = halfwise.fix(proto, {"x": f32(1, 2, 3, 4.5)})
    assert len(fixed.samples.validation) == 2
    assert NoteKind.ONE_SAMPLE in kinds(fixed.notes)
