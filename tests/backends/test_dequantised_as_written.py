"""A written model with quantised weights, run by ONNX Runtime without its integer kernels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from halfwise.backends import as_written
from halfwise.backends.as_written import run_as_written
from halfwise.emulation.emulate import Emulator
from halfwise.model.inputs.feed import Feed
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import write_typed
from tests.models.quantised import layers, quantised, samples


@pytest.mark.parametrize("integer_kernels", [True, False])
def test_large_weights_are_no_constants_that_are_held_side_by_side(
    integer_kernels: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites = Sites(load(quantised(layers())))
    typed = write_typed(Assignment(sites, {}), tmp_path / "typed.onnx").path
    feeds = [Feed(index, feed) for index, feed in enumerate(samples())]
    asked: list[Mapping[str, Any]] = []
    ask = as_written.ask

    def seen(function: str, data: Mapping[str, Any], *rest: Any, **more: Any) -> Any:
        asked.append(data)
        return ask(function, data, *rest, **more)

    monkeypatch.setattr(as_written, "ask", seen)
    small = run_as_written(typed, feeds, 60.0, sites, integer_kernels=integer_kernels)
    monkeypatch.setattr(as_written, "_LARGE_BYTES", 0)
    large = run_as_written(typed, feeds, 60.0, sites, ["MatmulTransposeFusion"], integer_kernels=integer_kernels)
    folded = [] if integer_kernels else ["ConstantFolding"]
    assert [data["without"] for data in asked] == [[], ["MatmulTransposeFusion", *folded]]
    session = Emulator().session(Assignment(sites, {}))
    for feed, one, other in zip(feeds, small, large, strict=True):
        wanted = next(iter(session.run(dict(feed)).values()))
        for made in (one, other):
            (found,) = made.values()
            np.testing.assert_allclose(found, wanted, rtol=0.0, atol=0.05)  # a step of the quantisers
        np.testing.assert_allclose(next(iter(one.values())), next(iter(other.values())), rtol=0.0, atol=1e-6)
