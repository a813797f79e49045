"""No sentence that a user meets is longer than 25 words: messages, advisories, help, what the page's script says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

import halfwise
from halfwise.cli.main import app
from halfwise.deploy.advisories import load_entries
from tests.support.paths import DATA

PACKAGE = Path(halfwise.__file__).parent
MOST = 25
_SPOKEN = re.compile(r'"([^"\\\n]*)"|`([^`]*)`')


def texts() -> Iterator[tuple[str, str]]:
    for kind, example in json.loads((DATA / "messages.json").read_text(encoding="utf-8")).items():
        yield kind, example["says"]
    for entry in load_entries():
        for text in (entry.symptom, entry.workaround, entry.note, entry.seen_with, entry.only_with):
            yield entry.id, text or ""
    yield from helps(get_command(app), "halfwise")
    for script in sorted(PACKAGE.glob("report/html/assets/*.js")):
        for quoted, template in _SPOKEN.findall(script.read_text(encoding="utf-8")):
            yield script.name, re.sub(r"\$\{[^}]*\}", "X", quoted or template)
    for writer in sorted(PACKAGE.glob("deploy/*.py")):  # what it writes into scripts stands in its strings
        for comment in re.findall(r"^# (.*)$", writer.read_text(encoding="utf-8"), re.MULTILINE):
            yield writer.name, comment


def helps(command: Any, name: str) -> Iterator[tuple[str, str]]:
    yield name, command.help or ""
    for option in command.params:
        yield f"{name} --{option.name}", getattr(option, "help", None) or ""
    for word in getattr(command, "commands", {}):
        yield from helps(command.get_command(None, word), f"{name} {word}")


def longest(text: str) -> str:
    return max(re.split(r"[.;!?](?:\s+|$)|\n\s*\n", text), key=lambda sentence: len(sentence.split()))


def test_sentences_are_short() -> None:
    long = {where: longest(text) for where, text in texts() if len(longest(text).split()) > MOST}
    assert long == {}
