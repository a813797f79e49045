"""Runs jobs on a Ray cluster: files travel by content, results come back to the one who asked."""

from __future__ import annotations

import hashlib
import io
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from halfwise._version import __version__
from halfwise.core.errors import InputError, MissingBackend
from halfwise.fleet.outcome import Outcome
from halfwise.fleet.processes import Limits, Report, Shown, Task, run_here
from halfwise.fleet.work import Verb

__all__ = ["OnRay"]

_TRIES_AFTER_DEATH = 3  # of the node or the worker, not of the job
_AHEAD = 4  # jobs handed over for each core, so that no core waits and the object store stays small
_WAIT_S = 0.5
_CACHE = "halfwise-fleet"


@dataclass(frozen=True)
class OnRay:
    """A cluster by its address: "auto", "local" (one is started here), or host:port."""

    address: str

    def __call__(self, tasks: Sequence[Task], verb: Verb, limits: Limits, report: Report, shown: Shown) -> None:
        ray = _ray()
        _connect(ray, self.address)
        remote = ray.remote(max_retries=_TRIES_AFTER_DEATH, retry_exceptions=False)(_at_node)
        cores = int(ray.cluster_resources().get("CPU", 1))
        waiting = list(range(len(tasks)))
        held: dict[Any, int] = {}
        sent: dict[str, Any] = {}
        try:
            while waiting or held:
                while waiting and len(held) < _AHEAD * cores:
                    index = waiting.pop(0)
                    files = {path: _put(ray, Path(path), sent) for path in tasks[index].reads}
                    asked = remote.options(num_cpus=1, memory=tasks[index].memory)
                    held[asked.remote(tasks[index], verb, files, __version__)] = index
                shown((), len(waiting) + len(held))
                ended, _ = ray.wait(list(held), num_returns=1, timeout=_WAIT_S)
                for answer in ended:
                    index = held.pop(answer)
                    report(index, _outcome(ray, answer, tasks[index]))
        finally:
            for answer in held:
                with suppress(Exception):
                    ray.cancel(answer, force=True)


def _connect(ray: Any, address: str) -> None:
    if ray.is_initialized():
        return
    try:
        if address == "local":
            ray.init(log_to_driver=False, include_dashboard=False)
        else:
            ray.init(address=address, log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        told = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise MissingBackend(f"--ray {address}: no Ray cluster answers there: {told}") from None


def _put(ray: Any, path: Path, sent: dict[str, Any]) -> tuple[str, Any]:
    """A file's digest and where Ray keeps its bytes, once for each content."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    digest = hashlib.sha256(content).hexdigest()
    if digest not in sent:
        sent[digest] = ray.put(content)
    return digest, sent[digest]


def _outcome(ray: Any, answer: Any, task: Task) -> Outcome:
    """What the node sent, with the job's files in their folder here."""
    try:
        outcome, packed = ray.get(answer)
    except Exception as error:  # of the cluster, not of the job: that one's end is in its outcome
        return Outcome("died", f"the cluster lost it: {str(error).splitlines()[0][:300]}", 0.0, 0.0, 0)
    folder = Path(task.order.folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    made: Outcome = outcome
    return made


def _at_node(task: Task, verb: Verb, files: Mapping[str, tuple[str, Any]], version: str) -> tuple[Outcome, bytes]:
    """One job at a node of the cluster, in a process of its own there."""
    if version != __version__:
        why = f"the node has halfwise {__version__}, the fleet {version}: install the same on every node"
        return Outcome("unavailable", why, 0.0, 0.0, 0), _packed(None)
    ray = _ray()
    cache = Path(tempfile.gettempdir()) / _CACHE
    with tempfile.TemporaryDirectory(prefix="halfwise-job-") as name:
        root = Path(name)
        places = {path: _placed(root, path) for path in files}
        for path, (digest, kept) in files.items():
            places[path].parent.mkdir(parents=True, exist_ok=True)
            places[path].symlink_to(_cached(ray, cache, digest, kept))
        folder = root / "job"
        here = _moved(task, root, folder)
        ends: list[Outcome] = []
        run_here([here], verb, Limits(1, task.most_memory), lambda _, end: ends.append(end), lambda *_: None)
        return ends[0], _packed(folder)


def _moved(task: Task, root: Path, folder: Path) -> Task:
    """The same with the paths of this node."""
    known = {word for path in task.reads for word in (path, *map(str, Path(path).parents))}
    words = []
    for word in task.order.words:
        if word.startswith(task.order.folder):
            words.append(str(folder) + word[len(task.order.folder) :])
        else:
            words.append(str(_placed(root, word)) if word in known else word)
    imports = str(_placed(root, task.order.imports))
    return replace(task, order=replace(task.order, words=tuple(words), folder=str(folder), imports=imports))


def _placed(root: Path, path: str) -> Path:
    absolute = Path(path).absolute()
    return root / "files" / absolute.relative_to(absolute.anchor)


def _cached(ray: Any, cache: Path, digest: str, kept: Any) -> Path:
    """The file with this content, written once at a node, whole or not at all."""
    place = cache / digest
    if not place.exists():
        cache.mkdir(exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=cache, delete=False) as file:
            file.write(ray.get(kept))
        Path(file.name).replace(place)
    return place


def _packed(folder: Path | None) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        if folder is not None:
            archive.add(folder, ".")
    return packed.getvalue()


def _ray() -> Any:
    try:
        return import_module("ray")
    except ImportError:
        version = ".".join(map(str, sys.version_info[:2]))
        raise MissingBackend(f"--ray needs Ray for Python {version}: pip install 'halfwise[fleet]'") from None
