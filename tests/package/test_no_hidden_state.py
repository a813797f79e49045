"""Nothing is passed behind a function's back: no identities as keys, no context variables, no changed environment."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import halfwise

PACKAGE = Path(halfwise.__file__).parent


@cache
def every_node() -> list[tuple[str, ast.AST]]:
    """Every node of the package's syntax trees that a test asks for, and its file."""
    asked = (ast.Call, ast.Name, ast.Subscript, ast.Attribute, ast.ClassDef)
    files = (
        (str(path.relative_to(PACKAGE)), path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))
    )
    return [(name, node) for name, text in files for node in ast.walk(ast.parse(text)) if isinstance(node, asked)]


def places(found: type[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    """Every node of a kind in the package, and where it stands."""
    for name, node in every_node():
        if isinstance(node, found):
            yield f"{name}:{getattr(node, 'lineno', 0)}", node


def test_no_identity_is_a_key() -> None:
    calls = ((where, node.func) for where, node in places(ast.Call) if isinstance(node, ast.Call))
    assert [where for where, func in calls if isinstance(func, ast.Name) and func.id == "id"] == []


def test_there_is_no_context_variable() -> None:
    assert [where for where, node in places(ast.Name) if isinstance(node, ast.Name) and node.id == "ContextVar"] == []


# Who tells a native library what only a variable tells it, before it is loaded, in a process of its own.
TELLS_A_LIBRARY = {"core/put_off.py": "ORT_DISABLE_TELEMETRY"}


def test_the_environment_is_read_and_never_changed() -> None:
    changed = []
    for where, node in places(ast.AST):
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) and _is_environment(node.value):
            changed.append(where)
        if isinstance(node, ast.Attribute) and _is_environment(node.value):
            changed += [where] if node.attr in ("update", "setdefault", "pop", "clear") else []
        if isinstance(node, ast.Attribute) and node.attr in ("putenv", "unsetenv"):
            changed.append(where)
    assert [where for where in changed if where.partition(":")[0] not in TELLS_A_LIBRARY] == []
    written = {name: (PACKAGE / name).read_text(encoding="utf-8").count("os.environ") for name in TELLS_A_LIBRARY}
    assert written == dict.fromkeys(TELLS_A_LIBRARY, 1)


def _is_environment(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "environ"


# Classes whose work is to gather, and what each cannot do without. Each declares in `__init__` what changes; none
# leaves its step.
GATHERERS = {
    "Atoms": "unknowns are numbered as they are made",
    "Collector": "a build log is read once, line by line; what a line means depends on those before",
    "Compiler": "builds and their seconds are counted, also of those that fail",
    "Counter": "arrays of any size are counted chunk by chunk, without a copy",
    "Course": "how far a job is changes while it runs",
    "Failures": "whatever may fail without ending the job is counted",
    "Freed": "counts the memory that was let go, which then goes back to the system",
    "GraphEdit": "each new node stands behind the last one",
    "KeptWalks": "counts those that were not walked again",
    "Names": "the room for long names on a page is shared by all of them",
    "Overflow": "counts the nodes that an infinity has come through",
    "Passing": "which step of a walk is going on",
    "Receiver": "TensorRT calls it back with the size and the shape of an output",
    "Room": "memory that one weight after the other lies in",
    "RoundedWeights": "a cache within a bound of memory",
    "RunCounter": "the one counter of model runs",
    "SamplesDone": "how far a job is changes while it runs",
    "Stepper": "a cache of compiled nodes, and how many were run",
    "Teller": "what was told last, and how long a walk takes",
    "Tape": "a cache within a bound of memory",
    "Trials": "keeps what ran the builds",
    "_Doing": "shows progress",
    "_InlinePass": "the library resets it before each model",
    "_Lines": "shows progress",
    "_Reader": "a place in a text, read from front to back",
    "_Scanner": "a place in a build log, read block by block",
    "_Scratch": "memory that each thread counts in again and again",
    "_Search": "asks for builds one by one; each answer changes what is asked next",
    "_Sums": "arrays of any size are compared chunk by chunk, without a copy",
    "_Table": "shows progress",
}


def test_no_attribute_is_set_outside_init() -> None:
    """An object is what it was made; those that gather change no attribute that they were not made with."""
    gathering = set()
    for where, node in places(ast.ClassDef):
        assert isinstance(node, ast.ClassDef)
        methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
        made = {name for each in methods if each.name == "__init__" for name in _own_attributes(each)}
        made |= {ast.unparse(each.target) for each in node.body if isinstance(each, ast.AnnAssign)}
        later = {name for each in methods if each.name != "__init__" for name in _own_attributes(each)}
        assert later <= (made if node.name in GATHERERS else set()), f"{where} {node.name}: {sorted(later)}"
        gathering |= {node.name} if later else set()
    assert gathering == GATHERERS.keys(), "a class that gathers no more"


def _own_attributes(method: ast.FunctionDef) -> set[str]:
    """What a method sets on `self`; methods of classes inside it speak of another one."""
    inner = {each for found in ast.walk(method) if isinstance(found, ast.ClassDef) for each in ast.walk(found)}
    return {
        each.attr
        for each in ast.walk(method)
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and each not in inner
        if isinstance(each.value, ast.Name) and each.value.id == "self"
    }
