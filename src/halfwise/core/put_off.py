"""Puts off what costs a process of ours time and seldom serves it; tells libraries how to behave."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import LazyLoader
from types import ModuleType
from typing import Any

from halfwise.core.freed_memory import one_heap

__all__ = ["SELDOM", "Later", "put_off", "put_off_for_onnx_ir", "tell_libraries"]

# A third of the time that a command takes to start: what adds up symbolic sizes of shapes.
SELDOM = frozenset({"sympy", "onnx_ir._symbolic_shapes"})

# Of new objects, between two searches for garbage; by default a thousand modules are searched 250 times as they load.
_OBJECTS = 200_000

_TOLD = {
    "OPENBLAS_NUM_THREADS": "1",  # the last bits of NumPy's products hang on how many there are
    "ORT_DISABLE_TELEMETRY": "1",  # it complains where it has no home to write to
}


# Beside a model nobody reads them: of an attribute that is deprecated, one for each time the model is loaded.
_RUNTIME, _ERRORS = "onnxruntime", 3


class _Later:
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in SELDOM else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


def put_off() -> None:
    """From now on these are loaded when something of them is first asked for, and garbage is looked for less often; for
    a process that is ours alone."""
    one_heap()
    sys.meta_path.insert(0, _Later())
    gc.set_threshold(_OBJECTS, *gc.get_threshold()[1:])
    tell_libraries()


class _Quiet:
    """ONNX Runtime logs errors only, from where it is loaded on."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name == _RUNTIME else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _QuietLoader(spec.loader.name, spec.loader.path)
        return spec


class _QuietLoader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        module.set_default_logger_severity(_ERRORS)


def tell_libraries() -> None:
    """How to behave, before they are loaded; for a process that runs nothing of others, and those that it starts."""
    os.environ.update(_TOLD)
    sys.meta_path.insert(0, _Quiet())


class Later(ModuleType):
    """A module of this name, loaded when something of it is first asked for."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        found = getattr(import_module(self.__name__), name)
        setattr(self, name, found)  # it may be asked for thousands of times
        return found


def put_off_for_onnx_ir() -> None:
    """Load onnx_ir with stand-ins for them. In a process of others nobody else is to meet these."""
    if "onnx_ir" in sys.modules or SELDOM & sys.modules.keys():
        return
    stand_ins = {name: Later(name) for name in SELDOM}
    sys.modules.update(stand_ins)
    try:
        import_module("onnx_ir")
    finally:
        for name, stand_in in stand_ins.items():
            if sys.modules.get(name) is stand_in:
                del sys.modules[name]
