"""Every mistake of a fleet's file, with its place, and of what it points to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from halfwise.core.errors import InputError
from halfwise.fleet.jobs import Job, jobs_of
from halfwise.fleet.settings import Mistake, mistakes_in, read_text, sound_settings
from halfwise.fleet.sources import why_not_there
from halfwise.fleet.toml_places import places

__all__ = ["check_file"]

Places = Mapping[tuple[str | int, ...], tuple[int, int]]


def check_file(file: Path) -> tuple[list[Job], list[str]]:
    """The jobs, and lines such as "fleet.toml:3:1: ...". Nothing runs, and no file of a user's is imported."""
    text = read_text(file)
    mistakes = mistakes_in(text)
    settings = sound_settings(text, file.parent)
    where = places(text) if settings.sound else {}  # of a text that can be read
    jobs: list[Job] = []
    if settings.results.exists() and not settings.results.is_dir():
        mistakes.append(
            Mistake(*where.get(("fleet", "results"), (1, 1)), f"results: {settings.results} is a file, not a folder")
        )
    for index, subject in settings.sound.items():
        place = where.get(("models", index, "path"), where.get(("models", index), (1, 1)))
        try:
            found = jobs_of(settings.only(subject))
        except InputError as error:
            mistakes.append(Mistake(*place, str(error)))
            continue
        jobs += found
        mistakes += _missing(found, settings.folder, index, where)
    if not mistakes:
        try:
            jobs = jobs_of(settings)
        except InputError as error:
            mistakes.append(Mistake(1, 1, str(error)))
    return jobs, [f"{file}:{each.line}:{each.column}: {each.what}" for each in sorted(mistakes)]


def _missing(jobs: list[Job], folder: Path, index: int, where: Places) -> Iterator[Mistake]:
    """Inputs, plans, engines and functions that are not there, each once."""
    told: dict[tuple[str, str], None] = {}
    for job in jobs:
        for path in job.inputs:
            if not path.exists():
                told["inputs", f"inputs: {path} is not there; paths start at the folder of this file"] = None
            elif path.is_dir() and not any(path.iterdir()):
                told["inputs", f"inputs: {path} is empty"] = None
        for key, named in (("plan", job.plan), ("engine", job.engine)):
            if named is not None and not named.is_file():
                told[key, f"{key}: {named} is not there; paths start at the folder of this file"] = None
        for key, function in (("function", job.function), ("metric", job.metric)):
            if function and (why := why_not_there(function, folder)):
                told[key, f"{key}: {why}"] = None
    for key, what in told:
        yield Mistake(*_place(where, index, key), what)


def _place(where: Places, index: int, key: str) -> tuple[int, int]:
    return where.get(("models", index, key)) or where.get(("defaults", key)) or where[("models", index)]
