"""The same decoder with its channels in another order, and with its sums in FP64; `fix` on two devices in one table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks import devices, summation_order
from benchmarks.fresh_processes import Measured
from benchmarks.zoo.decoder import Sizes, feeds, write_decoder

SMALL = Sizes(layers=3, width=128, heads=4, shared=2, inner=256, vocabulary=500)


def test_an_order_is_the_same_function_and_not_the_same_sums(tmp_path: Path) -> None:
    model, given = onnx.load(write_decoder(tmp_path, SMALL)), feeds(SMALL, count=1, tokens=24)
    plain, moved = (summation_order.told(summation_order.in_order(model, SMALL, seed), given, {}) for seed in (0, 1))
    assert not np.array_equal(plain.logits, moved.logits)
    assert np.allclose(plain.logits, moved.logits, rtol=0.02, atol=0.02)
    assert plain.all == pytest.approx(moved.all, rel=0.3)


def test_sums_in_fp64_do_not_hang_on_the_order(tmp_path: Path) -> None:
    model, given = onnx.load(write_decoder(tmp_path, SMALL)), feeds(SMALL, count=1, tokens=24)
    wide = summation_order.IN_FP64["all"]
    plain, moved = (summation_order.told(summation_order.in_order(model, SMALL, seed), given, wide) for seed in (0, 1))
    assert np.array_equal(plain.logits, moved.logits)


def test_a_repaired_decoder_differs_by_its_order_alone(tmp_path: Path) -> None:
    model = onnx.load(write_decoder(tmp_path, SMALL, planted=("massive",)))
    given = feeds(SMALL, count=2, tokens=24)
    plain, moved = (summation_order.repaired(summation_order.in_order(model, SMALL, seed), given) for seed in (0, 1))
    assert plain != moved
    assert max(*plain.values(), *moved.values()) < 1.0


def test_devices_stand_beside_each_other() -> None:
    told = {"met": True, "runs": 8.0, "nodes": 0, "by profile": {"strict": 0.3, "wide": 0.2}}
    other = {**told, "met": False, "by profile": {"strict": 0.33, "wide": 0.19}}
    found = {
        "cpu": Measured("fix on cpu", 10.0, 12.0, 1.0, 0.0, 2.0, told),
        "cuda": Measured("fix on cuda", 5.0, 6.0, 1.0, 0.0, 2.0, other),
    }
    assert devices.cells(found) == [
        ("cpu", "met", "8.0", "0", "strict 0.3000, wide 0.2000", "10.0", "12.0", ""),
        ("cuda", "missed", "8.0", "0", "strict 0.3300, wide 0.1900", "5.0", "6.0", "strict +10.0%, wide -5.0%"),
    ]
    (_, lacking) = devices.cells({**found, "cuda": Measured("fix on cuda", 1.0, 1.0, 0.0, 0.0, 0.0, problem="no GPU")})
    assert lacking[-1] == "no GPU"
