"""What a look at files found, and its document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from halfwise.core.document import Documented
from halfwise.core.english import documented, say
from halfwise.core.files.identify import Identified
from halfwise.core.files.kinds import FileKind
from halfwise.core.finding import Finding
from halfwise.core.notes import Note, NoteKind
from halfwise.core.summary import Summary
from halfwise.core.targets import Target
from halfwise.core.wording import counted
from halfwise.verbs.doctor.document import DoctorDocument, FileRecord, NextRecord, NextStep

__all__ = ["Diagnosed"]

_DAMAGED = {FileKind.CUT_OFF, FileKind.CUT_OFF_ONNX, FileKind.LFS_POINTER}


@dataclass(frozen=True, repr=False)
class Diagnosed(Documented):
    """The files, what they tell together, and the next step. `facts` are, by file, what its content tells."""

    files: tuple[Identified, ...]
    facts: Mapping[Path, str]
    target: Target | None
    findings: tuple[Finding, ...]
    next: NextStep
    notes: tuple[Note, ...] = ()

    @property
    def good(self) -> bool:
        """Whether every file could be read, and nothing was found that is more than information."""
        damaged = any(_is_damaged(each) for each in self.files)
        unread = any(note.kind is NoteKind.FILE_NOT_READ for note in self.notes)
        return not damaged and not unread and all(finding.severity == "info" for finding in self.findings)

    def summary(self) -> Summary:
        """What was found, the most severe first."""
        columns = ("rule", "severity", "where", "message")
        rows = tuple((each.rule, each.severity, each.where.name, each.message) for each in self.findings)
        told = f"{counted(len(self.files), 'file')}, {counted(len(rows), 'finding')}; next: {self.next.command}"
        return Summary(told, columns, rows, self.good)

    def document(self) -> DoctorDocument:
        return DoctorDocument(
            files=[FileRecord(str(f.path), f.kind, f.name, self.facts.get(f.path, "")) for f in self.files],
            target=str(self.target) if self.target is not None else None,
            findings=self.findings,
            next=NextRecord(self.next.command, say(self.next.why), self.next.why),
            **documented(self.notes),
        )


def _is_damaged(file: Identified) -> bool:
    return file.kind in _DAMAGED or (file.path.suffix == ".onnx" and file.kind is not FileKind.ONNX)
