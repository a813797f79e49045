"""A model stage by stage in one screen: the table, which fail alone, which only in combination, what was written."""

from __future__ import annotations

from pathlib import Path

from halfwise.core.english import say
from halfwise.core.english.stages import STAGE_FINDINGS
from halfwise.core.wording import counted, listed, three_digits
from halfwise.report.sheet_table import SheetTable
from halfwise.report.shell import input_words, measuring_words, shell
from halfwise.report.terminal import Terminal
from halfwise.report.verdict import error_table, show_notes
from halfwise.verbs.stages.result import IN_COMBINATION, SPREADS, WRONG, Run, Stage, StagesResult

__all__ = ["show_stages"]

_CULPRITS = 8


def culprit_table(result: StagesResult) -> tuple[SheetTable, ...]:
    """The nodes that make a stage fail alone, for the page."""
    rows = [(stage.name, node.name, node.op, node.reason) for stage in result.stages for node in stage.culprits]
    about = "Nodes that have to be FP32 for a stage to meet the tolerance alone."
    return (SheetTable("Culprits", "node", ("stage", "node", "operator", "reason"), rows, about),)


def show_stages(terminal: Terminal, result: StagesResult, name: str, command: str = "") -> None:
    """`command` is the line that made the result, for the command to go on with."""
    chain, inputs = counted(len(result.stages), "stage"), counted(result.samples, "input")
    verb, style = ("keeps", "bold green") if result.met else ("misses", "bold red")
    terminal.line(f"{Path(name).name} in FP16 {verb} the tolerance, as a chain of {chain}, on {inputs}:", style)
    terminal.line(say(result.whole.verdict.because), indent=2)
    show_notes(terminal, result.notes)
    terminal.line()
    rows = [
        [
            stage.name,
            str(stage.nodes),
            _ratio(stage.alone),
            _ratio(stage.chained),
            _ratio(stage.propagated),
            STAGE_FINDINGS[stage.finding],
        ]
        for stage in result.stages
    ]
    terminal.table(["stage", "nodes", "alone", "chained", "propagated", "finding"], rows, right=(1, 2, 3, 4))
    terminal.line("Error over allowed error. alone: FP16 on FP32 inputs; chained: FP16 on the outputs of FP16 stages;")
    terminal.line("propagated: FP32 on the outputs of FP16 stages, so the error that came in.")
    for stage in result.stages:
        _show_stage(terminal, stage)
    error_table(terminal, {"": result.whole.outputs}, result.floats, ("rel_l2", "max_abs"))
    _show_written(terminal, result, name, command)


def _show_stage(terminal: Terminal, stage: Stage) -> None:
    if stage.finding == WRONG:
        terminal.line()
        terminal.line(f"{stage.name} fails alone: {say(stage.alone.verdict.because)}", "bold")
        _show_culprits(terminal, stage)
    elif stage.finding == IN_COMBINATION:
        terminal.line()
        terminal.line(f"{stage.name} fails only in combination: {say(stage.chained.verdict.because)}", "bold")
        terminal.line("alone it meets the tolerance, and so do its inputs: the errors add up here", indent=2)
    elif stage.finding == SPREADS:
        terminal.line()
        terminal.line(f"{stage.name} fails only in combination: {say(stage.chained.verdict.because)}", "bold")
        terminal.line(
            "it would in FP32, too, because it amplifies small errors of its inputs: keep in FP32 what makes "
            f"{listed(stage.inputs)}",
            indent=2,
        )


def _show_culprits(terminal: Terminal, stage: Stage) -> None:
    if not stage.culprits:
        return
    error = "" if stage.corrected is None else f" (error {three_digits(stage.corrected)} of the allowed one)"
    nodes = counted(len(stage.culprits), "node")
    if stage.corrected is not None and stage.corrected <= 1:
        terminal.line(f"with {nodes} in FP32 it meets the tolerance alone{error}:", indent=2)
    else:
        terminal.line(f"{nodes} in FP32 help, but it still misses the tolerance{error}:", indent=2)
    rows = [[node.name, node.op, node.reason] for node in terminal.some(stage.culprits, _CULPRITS)]
    terminal.table(["node", "operator", "why"], rows, fold=2)
    terminal.more(len(stage.culprits), _CULPRITS)


def _show_written(terminal: Terminal, result: StagesResult, name: str, command: str) -> None:
    written = [stage.onnx for stage in result.stages if stage.onnx is not None]
    if not written and result.upto is None:
        return
    terminal.line()
    if written:
        terminal.line(f"wrote {len(written)} stages to {written[0].parent}, each with its FP32 inputs beside it")
    if result.upto is not None:
        count = len(result.upto.plan.nodes)
        words = "keeps" if result.upto.whole.verdict.met else "misses"
        nodes = counted(count, "node")
        terminal.line(
            f"everything after {result.upto.stage} in FP32 ({nodes}): the model {words} the tolerance; "
            f"{say(result.upto.whole.verdict.because)}"
        )
        if result.upto.path is not None:
            given = [*input_words(command), *measuring_words(command)]
            applied = ["halfwise", "fix", name, "--plan", str(result.upto.path), *given, "--out", "fixed"]
            terminal.command("next    ", shell(applied))
        else:
            terminal.line("the plan is written with --out DIR", indent=2)


def _ratio(run: Run) -> str:
    return three_digits(run.ratio)
