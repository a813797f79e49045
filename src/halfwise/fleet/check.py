"""Every mistake of a fleet's file, with its place, and of what it points to."""

from __future__ import annotations

from pathlib import Path

from halfwise.core.errors import InputError
from halfwise.fleet.jobs import Job, jobs_of
from halfwise.fleet.settings import Mistake, mistakes_in, read_settings, read_text
from halfwise.fleet.toml_places import places

__all__ = ["check_file"]


def check_file(file: Path) -> tuple[list[Job], list[str]]:
    """The jobs, and lines such as "fleet.toml:3:1: ...". Nothing runs, and no file of a user's is imported."""
    text = read_text(file)
    mistakes = mistakes_in(text)
    jobs: list[Job] = []
    if not mistakes:
        settings = read_settings(file)
        where = places(text)
        for index, subject in enumerate(settings.models):
            place = where.get(("models", index, "path"), where.get(("models", index), (1, 1)))
            try:
                found = jobs_of(settings.only(subject))
            except InputError as error:
                mistakes.append(Mistake(*place, str(error)))
                continue
            jobs += found
            mistakes += _missing(found, index, where)
        if not mistakes:
            try:
                jobs = jobs_of(settings)
            except InputError as error:
                mistakes.append(Mistake(1, 1, str(error)))
    return jobs, [f"{file}:{each.line}:{each.column}: {each.what}" for each in mistakes]


def _missing(jobs: list[Job], index: int, where: dict[tuple[str | int, ...], tuple[int, int]]) -> list[Mistake]:
    """Inputs, plans and engines that are not there, each once."""
    found: dict[tuple[str, Path], None] = {}
    for job in jobs:
        found.update({("inputs", path): None for path in job.inputs if not path.exists()})
        for key, path in (("plan", job.plan), ("engine", job.engine)):
            if path is not None and not path.is_file():
                found[key, path] = None
    return [
        Mistake(*_place(where, index, key), f"{key}: {path} is not there; paths start at the folder of this file")
        for key, path in found
    ]


def _place(where: dict[tuple[str | int, ...], tuple[int, int]], index: int, key: str) -> tuple[int, int]:
    return where.get(("models", index, key)) or where.get(("defaults", key)) or where[("models", index)]
