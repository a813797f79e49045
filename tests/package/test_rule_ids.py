"""Every rule of the package, whether of a finding or of a repair, has an id of its own."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import halfwise
from halfwise.core.rules import RULES as FINDINGS
from halfwise.repair import RULES as REPAIRS

ID = re.compile(r"HW\d{3}")


@cache
def trees() -> tuple[ast.Module, ...]:
    return tuple(ast.parse(path.read_text(encoding="utf-8")) for path in Path(halfwise.__file__).parent.rglob("*.py"))


def definitions() -> Iterator[str]:
    """The first argument of whatever makes a rule, and the `id` of a class that is one."""
    for found in (each for tree in trees() for each in ast.walk(tree)):
        value: ast.expr | None = None
        if isinstance(found, ast.Call) and isinstance(found.func, ast.Name) and found.func.id in ("ScanRule", "Rule"):
            value = found.args[0]
        elif isinstance(found, ast.ClassDef):
            yield from (id_ for line in found.body if (id_ := _assigned(line)))
        if isinstance(value, ast.Constant):
            yield value.value


def _assigned(line: ast.stmt) -> str:
    targets = line.targets if isinstance(line, ast.Assign) else [line.target] if isinstance(line, ast.AnnAssign) else []
    named = any(isinstance(target, ast.Name) and target.id == "id" for target in targets)
    value = getattr(line, "value", None)
    return str(value.value) if named and isinstance(value, ast.Constant) and ID.fullmatch(str(value.value)) else ""


def test_no_two_rules_share_an_id() -> None:
    defined = Counter(definitions())
    assert [id_ for id_, times in defined.items() if times > 1] == []
    assert {*FINDINGS, *(rule.id for rule in REPAIRS)} <= set(defined)


def test_every_id_that_the_package_mentions_is_defined() -> None:
    texts = [
        n.value for tree in trees() for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)
    ]
    mentioned = {id_ for text in texts for id_ in ID.findall(text)}
    assert mentioned - set(definitions()) == set()
