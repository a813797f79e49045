"""Puts off what a library imports with itself and seldom uses, until it is used; for processes that are ours alone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType

__all__ = ["SELDOM", "put_off"]

# A third of the time that a command takes to start: what adds up symbolic sizes of shapes.
SELDOM = frozenset({"sympy", "onnx_ir._symbolic_shapes"})


class _Later:
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in SELDOM else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


def put_off() -> None:
    """From now on these are loaded when something of them is first asked for."""
    sys.meta_path.insert(0, _Later())
