"""Runs the command line as a user does: through `main`, with what it prints and the code it ends with."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from halfwise.cli.main import main
from tests.models.zoo import ZooModel


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """stdout, which must be one JSON document and nothing else."""
        document = json.loads(self.out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
        assert isinstance(document, dict)
        return document

    @property
    def told(self) -> str:
        """stderr, which must be one line."""
        assert self.err.count("\n") == 1, self.err
        return self.err.strip()


class CommandLine:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *words: object) -> Ended:
        self._monkeypatch.setattr(sys, "argv", ["halfwise", *(str(word) for word in words)])
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = self._capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Ended(ended.value.code, out, err)


def save(zoo: ZooModel, folder: Path, samples: int = 6) -> tuple[Path, Path]:
    """The model and its inputs on disk."""
    model, inputs = folder / f"{zoo.name}.onnx", folder / "inputs"
    onnx.save(zoo.model, model)
    inputs.mkdir(exist_ok=True)
    for index, feed in enumerate(zoo.inputs[:samples]):
        np.savez(inputs / f"{index}.npz", **feed)
    return model, inputs
