"""One run of a fleet: what is done already is taken as it is, the rest runs, and every answer goes into the store."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from halfwise._version import __version__
from halfwise.core.cores import cores_here
from halfwise.core.document import Documented
from halfwise.core.errors import InputError
from halfwise.core.summary import Summary
from halfwise.core.wording import counted
from halfwise.fleet.changes import Change, changes
from halfwise.fleet.contents import Contents
from halfwise.fleet.document import ChangeRecord, FleetDocument, job_record, job_table
from halfwise.fleet.jobs import Job, jobs_of, key_of
from halfwise.fleet.outcome import Outcome
from halfwise.fleet.processes import Limits, Place, Task, memory_here, run_here
from halfwise.fleet.settings import Settings
from halfwise.fleet.sources import sources_of
from halfwise.fleet.store import Result, Store
from halfwise.fleet.work import OUT, Order, Verb

__all__ = ["FleetRun", "Watcher", "run_fleet"]

_LEAST = 400 << 20  # bytes of any job
_TIMES_ITS_FILE = 6
_SPARE = 1.2  # of what it took last time


@dataclass(frozen=True, repr=False)
class FleetRun(Documented):
    """The end of a run. `results` are in the order of the jobs, `folder` is that of the store.

    Of a run that has not `ended`, jobs are missing: it goes on, or was interrupted or killed.
    """

    folder: Path
    id: int
    results: tuple[Result, ...]
    reused: int
    changes: tuple[Change, ...]
    ended: bool = True

    @property
    def good(self) -> bool:
        return self.ended and all(result.good for result in self.results)

    @property
    def told(self) -> str:
        """How many jobs are good, and how many of them with a caution."""
        good, wary = sum(result.good for result in self.results), sum(result.wary for result in self.results)
        with_caution = f" ({wary:,} with a caution)" if wary else ""
        left = "" if self.ended else "; the run has not ended"
        return f"{good:,} of {counted(len(self.results), 'job')} good{with_caution}{left}"

    def summary(self) -> Summary:
        """Every job."""
        return job_table(self.told, self.results, self.good, any(result.wary for result in self.results))

    def document(self) -> FleetDocument:
        return FleetDocument(
            status="good" if self.good else "bad",
            results=str(self.folder),
            run=self.id,
            ended=self.ended,
            reused=self.reused,
            jobs=[job_record(result) for result in self.results],
            changes=[
                ChangeRecord(
                    each.direction, each.what, job_record(each.before) if each.before else None, job_record(each.now)
                )
                for each in self.changes
            ],
        )


class Watcher:
    """Told of what goes on; quiet by itself."""

    def begin(self, total: int, reused: int) -> None:
        """So many jobs, of which so many are done already."""

    def ended(self, job: Job, result: Result) -> None:
        """One job came to its end."""

    def running(self, jobs: Sequence[tuple[Job, Place]], waiting: int) -> None:
        """A few times a second: what runs, and how many wait."""


Runner = Callable[
    [Sequence[Task], Verb, Limits, Callable[[int, Outcome], None], Callable[[Sequence[Place], int], None]], None
]


def run_fleet(settings: Settings, verb: Verb, watcher: Watcher, runner: Runner = run_here, host: str = "") -> FleetRun:
    """`verb` takes the words of a command line and gives its exit code."""
    jobs = jobs_of(settings)
    with Store(settings.results, write=True) as store:
        contents = Contents(store, settings.folder)
        keys = [_key(job, contents) for job in jobs]
        run = store.begin(__version__, settings.text)
        try:
            before = store.before(run)
            found: dict[int, Result] = {}
            for index, key in enumerate(keys):
                if key and (result := store.done(key)) is not None and _there(settings.results, result):
                    found[index] = result
            store.reuse(run, list(found.values()))
            watcher.begin(len(jobs), len(found))
            left = _longest_first([index for index in range(len(jobs)) if index not in found], jobs, store, contents)
            limits = Limits(settings.processes or cores_here(), settings.memory or memory_here())
            tasks = [_task(settings, jobs[index], store, contents, limits) for index in left]

            def report(number: int, outcome: Outcome) -> None:
                index = left[number]
                folder = f"{jobs[index].model}/{jobs[index].folder}"
                machine = host or platform.node()
                same = _key(jobs[index], Contents(store, settings.folder)) == keys[index]
                key = keys[index] if same else ""  # else it may have read what was put there meanwhile
                result = store.add(run, jobs[index], key, outcome, __version__, folder, machine)
                found[index] = result
                watcher.ended(jobs[index], result)

            def shown(places: Sequence[Place], waiting: int) -> None:
                watcher.running([(jobs[left[place.index]], place) for place in places], waiting)

            runner(tasks, verb, limits, report, shown)
        except BaseException:
            store.end(run, "interrupted")
            raise
        store.end(run, "ended")
        results = tuple(found[index] for index in range(len(jobs)))
        return FleetRun(settings.results, run, results, len(jobs) - len(left), tuple(changes(before, results)))


def _key(job: Job, contents: Contents) -> str:
    """Empty where something that it reads is not there: it runs, and says so."""
    read = [path for path in (job.path, job.plan, job.engine, *job.inputs) if path is not None]
    try:
        return key_of(job, {path: contents.of(path) for path in read}, contents.of_functions(job.function, job.metric))
    except InputError:
        return ""


def _there(results: Path, result: Result) -> bool:
    """Whether what a good job wrote is still in its folder."""
    return not result.report or (results / result.folder / OUT / result.report).is_file()


def _longest_first(left: list[int], jobs: Sequence[Job], store: Store, contents: Contents) -> list[int]:
    """By the time of before, or by size: a long job that begins last makes all wait."""

    def length(index: int) -> tuple[float, int]:
        last = store.last(jobs[index].subject)
        return (-last.seconds if last is not None else -float("inf"), -_size(jobs[index], contents))

    return sorted(left, key=length)


def _task(settings: Settings, job: Job, store: Store, contents: Contents, limits: Limits) -> Task:
    folder = settings.results / job.model / job.folder
    last = store.last(job.subject)
    expected = _LEAST + _TIMES_ITS_FILE * _size(job, contents)
    if last is not None and last.peak_bytes:
        expected = round(_SPARE * last.peak_bytes)
    most = min(job.need.memory or limits.memory, limits.memory)
    words = tuple(job.words([str(path) for path in job.inputs], str(folder / OUT)))
    imports = str(settings.folder.absolute()) if job.function or job.metric else ""
    order = Order(words, str(folder), job.function, imports)
    bounded = bool(job.need.memory or settings.memory)
    reads = _reads(job, contents, settings.folder)
    return Task(order, min(expected, most), most, job.need.seconds, bounded, reads, job.need.gpus)


def _reads(job: Job, contents: Contents, folder: Path) -> tuple[str, ...]:
    named = [path for path in (job.path, job.plan, job.engine, *job.inputs) if path is not None]
    files: dict[Path, None] = {}
    for path in named:
        for file in sorted(path.rglob("*")) if path.is_dir() else (path, *_parts(path, contents)):
            if file.is_file():
                files[file] = None
    for function in filter(None, (job.function, job.metric)):
        files.update(dict.fromkeys(sources_of(function, folder)))
    return tuple(map(str, files))


def _parts(path: Path, contents: Contents) -> list[Path]:
    """None of what cannot be read, which its job will say."""
    try:
        return contents.parts_of(path)
    except InputError:
        return []


def _size(job: Job, contents: Contents) -> int:
    try:
        return contents.size_of(job.path)
    except InputError:
        return 0
