"""The benchmark of the promise keeps its trials, and makes none twice."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.promise.__main__ import main
from benchmarks.promise.models import SUBJECTS


def test_every_model_runs_on_inputs_of_its_kind() -> None:
    assert len(SUBJECTS) >= 12
    for name in list(SUBJECTS)[:13]:
        subject = SUBJECTS[name]()
        onnx.checker.check_model(subject.model, full_check=True)
        one, other = (subject.draw(np.random.default_rng(seed)) for seed in (0, 1))
        assert any(not np.array_equal(one[key], other[key]) for key in one)


def test_trials_that_were_made_are_not_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--draws", "1", "--given", "4", "--models", "unit_embedding", "--rows", str(tmp_path / "rows")]
    assert main(asked) == 0
    first = capsys.readouterr().out
    lines = (tmp_path / "rows").read_text().splitlines()
    assert [json.loads(line)["trial"] for line in lines] == ["unit_embedding 4 0 all"]
    assert main(asked) == 0
    assert capsys.readouterr().out == first
    assert (tmp_path / "rows").read_text().splitlines() == lines
