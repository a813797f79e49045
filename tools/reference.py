"""Writes docs/reference.md from the code: every verb with its options, every public name of the Python API.

python -m tools.reference          writes the page
python -m tools.reference --check  exits with 1 where the page is not up to date
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import halfwise
from halfwise.cli.main import VERBS

__all__ = ["PAGE", "main", "reference"]

PAGE = Path(__file__).parent.parent / "docs" / "reference.md"

_HEAD = """# Reference

Made from the code by `python -m tools.reference`; change the code, not this page.

Exit codes of every verb: 0 good, 1 the answer is no, 2 bad usage or bad input (one line on stderr, nothing written),
3 something must be installed, 130 interrupted.
"""


def reference() -> str:
    parts = [_HEAD, "## Commands\n", *_verbs(), "## Python\n", *_names()]
    return "\n".join(parts).rstrip() + "\n"


# -- commands ---------------------------------------------------------------------------------------------------------


def _verbs() -> Iterator[str]:
    for verb in VERBS:
        command = import_module(f"halfwise.cli.{verb}").command
        entries = [_Entry.of(name, parameter) for name, parameter in _parameters(command)]
        usage = " ".join(["halfwise", verb, "[OPTIONS]", *(entry.name for entry in entries if entry.positional)])
        yield f"### halfwise {verb}\n\n```\n{usage}\n```\n\n{_prose(inspect.getdoc(command) or '')}\n"
        rows = [f"| `{_bars(e.name)}` | {_cell(e.help)} | {_cell(e.default)} |" for e in entries]
        yield "\n".join(["| argument or option | meaning | by default |", "|---|---|---|", *rows]) + "\n"


def _parameters(command: Any) -> Iterator[tuple[str, inspect.Parameter]]:
    yield from inspect.signature(command, eval_str=True).parameters.items()


@dataclass(frozen=True)
class _Entry:
    """One argument or option, read from the annotations of a command: what Typer makes of them differs by version."""

    name: str
    help: str
    default: str
    positional: bool

    @classmethod
    def of(cls, name: str, parameter: inspect.Parameter) -> _Entry:
        info = next(m for m in parameter.annotation.__metadata__ if hasattr(m, "param_decls"))
        positional = type(info).__name__ == "ArgumentInfo"
        kind, default = parameter.annotation.__origin__, parameter.default
        metavar = info.metavar or name.upper()
        if positional:
            optional = default is not parameter.empty and not metavar.startswith("[")
            shown = f"[{metavar}]" if optional else metavar
        else:
            # In an annotation the first of an option's names lands where its default would stand.
            stated = [d for d in (info.default, *(info.param_decls or ())) if str(d).startswith("-")]
            shown = ", ".join(stated or [f"--{name.replace('_', '-')}"])
            shown += "" if kind is bool else f" {metavar}"
        return cls(shown, info.help or "", _default(info, kind, default, positional), positional)


def _default(info: Any, kind: Any, default: Any, positional: bool) -> str:
    if default is inspect.Parameter.empty:
        text = "" if positional else "needed"
    elif isinstance(info.show_default, str):
        text = info.show_default
    elif kind is bool or default is None:
        text = ""
    else:
        text = f"`{default}`"
    many = "list[" in str(kind) and "repeatable" not in (info.help or "")
    return "; ".join(part for part in (text, "repeatable" if many else "") if part)


# -- Python -----------------------------------------------------------------------------------------------------------


def _names() -> Iterator[str]:
    found = {name: getattr(halfwise, name) for name in halfwise.__all__}
    for name, thing in sorted(found.items(), key=lambda entry: (inspect.isclass(entry[1]), entry[0].lower())):
        if inspect.isclass(thing):
            yield f"### halfwise.{name}\n\n{_prose(inspect.getdoc(thing) or '')}\n"
            if members := list(_members(thing)):
                yield "\n".join(["| member | what it is |", "|---|---|", *members]) + "\n"
        else:
            words = _prose(inspect.getdoc(thing) or "")
            yield f"### halfwise.{name}\n\n```python\n{_signature(name, thing)}\n```\n\n{words}\n"


def _signature(name: str, function: Any) -> str:
    """One line where it fits, else one parameter a line."""
    signature = inspect.signature(function)
    shown = []
    for parameter in signature.parameters.values():
        text = (
            parameter.name if parameter.annotation is parameter.empty else f"{parameter.name}: {parameter.annotation}"
        )
        if parameter.default is not parameter.empty:
            default = "..." if callable(parameter.default) else repr(parameter.default)
            text += f" = {default}"
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        shown.append(text)
    line = f"halfwise.{name}({', '.join(shown)}) -> {signature.return_annotation}"
    if len(line) <= 100:
        return line
    inner = "".join(f"    {text},\n" for text in shown)
    return f"halfwise.{name}(\n{inner}) -> {signature.return_annotation}"


def _members(cls: type) -> Iterator[str]:
    """Fields of a dataclass, values of an enum, public properties and methods with words of their own."""
    for name, annotation in getattr(cls, "__annotations__", {}).items():
        if not name.startswith("_") and name in getattr(cls, "__dataclass_fields__", {}):
            yield f"| `{name}` | {_cell(f'`{annotation}`')} |"
    for name, member in vars(cls).items():
        if name.startswith("_"):
            continue
        if isinstance(member, property) or type(member).__name__ == "cached_property":
            yield f"| `{name}` | {_cell(_first(member.__doc__ or ''))} |"
        elif inspect.isfunction(member) or isinstance(member, (classmethod, staticmethod)):
            yield f"| `{name}()` | {_cell(_first(inspect.getdoc(member) or ''))} |"


# -- words ------------------------------------------------------------------------------------------------------------


def _prose(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.strip().split("\n\n"))


def _first(text: str) -> str:
    return _prose(text).partition("\n\n")[0]


def _cell(text: str) -> str:
    """What stands between two bars of a table; an angle bracket outside of code would be taken for markup."""
    pieces = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(p if p.startswith("`") else p.replace("<", "&lt;") for p in pieces).replace("|", "\\|")


def _bars(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> int:
    text = reference()
    if "--check" in sys.argv[1:]:
        return int(not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
