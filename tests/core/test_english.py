"""Every note has one sentence, and every place that makes one fills it."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter
from typing import Any, get_args

import pytest

import halfwise
from halfwise.compiler.buildlog import catalogue
from halfwise.core.english import TEMPLATES, say
from halfwise.core.english.finding import finding
from halfwise.core.english.stages import STAGE_FINDINGS
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.core.rules import RULES
from halfwise.core.wording import and_more, counted, listed
from halfwise.verbs.stages.document import FindingOfStage
from tests.support.paths import DATA

PACKAGE = Path(halfwise.__file__).parent

# Of each kind: an example, and what it says.
SAID: dict[NoteKind, tuple[dict[str, Any], str]] = {
    NoteKind(kind): (example["values"], example["says"])
    for kind, example in json.loads((DATA / "messages.json").read_text(encoding="utf-8")).items()
}


def test_every_kind_is_said_and_has_an_example() -> None:
    assert set(TEMPLATES) == set(SAID) == set(NoteKind)


@pytest.mark.parametrize("kind", SAID, ids=lambda kind: kind.value)
def test_what_is_said(kind: NoteKind) -> None:
    values, sentence = SAID[kind]
    assert say(Note.of(kind, **values)) == sentence


# Verbs of several things, as sentences have them behind a number.
PLURAL = "are|were|have|differ|stay|miss|accumulate|quantise|compute|fit|match|show|keep|lose|hold|change"


@pytest.mark.parametrize("kind", [kind for kind in SAID if ":many " in TEMPLATES[kind] or "{count}" in TEMPLATES[kind]])
def test_what_is_said_of_one(kind: NoteKind) -> None:
    """The verb agrees with the number in front of it."""
    counted = {name for _, name, spec, _ in Formatter().parse(TEMPLATES[kind]) if (spec or "").startswith("many ")}
    values = {**SAID[kind][0], **dict.fromkeys((counted | {"count"}) & set(SAID[kind][0]), 1)}
    said = say(Note.of(kind, **values))
    assert not re.search(rf"\b1 (?!of)(?:[a-z]+ ){{1,3}}(?:{PLURAL})\b", said), said
    assert not re.search(rf"\b1 of [\d,]+ (?:[a-z]+ ){{1,5}}(?:{PLURAL})\b", said), said


def texts() -> Iterator[tuple[str, str]]:
    """Everything that notes, rules and the catalogue of build logs say."""
    for kind, template in TEMPLATES.items():
        yield kind.value, template
    for rule in RULES.values():
        yield from ((rule.id, rule.title), (rule.id, rule.remedy))
    for logged in catalogue.RULES.values():
        yield from ((logged.id, each) for each in (logged.description, logged.message))
        yield from ((logged.id, each) for each in (logged.remedy.weak, logged.remedy.strong))


@pytest.mark.parametrize(("what", "text"), texts())
def test_no_sentence_is_longer_than_25_words(what: str, text: str) -> None:
    whole = re.sub(r"\{[^{}]*\}", "X", text)
    longest = max(re.split(r"[.;!?](?:\s+|$)", whole), key=lambda sentence: len(sentence.split()))
    assert len(longest.split()) <= 25, f"{what}: {longest}"


def test_every_note_is_made_with_what_its_sentence_needs() -> None:
    made = list(notes_made())
    assert {kind for _, kind, _ in made} == set(NoteKind), "a kind that nothing makes"
    wrong = [(place, kind.name) for place, kind, keys in made if keys != set(SAID[kind][0])]
    assert not wrong


def notes_made() -> Iterator[tuple[str, NoteKind, set[str]]]:
    """Where a note is made, its kind, and the names of its values."""
    for path in PACKAGE.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "Note.of":
                kind, *subject = call.args
                assert isinstance(kind, ast.Attribute), f"{path}:{call.lineno}: the kind is named where a note is made"
                keys = {str(keyword.arg) for keyword in call.keywords}
                yield f"{path.name}:{call.lineno}", NoteKind[kind.attr], keys | ({"subject"} if subject else set())


def test_every_finding_is_made_of_a_note() -> None:
    """Only what a compiler's log says has words of its own: those of the catalogue."""
    makers = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "Finding"
    }
    assert makers == {"core/english/finding.py", "compiler/buildlog/collect.py"}
    assert inspect.signature(finding).parameters["note"].annotation == "Note"


# What is said to people: a report shows it whole.
SENTENCES = {"cause", "measured", "message", "note", "reason", "remedy", "told", "why"}
TAKING_APART = {"count", "endswith", "find", "index", "partition", "removeprefix", "removesuffix", "replace",
                "rpartition", "rsplit", "split", "startswith"}  # fmt: skip


def test_nothing_takes_a_sentence_apart_or_searches_it() -> None:
    assert list(taken_apart()) == []


def taken_apart() -> Iterator[str]:
    for room in ("core", "search", "compiler", "deploy", "backends", "verbs", "report", "cli"):
        for path in (PACKAGE / room).rglob("*.py"):
            if path.parent.name == "buildlog" or path.name == "native_build.py":
                continue  # these read a compiler's own text
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    found = node.func.attr in TAKING_APART and bool(node.args) and is_sentence(node.func.value)
                elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
                    found = isinstance(node.left, (ast.Constant, ast.JoinedStr)) and is_sentence(node.comparators[0])
                else:
                    continue
                if found:
                    yield f"{path.relative_to(PACKAGE)}:{node.lineno}"


def is_sentence(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) in ("say", "english.say")
    return getattr(node, "attr", getattr(node, "id", "")) in SENTENCES


def test_a_note_in_a_document() -> None:
    note = Note.of(NoteKind.SAMPLES_NOT_FINITE, "x", bad=1, samples=float("inf"))
    assert note.to_json() == {
        "kind": "samples-not-finite",
        "severity": "warning",
        "subject": "x",
        "values": {"bad": 1, "samples": "inf"},
    }
    assert len({note, Note.of(NoteKind.SAMPLES_NOT_FINITE, "x", bad=1, samples=float("inf"))}) == 1


def test_what_limits_trust_is_a_warning() -> None:
    kinds = (NoteKind.SYNTHETIC, NoteKind.NOT_COMPILED, NoteKind.NOT_KEPT, NoteKind.CPU_COMPUTES_WIDE)
    assert {Note.of(kind).severity for kind in kinds} == {"warning"}
    assert Note.of(NoteKind.COMPILED).severity == "info"


def test_older_names_of_reasons_still_read() -> None:
    assert Reason("not measured alone") is Reason.UNPROVEN
    assert Reason("all that could help is kept") is Reason.EXHAUSTED
    assert f"{Reason.OVERFLOW}" == Reason.OVERFLOW == "overflow"


def test_counts_and_lists() -> None:
    assert [counted(n, "node") for n in (0, 1, 1204)] == ["0 nodes", "1 node", "1,204 nodes"]
    assert counted(2, "repeat", "repeats of it") == "2 repeats of it"
    cut = [and_more(total, 6, "file") for total in (6, 7, 8)]
    assert cut == ["", " and 1 more file", " and 2 more files"] and and_more(8, 6) == " and 2 more"
    assert [listed("abcd"[:n]) for n in (0, 3, 4)] == ["", "'a', 'b', 'c'", "'a', 'b', 'c' and 1 more"]


def test_every_finding_of_a_stage_has_words() -> None:
    assert set(STAGE_FINDINGS) == set(get_args(FindingOfStage))
