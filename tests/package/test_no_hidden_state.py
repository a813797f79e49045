"""Nothing is passed behind a function's back: no identities as keys, no context variables, no changed environment."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import halfwise

PACKAGE = Path(halfwise.__file__).parent


def places(found: type[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    """Every node of a kind in the package, and where it stands."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, found):
                yield f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}", node


def test_no_identity_is_a_key() -> None:
    calls = ((where, node.func) for where, node in places(ast.Call) if isinstance(node, ast.Call))
    assert [where for where, func in calls if isinstance(func, ast.Name) and func.id == "id"] == []


def test_there_is_no_context_variable() -> None:
    assert [where for where, node in places(ast.Name) if isinstance(node, ast.Name) and node.id == "ContextVar"] == []


def test_the_environment_is_read_and_never_changed() -> None:
    changed = []
    for where, node in places(ast.AST):
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) and _is_environment(node.value):
            changed.append(where)
        if isinstance(node, ast.Attribute) and _is_environment(node.value):
            changed += [where] if node.attr in ("update", "setdefault", "pop", "clear") else []
        if isinstance(node, ast.Attribute) and node.attr in ("putenv", "unsetenv"):
            changed.append(where)
    assert changed == []


def _is_environment(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "environ"
