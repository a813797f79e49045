"""Every mistake of a fleet's file, with its place, and of what it points to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from halfwise.core.errors import InputError
from halfwise.core.files.identify import identify, not_wanted
from halfwise.core.files.kinds import FileKind
from halfwise.fleet.jobs import Job, jobs_of, taken
from halfwise.fleet.settings import Mistake, mistakes_in, read_text, sound_settings
from halfwise.fleet.sources import why_not_there
from halfwise.fleet.toml_places import places
from halfwise.model.checkpoints import is_checkpoint
from halfwise.model.external import check_external_data
from halfwise.model.inputs.sources import READABLE
from halfwise.model.proto_file import read_proto

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
        seen = {(job.model, job.folder) for job in jobs}
        twice = next((job.model for job in found if (job.model, job.folder) in seen), None)
        mistakes += [] if twice is None else [Mistake(*place, taken(twice))]
        jobs += found
        mistakes += _missing(found, settings.folder, index, where)
    return jobs, [f"{file}:{each.line}:{each.column}: {each.what}" for each in sorted(mistakes)]


def _missing(jobs: list[Job], folder: Path, index: int, where: Places) -> Iterator[Mistake]:
    """Inputs, plans, engines and functions that are not there, and files of another kind, each once."""
    told: dict[tuple[str, str], None] = {}
    for job in jobs:
        checkpoint = job.action == "scan" and is_checkpoint(job.path)
        if not checkpoint and (why := _other(job.path, "an ONNX model") or _without_its_data(job.path)):
            told["path", f"path: {why}"] = None
        for path in job.inputs:
            if not path.exists():
                told["inputs", f"inputs: {path} is not there; paths start at the folder of this file"] = None
            elif path.is_dir() and not any(path.iterdir()):
                told["inputs", f"inputs: {path} is empty"] = None
            elif path.is_file() and path.suffix.lower() not in READABLE:
                told["inputs", f"inputs: {path}: give {', '.join(READABLE)} files, or folders of these"] = None
        for key, named in (("plan", job.plan), ("engine", job.engine)):
            if named is not None and not named.is_file():
                told[key, f"{key}: {named} is not there; paths start at the folder of this file"] = None
        for key, function in (("function", job.function), ("metric", job.metric)):
            if function and (why := why_not_there(function, folder)):
                told[key, f"{key}: {why}"] = None
    for key, what in told:
        yield Mistake(*_place(where, index, key), what)


def _other(path: Path, wanted: str) -> str:
    try:
        if not path.stat().st_size:
            return f"{path} is empty"
        found = identify(path)
        plain = (
            f"{path} is {found.name}, not {wanted}"
            if found.kind in (FileKind.TEXT, FileKind.JSON, FileKind.RESULT)
            else ""
        )
        return not_wanted(path, wanted, plain)
    except OSError:  # its job will say so
        return ""


def _without_its_data(path: Path) -> str:
    """What is wrong with the files of a model's weights; of another file nothing is said."""
    if path.suffix != ".onnx":
        return ""
    try:
        check_external_data(read_proto(path)[0], path)
    except InputError as error:
        return str(error)
    except OSError:  # its job will say so
        return ""
    return ""


def _place(where: Places, index: int, key: str) -> tuple[int, int]:
    return where.get(("models", index, key)) or where.get(("defaults", key)) or where[("models", index)]
