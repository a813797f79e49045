"""A package whose names are imported when they are first asked for, so that importing it costs nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazily"]


def lazily(
    package: str,
    homes: Mapping[str, str],
    dressed: Callable[[str, Any], Any] = lambda home, value: value,
    before: Callable[[str], None] = lambda home: None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package; `homes` says in which module or package each public name lives.

    `dressed` makes what is shown of what is there, and of its place, such as "package.module:name". `before` is called
    before a home is imported.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        before(homes[name])
        home = import_module(homes[name], package)
        if homes[name] == f".{name}":  # a package
            return home
        value = getattr(home, name) if hasattr(home, name) else import_module(f"{homes[name]}.{name}", package)
        shown = dressed(f"{home.__name__}:{name}", value)
        setattr(sys.modules[package], name, shown)
        return shown

    def names() -> list[str]:
        return sorted({*homes, *(name for name in vars(sys.modules[package]) if name.startswith("__"))})

    return get, names
