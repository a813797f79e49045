"""The identity of a metric: the same function in every process, and another one as soon as anything in it differs."""

from __future__ import annotations

import functools
import importlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from halfwise.core.metric_identity import metric_identity
from halfwise.core.user_metric import load_metric

SOURCE = """
LIMIT = 1.0
def error(reference, other):
    return LIMIT if set(reference) & {"boxes", "scores", "masks", "labels"} else 0.0
"""
MODULE = "hw_identified"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Writes the user's module, and imports it afresh."""
    monkeypatch.chdir(tmp_path)

    def written(text: str) -> Any:
        (tmp_path / f"{MODULE}.py").write_text(text)
        sys.modules.pop(MODULE, None)
        importlib.invalidate_caches()
        return load_metric(f"{MODULE}:error")

    yield written
    sys.modules.pop(MODULE, None)


def scaled(reference: Any, other: Any, factor: Any = 1.0) -> float:
    return float(factor)


def of_scope(held: Any) -> Any:
    return lambda reference, other: float(held)


@dataclass
class Weighted:
    weights: Any

    def __call__(self, reference: Any, other: Any) -> float:
        return float(np.sum(self.weights))

    def again(self, reference: Any, other: Any) -> float:
        return self(reference, other)


def recursive() -> Any:
    def inner(reference: Any, other: Any, depth: int = 2) -> float:
        return inner(reference, other, depth - 1) if depth else 0.0

    return inner


def typed_in(text: str) -> Any:
    """A function of a notebook: there is no file of it."""
    scope: dict[str, Any] = {"__name__": "__main__of_a_notebook", "np": np}
    exec(text, scope)
    return scope["error"]


MAKERS: list[Callable[[Any], Any]] = [
    lambda x: functools.partial(scaled, factor=x),
    lambda x: functools.partial(functools.partial(scaled, factor=x)),
    lambda x: functools.partial(scaled, factor=np.array([1.0, x])),
    of_scope,
    lambda x: of_scope({"boxes": [x]}),
    lambda x: Weighted(np.full(3, x)),
    lambda x: Weighted([x]).again,
    lambda x: typed_in(f"def error(r, o): return {x}"),
    lambda x: typed_in(f"def help(r): return {x}\ndef error(r, o): return np.abs(help(r))"),
    lambda x: typed_in(f"class error:\n def __init__(self, r, o): pass\n def __float__(self): return {x}"),
]


@pytest.mark.parametrize("make", MAKERS)
def test_what_it_holds_tells_it_from_others(make: Callable[[Any], Any]) -> None:
    assert metric_identity(make(2.0)) == metric_identity(make(2.0)) != metric_identity(make(3.0))


def test_functions_of_one_name_differ_by_their_code() -> None:
    one, other = (lambda reference, other: 1.0), (lambda reference, other: 2.0)
    assert metric_identity(one) != metric_identity(other)
    assert metric_identity(None) == "" != metric_identity(recursive()) == metric_identity(recursive())


def test_what_cannot_be_compared_is_new_each_time() -> None:
    metric = functools.partial(scaled, factor=threading.Lock())
    assert metric_identity(metric) != metric_identity(metric)


def test_the_source_of_its_module_belongs_to_it(module: Callable[[str], Any]) -> None:
    first = metric_identity(module(SOURCE))
    assert metric_identity(module(SOURCE)) == first
    assert metric_identity(module(SOURCE.replace("1.0", "2.0"))) != first


def test_another_process_says_the_same(module: Callable[[str], Any], tmp_path: Path) -> None:
    module(SOURCE)
    script = (
        "from halfwise.core.metric_identity import metric_identity; from halfwise.core.user_metric import load_metric; "
        f"import functools; print(metric_identity(functools.partial(load_metric('{MODULE}:error'), 0.5)))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            cwd=tmp_path, capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip
    assert len(said) == 1
