"""The files of a user's function: its module, and the modules beside the fleet's file that it imports, however deep.

They are found without running anything: what is imported by a name made at run time is not seen.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from halfwise.core.errors import InputError

__all__ = ["sources_of", "why_not_there"]


def sources_of(function: str, folder: Path) -> tuple[Path, ...]:
    """The module's own file first. What is installed has its neighbours with it, on every machine."""
    module, _, _ = function.partition(":")
    here = folder.absolute()
    own = _file(_spec(module, [str(here), *sys.path]))
    if own is None:
        raise InputError(f"the function {function}: there is no module {module!r} beside the fleet's file or installed")
    found: dict[str, Path | None] = {}
    waiting = [module] if own.is_relative_to(here) else []
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        spec = _spec(name, [str(here)])
        found[name] = file = _file(spec)
        parents = name.split(".")[:-1]
        waiting += [".".join(parents[:count]) for count in range(1, len(parents) + 1)]
        if file is not None:
            waiting += _imported(
                file, name if spec is not None and spec.submodule_search_locations else ".".join(parents)
            )
    return tuple(dict.fromkeys((own, *sorted(file for file in found.values() if file is not None))))


def why_not_there(function: str, folder: Path) -> str:
    """Empty where its module has a thing of that name, as far as that is to be seen without running it."""
    try:
        source = sources_of(function, folder)[0]
    except InputError as error:
        return str(error)
    name = function.partition(":")[2].partition(".")[0]
    try:
        tree = ast.parse(source.read_bytes())
    except (OSError, ValueError):  # compiled: nobody knows
        return ""
    except SyntaxError as error:
        return (
            f"the function {function}: {source.name}, line {error.lineno}: {error.msg}"
            if source.suffix == ".py"
            else ""
        )
    made: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            made.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            made.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            made.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
    return "" if made & {name, "*", "__getattr__"} else f"the function {function}: {source.name} has no {name!r}"


def _spec(module: str, search: Sequence[str] | None) -> ModuleSpec | None:
    spec = None
    for part in module.split("."):
        spec = PathFinder.find_spec(part, search)
        search = spec.submodule_search_locations if spec is not None else None
        if spec is None:
            return None
    return spec


def _file(spec: ModuleSpec | None) -> Path | None:
    return Path(spec.origin) if spec is not None and spec.origin and Path(spec.origin).is_file() else None


def _imported(file: Path, package: str) -> Iterator[str]:
    """Names of modules, and of what may be one; `package` is where relative ones start."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):  # its job will say so; an extension has no imports to read
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join(filter(None, (*start, node.module)))
            yield from filter(None, (base, *(".".join(filter(None, (base, alias.name))) for alias in node.names)))
