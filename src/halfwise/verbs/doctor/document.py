"""The document of a look at files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from halfwise.core.document import Document, Record, about
from halfwise.core.files.kinds import FileKind
from halfwise.core.finding import Finding
from halfwise.core.notes import Messages, Note

__all__ = ["DoctorDocument", "FileRecord", "NextRecord", "NextStep"]


@dataclass(frozen=True)
class NextStep:
    """A command, and what it is good for."""

    command: str
    why: Note


class FileRecord(Record, frozen=True):
    """One file, or a folder of samples."""

    path: str
    kind: FileKind
    name: Annotated[str, about("What it is, in words.")]
    tells: Annotated[str, about("What its content tells in a few words; empty for none.")]


class NextRecord(Record, frozen=True):
    """The one thing to do next."""

    command: Annotated[str, about("A command, or what to do before there is one.")]
    why: str
    message: Note


class DoctorDocument(Document, frozen=True, tag="halfwise.doctor/1"):
    """What `halfwise doctor --json` prints: what files are, and what they tell together."""

    files: Sequence[FileRecord]
    target: str | None
    findings: Annotated[Sequence[Finding], about("Those that matter most first.")]
    next: NextRecord
    notes: Sequence[str]
    messages: Messages = ()
