"""Learns how a machine rounds: probes run on a backend, and each answer is the hypothesis that its bits bear out."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic

from halfwise._version import __version__
from halfwise.backends import Backend, BackendOptions, BackendRecord, backend_named
from halfwise.backends.confirm import probe
from halfwise.backends.saved import SavedBackend
from halfwise.core.document import LEFT_OUT, Documented
from halfwise.core.errors import HalfwiseError, InputError
from halfwise.core.own_code import code_identity
from halfwise.core.summary import Summary
from halfwise.core.whole_files import WholeFiles
from halfwise.core.wording import counted
from halfwise.emulation.probes import PROBES, Form
from halfwise.emulation.probes.judge import Taught, judged, learned_kernels
from halfwise.emulation.probes.own_sizes import own_forms
from halfwise.emulation.profiles.hypotheses import hypotheses_of
from halfwise.emulation.profiles.machine import FormRecord, MachineDocument, Ran, Status, signed
from halfwise.emulation.timing.grid import GRID
from halfwise.search.journal import Journal, digest
from halfwise.verbs.prove.groups import Answered, answers, groups_of
from halfwise.verbs.prove.model_operations import nodes_of, operations_of
from halfwise.verbs.prove.times import TIMED, rows_of, timed

__all__ = ["JOURNAL", "Proof", "prove"]

JOURNAL = ".halfwise-prove.jsonl"  # beside the file that is made, until it is
_TOLD = 300


@dataclass(frozen=True, repr=False)
class Proof(Documented):
    """What was learned of a machine, and the file that holds it."""

    machine: MachineDocument
    path: Path | None

    def document(self) -> MachineDocument:
        return self.machine

    def summary(self) -> Summary:
        """Each probe and its answer."""
        told = ", ".join(f"{count:,} {status}" for status, count in self.machine.counts.items() if count)
        rows = tuple((form.name, form.rule, form.status, ", ".join(form.hypotheses)) for form in self.machine.forms)
        headline = f"{self.machine.ran.title}: {counted(len(rows), 'probe')}: {told}"
        return Summary(headline, ("probe", "rule", "answer", "hypotheses"), rows)


def prove(
    backend: str | Backend,
    *,
    out: str | Path | None = None,
    options: BackendOptions | None = None,
    forms: Sequence[Form] = PROBES,
    time: bool = False,
    models: Sequence[str | Path] = (),
    own: Sequence[str | Path] = (),
    notify: Callable[[int, int], None] = lambda done, total: None,
) -> Proof:
    """Learn from probes how the kernels of a backend round, and write it down as a profile.

    `backend` is one of those of `bisect`, or "cmd:PROGRAM". `out` is the file to write; `fix`, `verify` and `gate` take
    it as their profile. Interrupted, the same call goes on where it stopped. `notify` gets the probes done and their
    total. `time`: measure also how long operators take, and those of `models` at their own sizes. `own`: models whose
    convolutions, products and means are probed at their own sizes, too.
    """
    runner = backend_named(backend, options) if isinstance(backend, str) else backend
    if isinstance(runner, SavedBackend):
        raise InputError(f"{runner.name}: prove needs a backend that runs models, such as ort-cuda or cmd:PROGRAM")
    path = Path(out) if out is not None else None
    if path is not None and path.is_dir():
        raise InputError(f"{path} is a folder: name the file to write, such as {path / 'machine.json'}")
    if (time or models) and runner.name not in TIMED:
        raise InputError(f"--time: {runner.name} cannot be timed; {', '.join(TIMED)} can")
    rows = (
        rows_of((*GRID, *(each for model in models for each in operations_of(Path(model))))) if time or models else ()
    )
    forms = (*forms, *own_forms(node for model in own for node in nodes_of(Path(model))))
    record = probe(runner)
    started = monotonic()
    journal = _journal(path, runner, record, forms)
    known: dict[str, FormRecord] = {}
    for form in forms:
        if (entry := journal.get(form.name, FormRecord, partial(_is_of, form))) is not None:
            known[form.name] = entry
    single, fused = ([form for form in forms if form.fused is which] for which in (False, True))
    for stage in (single, fused):  # the second is judged by what the first taught
        taught = learned_kernels(known.values())
        asked = [form for form in stage if form.name not in known]
        for told in answers(runner, groups_of(asked)):
            for each in told:
                found = _answer(each, taught)
                known[found.name] = found
                journal.put(found.name, found.to_json())
                notify(len(known), len(forms) + len(rows))
            record = next((each.record for each in told if each.record is not None), record)
    if not any(form.hypotheses for form in known.values()):
        refused = next((form.why for form in known.values() if form.why), "")
        journal.withdraw()
        raise HalfwiseError(f"{runner.name} ran none of the {len(forms)} probes{f': {refused}' if refused else ''}")
    options = options or BackendOptions()
    times = timed(runner.name, rows, options, journal, lambda done: notify(len(known) + done, len(forms) + len(rows)))
    machine = signed(
        MachineDocument(
            _ran(record),
            __version__,
            datetime.datetime.now(datetime.UTC).date().isoformat(),
            round(monotonic() - started, 1),
            tuple(known[form.name] for form in forms),
            times or LEFT_OUT,
        )
    )
    if path is not None:
        with WholeFiles(path.parent) as files:
            files.text(path, json.dumps(machine.to_json(), indent=1, ensure_ascii=False) + "\n")
    journal.discard()
    return Proof(machine, path)


def _journal(path: Path | None, runner: Backend, record: BackendRecord, forms: Sequence[Form]) -> Journal:
    if path is None:
        return Journal()
    where = (record.device, record.driver, record.library, record.version)
    return Journal(path.parent / JOURNAL, digest(code_identity(), path.name, runner.name, *where, *forms))


def _is_of(form: Form, entry: FormRecord) -> bool:
    """An entry that names a hypothesis that nobody has is another version's."""
    known = hypotheses_of(form.rule)
    return (entry.name, entry.rule) == (form.name, form.rule) and all(name in known for name in entry.hypotheses)


def _answer(answered: Answered, taught: Taught) -> FormRecord:
    form = answered.form
    if answered.outputs:
        return judged(form, answered.outputs, taught)
    status: Status = "elsewhere" if answered.elsewhere else "refused"
    return FormRecord(form.name, form.rule, status, why=answered.refused[:_TOLD])


def _ran(record: BackendRecord) -> Ran:
    return Ran(**{name: getattr(record, name) for name in Ran.__struct_fields__})
