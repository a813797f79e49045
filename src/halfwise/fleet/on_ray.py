"""Runs jobs on a Ray cluster: files travel by content, results come back to the one who asked."""

from __future__ import annotations

import io
import json
import os
import socket
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path, PurePosixPath
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from halfwise._version import __version__
from halfwise.core.errors import InputError, MissingBackend
from halfwise.core.exhausted import not_loaded
from halfwise.fleet.contents import digest_of
from halfwise.fleet.outcome import Outcome
from halfwise.fleet.processes import Limits, Report, Shown, Task, memory_here, name_of, run_here
from halfwise.fleet.work import Verb, verb_named

__all__ = ["OnRay"]

_TRIES_AFTER_DEATH = 3  # of the node or the worker, not of the job
_AHEAD = 2  # jobs handed over for each core, so that no core waits and the object store stays small
_WAIT_S = 0.5
_ANSWER_S = 10.0
_TELL_S = 2.0
_IDLE = ".idle-cores"  # beside the root of a job's files
_PIECE = 64 << 20  # bytes of a file that travel as one object
_TEXTS = (".json", ".html", ".md", ".txt", ".sh", ".py", ".jsonl")


@dataclass(frozen=True)
class OnRay:
    """A cluster by its address: "auto", "local" (one is started here), or host:port."""

    address: str

    def __post_init__(self) -> None:
        _ray()  # where it is missing nothing is begun

    def __call__(self, tasks: Sequence[Task], verb: Verb, limits: Limits, report: Report, shown: Shown) -> None:
        with _connected(self.address) as ray:
            _run(ray, tasks, verb, report, shown)


def _run(ray: Any, tasks: Sequence[Task], verb: Verb, report: Report, shown: Shown) -> None:
    remote = ray.remote(max_retries=_TRIES_AFTER_DEATH, retry_exceptions=False)(_at_node)
    files = _Files(ray, tasks)
    waiting = list(range(len(tasks)))
    held: dict[Any, int] = {}
    try:
        while waiting or held:
            cores = int(ray.cluster_resources().get("CPU", 1))
            while waiting and len(held) < _AHEAD * max(cores, 1):
                index = waiting.pop(0)
                task = tasks[index]
                try:
                    sent = files.sent(task)
                except InputError as error:
                    report(index, Outcome("refused", str(error), 0.0, 0.0, 0))
                    continue
                if task.gpus and not ray.cluster_resources().get("GPU"):
                    report(index, Outcome("unavailable", "no node of the cluster has a GPU", 0.0, 0.0, 0))
                    continue
                asked = remote.options(num_cpus=1, num_gpus=task.gpus, memory=min(task.memory, _largest(ray)))
                held[asked.remote(task, name_of(verb), sent, str(Path.cwd()), __version__)] = index
            shown((), len(waiting) + len(held))
            for answer in _ended(ray, list(held)):
                index = held.pop(answer)
                outcome = _outcome(ray, answer, tasks[index])
                files.done(tasks[index])
                report(index, outcome)
    finally:
        for answer in held:
            with suppress(Exception):
                ray.cancel(answer, force=True)


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """Ray, with what it prints on stdout, 20 lines for a node that died, kept from the answer there."""
    ray = _ray()
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        try:
            _check_answers(address)
            here = {"include_dashboard": False} if address == "local" else {"address": address}
            ray.init(log_to_driver=False, logging_level="warning", **here)
        except (OSError, ValueError, RuntimeError) as error:
            told = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise MissingBackend(f"--ray {address}: no Ray cluster answers there: {told}") from None
        try:
            yield ray
        finally:
            ray.shutdown()


