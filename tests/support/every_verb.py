"""One model through every verb that takes it, and what `fix` delivered through ONNX Runtime as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray

import halfwise
from halfwise.verbs.gate import gate

__all__ = ["assert_delivered", "assert_taken_by_every_verb"]

Array = NDArray[Any]
Feeds = Sequence[Mapping[str, Array]]
LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")


def assert_delivered(model: onnx.ModelProto, feeds: Feeds, target: str, out: Path, most: int) -> None:
    """The tolerance is met with at most so many nodes in FP32; the file loads and is right at every level."""
    result = halfwise.fix(model, feeds, target=target, out=out)
    assert result.met and len(result.fp32_nodes) <= most
    assert result.typed is not None
    wanted = answers(model.SerializeToString(), feeds, LEVELS[0])
    for level in LEVELS:
        for one, other in zip(wanted, answers(str(result.typed.path), feeds, level), strict=True):
            assert np.linalg.norm(other - one) <= 0.01 * np.linalg.norm(one), level


def assert_taken_by_every_verb(model: onnx.ModelProto, feeds: Feeds, out: Path, cut: str) -> None:
    """After `fix` into that folder."""
    halfwise.scan(model)
    halfwise.trace(model, feeds)
    assert halfwise.verify(model, next(out.glob("*.fp16.onnx")), feeds).met
    assert halfwise.stages(model, feeds[:2], cut=[cut]).stages
    assert gate(next(out.glob("*.plan.json")), model, feeds).holds


def answers(model: bytes | str, feeds: Feeds, level: str) -> list[NDArray[np.float64]]:
    """The first output of each."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return [np.asarray(session.run(None, dict(feed))[0], np.float64) for feed in feeds]
