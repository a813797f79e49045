"""Markdown summaries, for a pull request or a CI job's page. Nothing that a model brings along can act in them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from halfwise.core.english import say, say_all
from halfwise.core.formats import Format
from halfwise.core.metrics import Metrics
from halfwise.core.notes import Note
from halfwise.core.wording import and_more, counted
from halfwise.precision.plan_document import RepairRecord
from halfwise.report.answer import caution, inputs_told, way_out
from halfwise.report.groups import Group, Grouping, kept_nodes, reason
from halfwise.report.repairs import alike, places
from halfwise.report.text import safe
from halfwise.verbs.fix.result import FixResult
from halfwise.verbs.fix.standing import caution_of
from halfwise.verbs.gate import Gate

__all__ = ["code", "fix_markdown", "gate_markdown", "prose"]

_SHOWN = 30  # rows of a table
_NAME = 100  # columns of a name
_RANKS = {"met": "✅", "caution": "⚠️", "missed": "❌"}
_MARKS = {"pass": "✅ pass", "fail": "❌ **fail**", "skip": "➖ skipped"}
_WARY = "⚠️ pass"
_TITLES = {"rel_l2": "rel_l2", "max_abs": "max_abs", "nonfinite": "not finite"}
_PUNCTUATION = re.compile(r"[\\`*_{}\[\]()<>#+!|~$&@^=\"'-]|(?<=\w):(?=//)|(?<=www)\.", re.IGNORECASE)


def prose(text: str) -> str:
    """Text that reads as it stands: what Markdown, HTML or the code host would act on is spelled as an entity."""
    return _PUNCTUATION.sub(lambda found: f"&#{ord(found[0])};", safe(text))


def code(name: str, width: int = _NAME) -> str:
    """A name as code, for a cell of a table."""
    shown = safe(name, width)
    if not shown.strip() or "|" in shown:  # no code span can hold these in a table
        return f"<code>{_entities(shown)}</code>"
    fence = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 1)
    pad = " " if shown[0] in "` " or shown[-1] in "` " else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def _entities(text: str) -> str:
    return "".join(c if c.isalnum() or c in "/ " else f"&#{ord(c)};" for c in text)


def fix_markdown(result: FixResult) -> str:
    """The verdict, the errors before and after, what stays in FP32 and why, and what it costs."""
    name = code(result.model.path.name) if result.model.path else "the model"
    kept = [node for node in result.plan.nodes if node.format is not Format.FP16]
    standing = result.standing
    lines = [
        f"## {_RANKS[standing.rank]} halfwise fix: {name} {standing.told}",
        "",
        f"With {len(kept):,} of {counted(len(result.model.nodes), 'node')} out of FP16 and "
        f"{counted(len(result.plan.repairs), 'repair')}, on {inputs_told(result.samples)}, "
        f"for {prose(result.plan.target)}.",
        "",
        f"- plain FP16: {prose(say(result.fp16_verdict.because))}",
        f"- fixed: {prose(say(result.verdict.because))}",
        *_beyond_emulation(result),
        *_worth(result),
        "",
        *_errors({"plain FP16": result.fp16, "fixed": result.fixed}, result.measured.floats),
    ]
    lines += _kept(result)
    lines += _repaired(result.plan.repairs)
    violations = result.deploy_files.audit.violations if result.deploy_files.audit else ()
    if violations:
        rows_of = [(code(v.node), v.wanted, prose(f"{v.got}; {v.why}")) for v in violations]
        lines += _table(("the compiler breaks the plan at", "wanted", "got"), rows_of)
    lines += [
        f"{counted(result.cost.casts, 'cast')}, {result.cost.fp32_flops_share:.2%} of the arithmetic in "
        f"{result.cost.left_in}; took "
        f"{result.cost.model_runs:.1f} model runs and {result.cost.seconds:.1f} s.",
        *_notes(note for note in result.notes if not result.good or note is not caution_of(result.notes)),
    ]
    return "\n".join(lines) + "\n"


def _kept(result: FixResult) -> list[str]:
    """A row for each group of nodes that say one thing; below, folded, a row for each node."""
    nodes = kept_nodes(result)
    if not nodes:
        return []
    groups = Grouping(result.model, [site.name for site in result.sites.all]).groups(nodes)
    each = [Group(node.name, (node,)) for node in nodes]

    def row(group: Group) -> tuple[str, ...]:
        op, worst = group.operators, group.worst
        return code(group.title), prose(op), worst.format.value.upper(), prose(reason(result, worst))

    titles = ("kept out of FP16", "operator", "format", "why (the worst)" if len(groups) < len(nodes) else "why")
    return _folded(titles, [*map(row, groups)], [*map(row, each)], "node")


def _repaired(repairs: Sequence[RepairRecord]) -> list[str]:
    """A row for all of one rule and one algebra; below, folded, a row for each repair."""
    if not repairs:
        return []

    def row(group: Sequence[RepairRecord]) -> tuple[str, ...]:
        where = code(places(group[:1])) + and_more(len(group), 1)
        return prose(group[0].rule), where, prose(group[0].algebra)

    groups = [*map(row, alike(repairs))]
    return _folded(("repair", "nodes", "how"), groups, [row([repair]) for repair in repairs], "repair")


def _folded(
    titles: Sequence[str], groups: Sequence[Sequence[str]], each: Sequence[Sequence[str]], noun: str
) -> list[str]:
    lines = _table(titles, groups)
    if len(groups) < len(each):
        lines += [f"<details><summary>each of the {counted(len(each), noun)}</summary>", "", *_table(titles, each)]
        lines += ["</details>", ""]
    return lines


def _beyond_emulation(result: FixResult) -> list[str]:
    """What a real backend and the target's compiler said, where they were asked."""
    lines = []
    if result.delivered is not None and result.delivered.verdict is not None:
        lines.append(f"- run by ONNX Runtime as written: {prose(say(result.delivered.verdict.because))}")
    if result.confirmation is not None:
        where = prose(result.confirmation.record.title)
        found = result.confirmation
        told = say(found.verdict.because) if found.outputs else found.findings[0].message
        lines.append(f"- measured on {where}: {prose(told)}")
    if result.refusal:
        lines.append(f"- {prose(result.refusal)}")
    return lines


