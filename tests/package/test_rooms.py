"""The rooms import downwards and no module goes round in a circle; lazy, type-only and named imports count."""

from __future__ import annotations

import ast
import re
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import halfwise

ORDER = "core model precision emulation repair search compiler deploy backends verbs report fleet cli".split()
PACKAGE = Path(halfwise.__file__).parent
_JOB = re.compile(r"(halfwise\.[\w.]+):\w+")
OUTERMOST = {"halfwise", *(f"halfwise.{name}" for name in ("__main__", "_version", "olive", "pytest_plugin", "torch"))}
OUTSIDE = {"__init__", "__main__", "_version", "olive", "pytest_plugin", "torch"}  # the package's own face


def name_of(path: Path) -> str:
    return ".".join(("halfwise", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


@cache
def modules() -> dict[str, Path]:
    return {name_of(path): path for path in PACKAGE.rglob("*.py")}


@cache
def imports() -> dict[str, frozenset[str]]:
    """Every module, and the modules of halfwise that it names in an import anywhere."""
    return {name: frozenset(_imported(path) - {name, "halfwise"}) for name, path in modules().items()}


def _imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: imports are absolute"
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in modules() else str(node.module) for name in whole}
        elif isinstance(node, ast.Constant) and (named := _JOB.fullmatch(str(node.value))):
            found.add(named[1])  # what a child process imports by its name
    return {name for name in found if name.split(".")[0] == "halfwise"}


def room(name: str) -> str:
    return name.split(".")[1]


def test_the_rooms_are_these_and_no_module_is_loose() -> None:
    assert {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()} == set(ORDER)
    assert {path.stem for path in PACKAGE.glob("*.py")} == OUTSIDE


def test_rooms_import_downwards() -> None:
    upwards = [
        f"{name} imports {other}"
        for name, others in imports().items()
        for other in others
        if {name, other} & {"halfwise"} == set() and {room(name), room(other)} <= set(ORDER)
        if ORDER.index(room(other)) > ORDER.index(room(name))
    ]
    assert upwards == []


def test_no_import_goes_round_in_a_circle() -> None:
    assert list(TopologicalSorter(imports()).static_order())


def test_packages_inside_a_room_import_one_way() -> None:
    """A room's own modules count as one package; which of the two arrows there is, the room decides."""
    arrows: dict[str, set[str]] = {}
    for name, others in imports().items():
        for other in others:
            one, two = package_of(name), package_of(other)
            if one != two and {name, other} & OUTERMOST == set() and room(name) == room(other):
                arrows.setdefault(one, set()).add(two)
    assert list(TopologicalSorter(arrows).static_order())


def package_of(name: str) -> str:
    return name if modules()[name].name == "__init__.py" else name.rpartition(".")[0]


def test_every_import_names_a_module_that_is_there() -> None:
    assert {name for names in imports().values() for name in names} <= set(modules())
