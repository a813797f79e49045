"""What is said of loops that a rounded number ends: no sample tells that one ends with every input."""

from __future__ import annotations

from collections.abc import Iterator

from halfwise.core.notes import Note, NoteKind
from halfwise.emulation.endless_loops import deciding
from halfwise.precision.assignment import Assignment

__all__ = ["open_loops"]


def open_loops(assignment: Assignment) -> Iterator[Note]:
    for site in assignment.sites.all:
        if nodes := deciding(site.node, assignment):
            yield Note.of(NoteKind.LOOP_MAY_NOT_END, site.name, nodes=[node.name or "" for node in nodes])