def _worth(result: FixResult) -> list[str]:
    """Why a miss is one, and what helps; or why a yes is no clean one."""
    if result.good:
        return [f"- ⚠️ {prose(why)}"] if (why := caution(result)) else []
    out = way_out(result)
    if out.cause == result.refusal:  # told above
        return []
    return [f"- cause: {prose(out.cause)}", *([f"- next: {code(out.step.command, 1000)}"] if out.step else [])]


def gate_markdown(result: Gate) -> str:
    """The answer, each check in a row, and what a failing one found."""
    name = code(result.model.path.name) if result.model.path else "the model"
    lines = [f"## {_RANKS[result.rank]} halfwise gate: {code(result.plan)} {result.told} for {name}", ""]
    wary = ["tolerance"] if result.caution is not None else []
    checks = [
        (_WARY if check.id in wary else _MARKS[check.status], check.id, prose(check.message)) for check in result.checks
    ]
    lines += _table(("", "check", "answer"), checks)
    for check in result.checks:
        if check.status == "fail" and check.details:
            told = (prose(safe(detail, 4 * _NAME)) for detail in say_all(check.details[:_SHOWN]))
            lines += [f"### {check.id}", "", *(f"- {detail}" for detail in told)]
            lines += [*_left_out(len(check.details)), ""]
    if result.result is not None:
        lines += _errors({"": result.result.fixed}, result.result.measured.floats)
    return "\n".join([*lines, *_notes(result.notes)]).rstrip("\n") + "\n"


def _errors(columns: Mapping[str, Mapping[str, Metrics]], floats: Collection[str]) -> list[str]:
    last = list(columns.values())[-1]
    ranked = sorted(last, key=lambda name: (last[name].nonfinite == 0, -last[name].rel_l2, name))
    named = [each for each in ranked if each in floats]
    metrics = ["rel_l2", "max_abs"]
    if any(outputs[name].nonfinite for outputs in columns.values() for name in named):
        metrics.append("nonfinite")
    titles = ["output", *(f"{_TITLES[metric]} {column}".strip() for column in columns for metric in metrics)]
    rows = [
        [code(name), *(_cell(outputs[name], metric) for outputs in columns.values() for metric in metrics)]
        for name in named
    ]
    lines = _table(titles, rows) if rows else []
    others = [name for name in ranked if name not in floats]
    if others:
        titles = ["output", *(f"equal {column}".strip() for column in columns)]
        rows = [[code(name), *(f"{outputs[name].exact:.2%}" for outputs in columns.values())] for name in others]
        lines += _table(titles, rows)
    return lines


def _cell(metrics: Metrics, name: str) -> str:
    return f"{metrics.nonfinite:,}" if name == "nonfinite" else f"{getattr(metrics, name):.3g}"


def _notes(notes: Iterable[Note]) -> list[str]:
    told = [f"- {prose(say(note))}" for note in notes]
    return ["", "Notes:", "", *told] if told else []


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [_row(titles), "|" + "---|" * len(titles), *map(_row, rows[:_SHOWN]), ""]
    return [*lines, *_left_out(len(rows)), ""] if len(rows) > _SHOWN else lines


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _left_out(total: int) -> list[str]:
    return [f"...{and_more(total, _SHOWN)}"] if total > _SHOWN else []
