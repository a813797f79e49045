"""The story of `fix` in one screen: verdict, errors, what stays in FP32 and why, what was written, what to do next."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from halfwise.core.english import say, say_all
from halfwise.core.formats import Format
from halfwise.core.wording import counted, three_digits
from halfwise.precision.plan import PlannedNode
from halfwise.precision.plan_document import RepairRecord
from halfwise.report.answer import caution, engine_loop, inputs_told, verify_words, way_out
from halfwise.report.groups import Group, Grouping, kept_nodes, reason
from halfwise.report.repairs import alike, explain_repairs, places
from halfwise.report.shell import input_words
from halfwise.report.terminal import Terminal, share
from halfwise.report.verdict import error_table, show_notes, show_profiles
from halfwise.verbs.fix.cost import computes_double
from halfwise.verbs.fix.document import LatencyRecord
from halfwise.verbs.fix.result import FixResult
from halfwise.verbs.fix.standing import caution_of

__all__ = ["show_fix"]

_SHOWN = 12
_POINTS = 20
_PLAIN = str.maketrans("\N{RIGHT SINGLE QUOTATION MARK}\N{MINUS SIGN}", "'-")  # for terminals with few letters
_STYLES = {"met": "bold green", "caution": "bold yellow", "missed": "bold yellow"}  # of a tolerance that is kept


def show_fix(terminal: Terminal, result: FixResult, command: str = "", *, explain: bool = False) -> None:
    """`command` is the line that made the result, for the command to go on with."""
    _show_verdict(terminal, result)
    told = caution_of(result.notes) if result.good else way_out(result).note
    show_notes(terminal, [note for note in result.notes if note is not told])
    typed = {"as typed": result.measured.typed} if result.measured.typed else {}
    error_table(
        terminal, {**typed, "FP16": result.fp16, "fixed": result.fixed}, result.measured.floats, ("rel_l2", "max_abs")
    )
    if explain:
        explain_repairs(terminal, result.plan.repairs)
    else:
        _show_repairs(terminal, result.plan.repairs)
    _show_nodes(terminal, result)
    if terminal.full:
        _show_policies(terminal, result)
    if result.curve:
        _show_curve(terminal, result)
    terminal.line()
    show_profiles(terminal, result.by_profile)
    _show_cost(terminal, result)
    _show_latency(terminal, result)
    _show_artifacts(terminal, result, command)


def _show_verdict(terminal: Terminal, result: FixResult) -> None:
    name = result.model.path.name if result.model.path else "the model"
    kept = [node for node in result.plan.nodes if node.format is not Format.FP16]
    where = f"on {inputs_told(result.samples)}"
    if not result.met:
        what = f"with {_nodes(len(kept))} in FP32" if kept else "in plain FP16"
        terminal.line(f"{name} misses the tolerance {what}, {where}:", "bold red")
    else:
        standing = result.standing
        judged = f"judged {where}" if standing.here else where
        told = f"{standing.told}{standing.stop} {_with(result, kept)}"
        told = told if result.sites.free else "stays as it is: no node can be FP16"
        terminal.line(f"{name} {told}, {judged}:", _STYLES[standing.rank])
    if result.refusal:
        terminal.line(result.refusal, "bold red")
    elif not result.good:
        terminal.line(way_out(result).cause, "bold red")
    elif why := caution(result):
        terminal.line(why, "bold yellow")
    if kept or result.plan.repairs:
        terminal.line(f"plain FP16: {say(result.fp16_verdict.because)}", indent=2)
        terminal.line(f"fixed:      {say(result.verdict.because)}", indent=2)
    else:
        terminal.line(say(result.verdict.because), indent=2)
    if result.delivered is not None and result.delivered.verdict is not None:
        terminal.line(f"run by ONNX Runtime as written: {say(result.delivered.verdict.because)}", indent=2)


def _with(result: FixResult, kept: Sequence[PlannedNode]) -> str:
    repairs = len(result.plan.repairs)
    repaired = counted(repairs, "repair")
    if kept:
        formats = " and ".join(sorted({node.format.value.upper() for node in kept}, reverse=True))
        words = f"with {len(kept):,} of its {counted(len(result.model.nodes), 'node')} in {formats}"
        return f"{words} and {repaired}" if repairs else words
    if repairs:
        return f"after {repaired}: no node needs FP32" if result.good else f"with {repaired}"
    if not result.good:
        return "in plain FP16"
    if result.model.given is None:
        return "as it is: no node needs FP32"
    double = any(computes_double(site.node) for site in result.sites.all)
    return f"everywhere{' but in FP64 parts' if double else ''}: no node needs FP32"


def _show_repairs(terminal: Terminal, repairs: Sequence[RepairRecord]) -> None:
    """A row for all of one rule and one algebra; each repair with --full."""
    if not repairs:
        return
    terminal.line()
    groups = [[repair] for repair in repairs] if terminal.full else alike(repairs)
    rows = [[places(group), group[0].rule, group[0].algebra] for group in terminal.some(groups, _SHOWN)]
    terminal.table(["repaired", "rule", "how"], rows, fold=2)
    terminal.more(len(groups), _SHOWN)
    if len(groups) < len(repairs):
        groups_told = counted(len(groups), "group")
        terminal.line(f"({counted(len(repairs), 'repair')} in {groups_told}; --full shows each repair)")


def _show_nodes(terminal: Terminal, result: FixResult) -> None:
    """A row for each group of nodes that say one thing; each node with --full."""
    nodes, pinned = kept_nodes(result), result.decision.pinned
    if nodes:
        terminal.line()
        with_format = any(node.format is not Format.FP32 for node in nodes)
        titles = ["kept out of FP16", "operator", *(["format"] if with_format else []), "why"]
        groups = _groups(result, nodes, terminal)
        rows = [
            [
                group.title,
                group.worst.op if len(group.nodes) == 1 else counted(len(group.nodes), "node"),
                *([group.worst.format.value.upper()] if with_format else []),
                _why(result, group),
            ]
            for group in terminal.some(groups, _SHOWN)
        ]
        terminal.table(titles, rows, fold=len(titles) - 1)
        terminal.more(len(groups), _SHOWN)
        if len(groups) < len(nodes):
            terminal.line(f"({counted(len(nodes), 'node')} in {counted(len(groups), 'group')}; --full shows each node)")
    if pinned:
        reasons = Counter(node.because for node in pinned).most_common(3)
        shown = "; ".join(f"{count:,}: {', '.join(say_all(because))}" for because, count in reasons)
        terminal.line()
        terminal.line(f"{_nodes(len(pinned))} cannot be FP16 in any plan ({shown})")


def _show_policies(terminal: Terminal, result: FixResult) -> None:
    """What a list made for all models would have cost this one."""
    others = [compared for compared in result.policies if compared.nodes]
    if others:
        told = ", ".join(f"{compared.policy.title} {_nodes(compared.nodes)}" for compared in others)
        terminal.line()
        terminal.line(f"other tools' lists would keep in FP32: {told} (apply: --keep policy:{others[0].policy.name})")


def _groups(result: FixResult, nodes: Sequence[PlannedNode], terminal: Terminal) -> Sequence[Group]:
    if terminal.full or len(nodes) == 1:
        return [Group(node.name, (node,)) for node in nodes]
    return Grouping(result.model, [site.name for site in result.sites.all]).groups(nodes)


def _why(result: FixResult, group: Group) -> str:
    words = reason(result, group.worst).translate(_PLAIN)
    return words if len(group.nodes) == 1 else f"({group.operators}) worst: {words}"


def _show_curve(terminal: Terminal, result: FixResult) -> None:
    terminal.line()
    rows = [
        [f"{point.nodes:,}", "" if point.measured is None else three_digits(point.measured), three_digits(point.cost)]
        for point in terminal.some(result.curve, _POINTS)
    ]
    terminal.table(["FP32 nodes", "error / allowed", "FP32 cost"], rows, right=(0, 1, 2))
    terminal.more(len(result.curve), _POINTS)


def _show_cost(terminal: Terminal, result: FixResult) -> None:
    cost = result.cost
    left = share(cost.fp32_flops_share) if cost.fp32_flops_share else "none"
    terminal.line(
        f"took {cost.model_runs:.1f} model runs, {cost.seconds:.1f} s, {cost.peak_rss_mb:,.0f} MB with mapped files; "
        f"leaves {left} of the arithmetic in {cost.left_in}, {counted(cost.casts, 'cast')} "
        f"(target {result.plan.target}, profile {result.plan.profile})"
    )


def _show_latency(terminal: Terminal, result: FixResult) -> None:
    """Where the time goes; the nodes that take most of it."""
    told = result.latency
    if not isinstance(told, LatencyRecord):
        return
    how = f"times of {told.source}" if told.measured else f"{told.source}, nothing measured"
    terminal.line(
        f"predicted: plain FP16 {three_digits(told.fp16_ms)} ms, fixed {three_digits(told.fixed_ms)} ms, FP32 "
        f"{three_digits(told.fp32_ms)} ms ({how})"
    )
    if terminal.full:
        rows = sorted(told.nodes, key=lambda row: -max(row.fp16, row.fixed, row.fp32))
        cells = [(row.name, *(three_digits(each) for each in (row.fp16, row.fixed, row.fp32))) for row in rows]
        terminal.table(["node", "FP16 us", "fixed us", "FP32 us"], cells, right=(1, 2, 3))


def _show_artifacts(terminal: Terminal, result: FixResult, command: str) -> None:
    if result.typed is None:
        return
    deploy_files = result.deploy_files
    written = {
        "model": result.typed.path,
        "weights": result.typed.data,
        "plan": result.plan_path,
        "report": result.report,
        "fp32": deploy_files.model,
        "command": deploy_files.command,
        "script": deploy_files.script,
        "samples": _written_samples(result),
        **deploy_files.others,
    }
    terminal.line()
    for what, path in written.items():
        if path is not None:
            terminal.line(f"{what:<7} {path}")
    if not result.good:
        if (step := way_out(result, command).step) is not None:
            terminal.command("next    ", step.command)
    elif deploy_files.build:
        terminal.command("next    ", shlex.join(deploy_files.build))
        terminal.command("then    ", f"{deploy_files.audit_command}   (in {result.typed.path.parent})")
        for words in engine_loop(result, command) or ():
            terminal.command("then    ", shlex.join(words))
    elif result.model.path is not None:
        words = [*verify_words(result, result.typed.path, command), *input_words(command), *result.rollout_words]
        terminal.command("next    ", shlex.join(words))


def _written_samples(result: FixResult) -> Path | None:
    """What the script runs the engine on, where it was written for that."""
    samples, script = result.files.samples, result.deploy_files.script
    return samples if samples is not None and script is not None and samples.parent == script.parent else None


def _nodes(count: int) -> str:
    return counted(count, "node")
