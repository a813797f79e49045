"""A bisection in one screen: the culprits first, then what they were found by."""

from __future__ import annotations

from halfwise.core.english import said
from halfwise.core.notes import NoteKind
from halfwise.core.wording import counted, listed, three_digits
from halfwise.report.sheet_table import SheetTable
from halfwise.report.terminal import Terminal
from halfwise.report.verdict import error_table, show_notes
from halfwise.verbs.bisect.culprits import Answer
from halfwise.verbs.bisect.result import BisectResult, Step

__all__ = ["show_bisect"]

_SHOWN = 40  # culprits
_NAMED = 8  # nodes of a sentence
_STEPS = 2  # builds: all FP16, all FP32
_EXPLAIN = frozenset({NoteKind.DELIVERED_MISSES_IN_FP32, NoteKind.QUANTISERS_MOVE})  # why FP32 is wrong


def step_table(result: BisectResult) -> tuple[SheetTable, ...]:
    """Every build, for the page."""
    rows = [(step.what, step.fp16, step.of, step.answer.value, step.ratio, step.why) for step in result.steps]
    columns = ("build", "nodes in FP16", "of", "answer", "error over allowed error", "why")
    return (SheetTable("Builds", "build", columns, rows),)


def show_bisect(terminal: Terminal, result: BisectResult) -> None:
    where = result.record.title if result.record is not None else result.backend or "what the command runs"
    _headline(terminal, result, where)
    show_notes(terminal, result.notes)
    _culprits(terminal, result)
    _names(terminal, "cannot be judged, every build with it in FP16 failed; kept in FP32", result.unbuildable)
    _names(terminal, "not tested before the builds ran out; kept in FP32", result.unproven)
    columns = {"before": result.baseline, "emulated": result.emulated, "after": result.fixed}
    known = {title: outputs for title, outputs in columns.items() if outputs}
    if known:
        error_table(terminal, known, result.floats, ("rel_l2",))
    _steps(terminal, result)
    for path in (result.onnx, result.plan):
        if path is not None:
            terminal.line(f"wrote {path}")


def _headline(terminal: Terminal, result: BisectResult, where: str) -> None:
    builds = counted(len(result.steps), "build")
    subject = "the planned model" if result.kept else "the model in plain FP16"
    if result.ending == "none":
        terminal.line(f"Nothing to find: {subject} is good on {where} ({builds}).", "bold green")
        return
    if result.ending == "control":
        control = next((step for step in result.steps if step.what == "all FP32"), None)
        if control is not None and control.answer is Answer.FAILED:
            terminal.line(f"The all-FP32 model cannot be built on {where}: {said(control.because)}", "bold red")
        else:
            told = f"Precision is not the reason: the all-FP32 model is wrong on {where}, too ({builds})"
            if not _EXPLAIN.intersection(note.kind for note in result.notes):
                told += (
                    "; look for another cause, such as a kernel's defect, TF32, or inputs that do not belong to this "
                    "model"
                )
            terminal.line(told, "bold red")
        return
    count = len(result.culprits)
    if not count:
        terminal.line(f"No node was proven to be a culprit on {where} after {builds}.", "bold yellow")
        return
    regions = counted(len(result.regions), "region")
    nodes = "1 node has" if count == 1 else f"{count:,} nodes in {regions} have"
    terminal.line(f"{nodes} to be FP32 on {where} ({counted(result.nodes, 'node')}, {builds}).", "bold green")
    if result.sum:
        terminal.line(
            "No node fails by itself: many small errors add up. This set is sufficient, and no node of it can be "
            "spared, but another set may do as well; `halfwise fix` finds the cheapest.",
            "yellow",
        )


def _culprits(terminal: Terminal, result: BisectResult) -> None:
    if not result.culprits:
        return
    terminal.line()
    rows = [[c.name, c.op, str(c.region), f"{c.rank:,}"] for c in terminal.some(result.culprits, _SHOWN)]
    terminal.table(["node", "operator", "region", "emulator's rank"], rows, right=(2, 3))
    terminal.more(len(result.culprits), _SHOWN)


def _names(terminal: Terminal, what: str, names: tuple[str, ...]) -> None:
    if names:
        shown = listed(names, len(terminal.some(names, _NAMED)), str)
        terminal.line(f"{len(names):,} {what}: {shown}", "yellow")


def _steps(terminal: Terminal, result: BisectResult) -> None:
    counts = result.builds()
    terminal.line()
    earlier = f"; {counts['resumed']} of them in an earlier run" if counts["resumed"] else ""
    said = ", ".join(f"{counts[answer.value]} {answer.value}" for answer in Answer)
    terminal.line(f"{counted(counts['total'], 'build')}: {said}{earlier}")
    first = terminal.some(result.steps, _STEPS)
    for step in first:
        terminal.line(_words(step), indent=2)
    failed = next((step for step in result.steps if step.answer is Answer.FAILED), None)
    if failed is not None and failed not in first:
        terminal.line(_words(failed), indent=2)


def _words(step: Step) -> str:
    error = f", {three_digits(step.ratio)} of the allowed error" if step.ratio is not None else ""
    what = f"{step.fp16:,} of {counted(step.of, 'node')} in FP16" if step.what == "group" else step.what
    return f"{what}: {step.answer.value}{error}" + (f" ({said(step.because)})" if step.because else "")
