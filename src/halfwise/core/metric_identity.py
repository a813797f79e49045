"""The identity of a user's metric: its code and all that it holds. Measurements of another one are not resumed."""

from __future__ import annotations

import hashlib
import io
import pickle
import sys
import types
import uuid
from pathlib import Path
from typing import Any

from halfwise.core.metrics import OutputMetric

__all__ = ["metric_identity"]


def metric_identity(metric: OutputMetric | None) -> str:
    """A digest of module, name and code, and of defaults, closure, arguments and attributes; the same in every process.

    What holds something that cannot be compared, such as a lock, is new each time.
    """
    if metric is None:
        return ""
    written = io.BytesIO()
    try:
        _Content(written, protocol=5).dump(metric)
    except Exception:
        return uuid.uuid4().hex
    return hashlib.sha256(written.getvalue()).hexdigest()


class _Content(pickle.Pickler):
    """Writes functions and classes by what they are, where pickle writes their names only. Nothing reads it back."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, types.ModuleType):
            return dict, (), (obj.__name__,)
        if isinstance(obj, types.FunctionType):
            where, text = _home(obj)
            held = [cell.cell_contents for cell in obj.__closure__ or () if cell != types.CellType()]
            reads = {} if text else {name: obj.__globals__.get(name) for name in obj.__code__.co_names}
            state = (obj.__defaults__, obj.__kwdefaults__, vars(obj), held, reads)
            return dict, (), (where, text, _code(obj.__code__), *state)
        if isinstance(obj, type) and obj.__module__ != "builtins":
            where, text = _home(obj)
            functions = () if text else [each for each in vars(obj).values() if isinstance(each, types.FunctionType)]
            return dict, (), (where, text, functions)
        return NotImplemented


def _home(defined: Any) -> tuple[str, str]:
    """The full name of a function or class, and a digest of its module's source; empty where there is no file."""
    file = getattr(sys.modules.get(defined.__module__), "__file__", None)
    text = hashlib.sha256(Path(file).read_bytes()).hexdigest() if file and Path(file).is_file() else ""
    return f"{defined.__module__}:{defined.__qualname__}", text


def _code(value: Any) -> str:
    """Bytecode and its constants in one text, which hangs neither on the order of a set nor on line numbers."""
    if isinstance(value, types.CodeType):
        return f"{value.co_code.hex()} {value.co_names} {value.co_varnames} {_code(value.co_consts)}"
    if isinstance(value, (tuple, frozenset)):
        parts = [_code(each) for each in value]
        return f"({', '.join(parts if isinstance(value, tuple) else sorted(parts))})"
    return repr(value)
