"""A quantised model that is written as TensorRT reads it is compared with the model of its file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from halfwise import fix
from halfwise.core.english import say
from halfwise.core.notes import NoteKind
from halfwise.report.answer import way_out
from halfwise.verbs.fix.result import FixResult
from tests.models.build import model, node, value, weight
from tests.models.contrib_cases import DOMAIN
from tests.support.messages import kinds, only

WIDE, ROWS = 32, 4


def product(zero: int) -> onnx.ModelProto:
    """Each row of weights holds one step, at its own place, and zeros: numbers that are the zero point."""
    numbers = np.full((ROWS, WIDE), zero, np.uint8)
    numbers[np.arange(ROWS), np.arange(ROWS)] += 1
    words = (numbers[:, ::2] | (numbers[:, 1::2] << 4)).reshape(ROWS, 1, WIDE // 2)
    held = [weight("w", words), weight("s", np.ones(ROWS, np.float32)), weight("z", np.full(ROWS, zero, np.uint8))]
    sizes = {"K": WIDE, "N": ROWS, "bits": 4, "block_size": WIDE}
    made = node("MatMulNBits", "x w s z", "y", domain=DOMAIN, **sizes)
    proto = model([made], [value("x", shape=(2, WIDE))], [value("y", shape=(2, ROWS))], held)
    proto.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return proto


def fixed(zero: int, loud: float, target: str, out: Path | None = None) -> FixResult:
    feeds = []
    for seed in range(4):
        x = np.random.default_rng(seed).uniform(1, 2, (2, WIDE)).astype(np.float32)
        x[:, ROWS:] *= np.float32(loud)  # what weights of 0 read
        feeds.append({"x": x})
    return fix(product(zero), feeds, target=target, out=out)


@pytest.mark.parametrize("target", ["trt-10.9", "rtx-1.7"])
def test_a_product_that_cancels_as_it_is_written_is_a_no(target: str) -> None:
    """Loud values times 0 - 8 and as loud ones times 8: what is left was judged against itself, and was a yes."""
    result = fixed(zero=0, loud=30_000.0, target=target)
    told = only(result.notes, NoteKind.REWRITING_MISSES)
    assert told.severity == "warning" and "allowed <= 0.01" in say(told)
    assert result.met and not result.good and result.standing.rank == "missed"
    assert way_out(result).note is told  # and not that rounding moves an output


@pytest.mark.parametrize(
    ("zero", "loud", "target"), [(8, 30_000.0, "trt-10.9"), (0, 1.0, "trt-10.9"), (0, 30_000.0, "ort-cuda")]
)
def test_one_that_stays_what_it_is_is_none(zero: int, loud: float, target: str) -> None:
    result = fixed(zero, loud, target)
    assert NoteKind.REWRITING_MISSES not in kinds(result.notes) and result.good