def _check_answers(address: str) -> None:
    """Raises OSError at once where Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if port.isdecimal() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_S).close()


def _ended(ray: Any, held: list[Any]) -> list[Any]:
    """All that have ended, as soon as one has; none where none does for a while."""
    found, _ = ray.wait(held, num_returns=1, timeout=_WAIT_S) if held else ([], [])
    if found:
        found, _ = ray.wait(held, num_returns=len(held), timeout=0)
    return list(found)


def _largest(ray: Any) -> int:
    """The most memory that a node offers: a job that is thought to need more is tried there."""
    return int(max((n["Resources"].get("memory", 0.0) for n in ray.nodes() if n["Alive"]), default=0.0))


@dataclass(frozen=True, eq=False)
class _Sent:
    """A file's bytes in Ray's store, as long as this is held."""

    pieces: tuple[Any, ...]


class _Files:
    """Each content is sent once, and held until the last job that reads it has ended."""

    def __init__(self, ray: Any, tasks: Sequence[Task]) -> None:
        self._ray = ray
        self._wanted = Counter(path for task in tasks for path in task.reads)
        self._by_path: dict[str, _Sent] = {}
        self._by_content: WeakValueDictionary[str, _Sent] = WeakValueDictionary()

    def sent(self, task: Task) -> dict[str, tuple[Any, ...]]:
        for path in task.reads:
            if path not in self._by_path:
                self._by_path[path] = self._put(Path(path))
        return {path: self._by_path[path].pieces for path in task.reads}

    def done(self, task: Task) -> None:
        self._wanted.subtract(task.reads)
        for path in task.reads:
            if not self._wanted[path]:
                self._by_path.pop(path, None)

    def _put(self, path: Path) -> _Sent:
        try:
            digest = digest_of(path)
            known = self._by_content.get(digest)
            if known is None:
                known = _Sent(tuple(map(self._ray.put, _pieces(path))))
                self._by_content[digest] = known
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from None
        return known


def _pieces(path: Path) -> Iterator[Any]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            yield np.frombuffer(piece, np.uint8)


def _outcome(ray: Any, answer: Any, task: Task) -> Outcome:
    """What the node sent, with the job's files in their folder here."""
    try:
        outcome, packed = ray.get(answer)
    except Exception as error:  # of the cluster, not of the job: that one's end is in its outcome
        return Outcome("died", f"the cluster lost it: {str(error).splitlines()[0][:300]}", 0.0, 0.0, 0)
    folder = Path(task.order.folder)
    rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, filter="data")
        else:  # Python before 3.11.4 knows no filters
            archive.extractall(folder, members=list(filter(_stays, archive)))
    made: Outcome = outcome
    return made


def _stays(member: tarfile.TarInfo) -> bool:
    """Whether it is a file or a folder in the folder that it is unpacked to."""
    path = PurePosixPath(member.name)
    return (member.isfile() or member.isdir()) and not path.is_absolute() and ".." not in path.parts


# -- at a node of the cluster -----------------------------------------------------------------------------------------


def _at_node(task: Task, verb: str, files: Mapping[str, Sequence[Any]], cwd: str, version: str) -> tuple[Outcome, Any]:
    """One job in a process of its own, in a folder that looks like the root of the machine that asked."""
    if version != __version__:
        why = f"the node has halfwise {__version__}, the fleet {version}: install the same on every node"
        return Outcome("unavailable", why, 0.0, 0.0, 0), _packed(None)
    with TemporaryDirectory(prefix="halfwise-job-") as root:
        for path, pieces in files.items():
            place = Path(_placed(root, cwd, path))
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("wb") as file:
                for piece in pieces:
                    file.write(_ray().get(piece))
        idle = Path(root, _IDLE)
        here = _moved(task, root, cwd, (_ray().get_runtime_context().gcs_address, str(idle), task.memory // 3))
        folder = Path(here.order.folder)
        ends: list[Outcome] = []
        run_here([here], verb_named(verb), Limits(1, here.most_memory), lambda _, end: ends.append(end), _telling(idle))
        for text in folder.rglob("*"):
            if text.is_file() and text.suffix in _TEXTS:
                text.write_bytes(text.read_bytes().replace(root.encode(), b""))
        told = json.loads(json.dumps([ends[0].why, ends[0].document]).replace(root, ""))
        return replace(ends[0], why=told[0], document=told[1]), _packed(folder)


def _moved(task: Task, root: str, cwd: str, cluster: tuple[str, str, int]) -> Task:
    """The same at this node: its words are the same from where it stands, but for those that start at the root."""
    order = task.order
    words = tuple(root + word if Path(word).is_absolute() else word for word in order.words)
    folder, stands = (_placed(root, cwd, path) for path in (order.folder, cwd))
    imports = _placed(root, cwd, order.imports) if order.imports else ""
    Path(stands).mkdir(parents=True, exist_ok=True)
    moved = replace(order, words=words, folder=folder, imports=imports, cwd=stands, cluster=cluster)
    most = min(task.most_memory, memory_here()) if task.bounded else memory_here()
    return replace(task, order=moved, most_memory=most)


def _placed(root: str, cwd: str, path: str) -> str:
    return root + os.path.normpath(Path(cwd, path))


def _telling(idle: Path) -> Shown:
    """Says now and then, where the job reads it, how many cores of the cluster are idle."""
    said = [time.monotonic()]

    def tell(places: object, waiting: int) -> None:
        if time.monotonic() - said[-1] >= _TELL_S:
            said[:] = [time.monotonic()]
            with suppress(Exception):
                idle.write_text(str(int(_ray().available_resources().get("CPU", 0.0))), encoding="ascii")

    return tell


def _packed(folder: Path | None) -> Any:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        if folder is not None:
            archive.add(folder, ".")
    return np.frombuffer(packed.getbuffer(), np.uint8)


def _ray() -> Any:
    try:
        return import_module("ray")
    except ImportError as error:
        version = ".".join(map(str, sys.version_info[:2]))
        raise not_loaded(error, f"--ray needs Ray for Python {version}: pip install 'halfwise[fleet]'") from None
