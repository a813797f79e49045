"""A file that a user named and that is not there."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from halfwise.core.errors import InputError
from halfwise.core.nearest import nearest

__all__ = ["absent"]

_LOOKED_AT = 1000  # names in the folder
_COMMAND, _SCRIPT = ".trtexec.sh", ".build.py"  # what `fix` writes to build an engine
_OUTPUTS = ".engine-outputs"
_MOST_READ = 1 << 20


def absent(path: Path, what: str = "file") -> InputError:
    """What to raise: with the command that makes it, or names of the same folder that look like it."""
    try:
        names = sorted(each.name for each in islice(path.parent.iterdir(), _LOOKED_AT) if each != path)
    except OSError:
        names = []
    if command := _made_by(path, names):
        return InputError(f"{path}: there is no such {what} yet; this command makes it: {shlex.join(command)}")
    near = nearest(path.name, names)
    if what == "plan" and not near:
        near = "; `halfwise fix MODEL --out FOLDER` writes FOLDER/MODEL.plan.json"
    return InputError(f"{path}: there is no such {what}{near}")


def _made_by(path: Path, names: Iterable[str]) -> list[str]:
    """The command beside it that names the file among what it writes."""
    option, value = re.compile(rf"={re.escape(path.name)}['\s]"), re.compile(re.escape(f"{json.dumps(path.name)},"))
    for ending, start, written in ((_COMMAND, ["sh"], option), (_SCRIPT, ["python"], value)):
        for name in names:
            script = path.parent / name
            if name.endswith(ending) and written.search(_text(script)):
                samples = str(path.parent / f"{path.name.removesuffix(_OUTPUTS)}.samples")
                return [*start, str(script), *(["--run", samples] if path.name.endswith(_OUTPUTS) else [])]
    return []


def _text(script: Path) -> str:
    try:
        with script.open("rb") as file:
            return file.read(_MOST_READ).decode("utf-8", errors="replace") + " "
    except OSError:
        return ""
