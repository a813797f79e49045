"""The generators of large models: healthy in FP32, readable, and small ones are answered as large ones would be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from benchmarks.zoo import diffusion, encoder_decoder
from benchmarks.zoo.decoder import Sizes, feedback, stream, write_decoder
from halfwise.emulation import emulate, streamed
from halfwise.verbs.fix.fix import fix

Written = tuple[Path, list[dict[str, Any]]]


def _encoder_decoder(folder: Path) -> Written:
    return encoder_decoder.write_encoder_decoder(folder, 2, 128, 90), encoder_decoder.feeds(90, source=8, target=5)


def _diffusion(folder: Path) -> Written:
    return diffusion.write_diffusion(folder, 1, 64), diffusion.feeds(side=2)


GENERATORS: dict[str, Callable[[Path], Written]] = {"encoder-decoder": _encoder_decoder, "diffusion": _diffusion}


@pytest.mark.parametrize("name", GENERATORS)
def test_it_runs_segment_by_segment_as_a_whole(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, feeds = GENERATORS[name](tmp_path / "given")
    onnx.checker.check_model(path, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    answers = [session.run(None, feed)[0] for feed in feeds]
    assert all(np.isfinite(each).all() and each.std() > 1e-3 for each in answers)
    assert not np.allclose(answers[0], answers[1])
    whole = fix(path, feeds)
    monkeypatch.setattr(emulate, "LARGE_BYTES", 0)
    monkeypatch.setattr(streamed, "LARGE_BYTES", 1)
    parts = fix(path, feeds)
    assert parts.plan.nodes == whole.plan.nodes and parts.verdict.met == whole.verdict.met
    assert [m.rel_l2 for m in parts.fixed.values()] == pytest.approx([m.rel_l2 for m in whole.fixed.values()], rel=0.05)


def test_tokens_one_by_one_are_judged_by_divergence_and_greedy_choice(tmp_path: Path) -> None:
    sizes = Sizes(layers=1, width=64, heads=4, shared=2, inner=128, vocabulary=100)
    path = write_decoder(tmp_path, sizes)
    found = fix(path, stream(sizes, 6), rollout=6, feedback=feedback(sizes), metric="logits")
    assert found.verdict.met and len(found.samples.search) == 1
    told = found.verdict.because
    assert told is not None and 0 < told.values["value"] < told.values["allowed"]
