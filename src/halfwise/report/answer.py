"""What the answer of `fix` is worth, and what leads out of a miss: the same for the screen, the page and Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from halfwise.backends.confirm import Confirmation
from halfwise.core.english import say
from halfwise.core.formats import Format
from halfwise.core.notes import QUANTISED_OTHERWISE, Note, NoteKind
from halfwise.core.targets import DEFAULT_TARGET
from halfwise.core.tolerance import USER_METRIC
from halfwise.core.tolerance_options import tolerance_options
from halfwise.core.wording import counted, number
from halfwise.emulation.profiles import WIDE
from halfwise.model.inputs.samples import Samples
from halfwise.report.shell import input_words, judging_words, original_in, shell, without
from halfwise.verbs.fix.result import FixResult
from halfwise.verbs.fix.standing import caution_of

__all__ = [
    "Step",
    "WayOut",
    "caution",
    "engine_loop",
    "inputs_told",
    "verify_words",
    "way_out",
]


FURTHER = 4  # times the runs that were not enough
ROOM = 1.1  # times the error to expect of other inputs
_QUANTISED = QUANTISED_OTHERWISE | {NoteKind.REWRITING_MISSES}  # notes that say how to quantise for the target


@dataclass(frozen=True)
class Step:
    """One thing to do, why, and its command."""

    title: str
    why: str
    command: str


@dataclass(frozen=True)
class WayOut:
    """Why the tolerance is missed, most telling first, and the one command that helps; None where none is known.

    `note` is the one that says so, where it is one.
    """

    cause: str
    step: Step | None
    note: Note | None = None


def caution(result: FixResult) -> str:
    """Why a yes is none to rely on, besides synthetic inputs, which are told anyway; empty where it is."""
    note = caution_of(result.notes)
    return say(note) if note is not None else ""


def inputs_told(samples: Samples) -> str:
    """How many inputs a verdict rests on."""
    held_out = len(samples.validation)
    if samples.origin == "synthetic":
        return counted(len(samples.search) + held_out, "synthetic input")
    if samples.origin == "derived":
        return f"{counted(len(samples.search), 'input')} and {counted(held_out, 'perturbed copy', 'perturbed copies')}"
    if set(samples.search) <= set(samples.validation):
        return counted(held_out, "input")
    return f"{counted(len(samples.search) + held_out, 'input')} ({held_out:,} held out)"


def way_out(result: FixResult, command: str = "") -> WayOut:
    """`command` is the line that made the result; what it asked is asked again."""
    over = next((each for each in result.measured.inputs if each.over), None)
    if over is not None:
        cause = f"Input {over.name!r} overflows in FP16: {counted(over.over, 'value')} beyond {Format.FP16.max:,.0f}."
        return WayOut(cause, _again(result, command, "Keep inputs and outputs in FP32", "--io-types", "fp32"))
    alone = max(result.measured.inputs, key=lambda each: each.ratio or 0.0, default=None)
    if not result.met and alone is not None and alone.ratio is not None and alone.ratio > 1.0:
        cause = f"Input {alone.name!r} in FP16 causes {number(alone.ratio)} times the allowed error by itself."
        return WayOut(cause, _again(result, command, "Keep inputs and outputs in FP32", "--io-types", "fp32"))
    noted = {note.kind: note for note in result.notes}
    if result.met and result.refusal:  # no number says more about it, and a note says what to do
        return WayOut(result.refusal, None, noted.get(NoteKind.NOT_PROVEN))
    otherwise = next((note for note in result.notes if note.kind in _QUANTISED), None)
    if result.met and otherwise is not None:
        return WayOut(say(otherwise), None, otherwise)
    if result.met and result.confirmation is not None and not result.confirmation.met:
        return WayOut(_unconfirmed(result.confirmation), None)
    if told := noted.get(NoteKind.FORCED_MISSES):
        return WayOut(say(told), _again(result, command, "Search without --force", less=("--force",)), told)
    if (
        result.met
        and result.delivered is not None
        and result.delivered.verdict is not None
        and result.delivered.refutes
    ):
        cause = f"ONNX Runtime's CPU provider computes something else: {say(result.delivered.verdict.because)}."
        return WayOut(cause, _compared(result, command))
    if result.met and result.delivered is not None and result.delivered.note is not None and result.delivered.fails:
        anew = _again(result, command, "Search anew", less=("--plan", "--engine")) if result.decision.given else None
        return WayOut(say(result.delivered.note), anew or _compared(result, command), result.delivered.note)
    if spent := noted.get(NoteKind.BEST_SO_FAR):
        more = f"{FURTHER * spent.values['asked']:g}"
        return WayOut(say(spent), _again(result, command, "Search on", "--max-runs", more), spent)
    wider = (NoteKind.QUANTISERS_MOVE, NoteKind.QUANTISERS_NEAR, NoteKind.ORIGINAL_NEAR)
    if told := next((noted[kind] for kind in wider if kind in noted), None):
        return WayOut(say(told), _widened(result, command), told)
    if result.decision.given:
        anew = _again(result, command, "Search anew", less=("--plan", "--engine"))
        return WayOut("The plan does not hold for this model and these inputs.", anew)
    return WayOut(_by_profile(result) or _rounding(result), _looked_at(result, command))


def _unconfirmed(found: Confirmation) -> str:
    if not found.outputs:
        return found.findings[0].message
    return f"On {found.record.title} the tolerance is not kept: {say(found.verdict.because)}."


def _by_profile(result: FixResult) -> str:
    """Where one profile alone misses."""
    missed = [name for name, ratio in result.by_profile.items() if ratio > 1.0]
    if missed == [WIDE.name]:
        return "The result depends on rounding: it holds where every step is rounded, not where sums stay wide."
    return f"Only profile {missed[0]!r} misses it." if len(missed) == 1 and len(result.by_profile) > 2 else ""


def _rounding(result: FixResult) -> str:
    broken = result.measured.diagnosis.breaking if result.measured.diagnosis is not None else frozenset()
    if broken:
        told = f"{counted(len(broken), 'node')} of the model overflow{'' if len(broken) > 1 else 's'} in FP16"
        return f"{told}, and no set of FP32 nodes mends it."
    kept = counted(len(_kept(result)), "FP32 node")
    verdict = result.verdict
    metric = f"what {f'--metric {verdict.part}' if verdict.part else 'your metric'} measures"
    what = metric if verdict.metric == USER_METRIC else f"output {verdict.worst_output!r}"
    return f"Rounding moves {what} too far, even with {kept}."


def _kept(result: FixResult) -> list[str]:
    return [node.name for node in result.plan.nodes if node.format is not Format.FP16]


# -- commands ---------------------------------------------------------------------------------------------------------


def _tolerance_words(result: FixResult, command: str) -> list[str]:
    """The tolerance that was asked for, or the wider one that `fix` found by itself."""
    if any(note.kind is NoteKind.QUANTISERS_ALLOW for note in result.notes):
        return tolerance_options(result.plan.tolerance)
    return judging_words(command)


def verify_words(result: FixResult, judged: Path, command: str = "") -> list[str]:
    """The command that judges a model or an engine's answers as `fix` judged, inputs aside."""
    by = original_in(command) or str(result.model.path)
    return ["halfwise", "verify", by, str(judged), *_tolerance_words(result, command)]


def engine_loop(result: FixResult, command: str = "") -> tuple[list[str], list[str]] | None:
    """Run the engine that was built on the samples, and judge what it answers; None where no script was written."""
    files = result.deploy_files
    if files.script is None or files.outputs is None or result.files.samples is None or result.model.path is None:
        return None
    folder = str(result.files.samples)
    verify = [*verify_words(result, files.outputs, command), "--inputs", folder]
    return ["python", str(files.script), "--run", folder], verify


def _again(result: FixResult, command: str, title: str, *options: str, less: Sequence[str] = ()) -> Step | None:
    """The same question with other `options`, and without those of `less`."""
    if result.model.path is None:
        return None
    asked = without(command, [*less, *(word for word in options if word.startswith("--"))]) or _asked(result)
    return Step(title, "Searches again.", shell([*asked, *options]))


def _asked(result: FixResult) -> list[str]:
    """A command line for a result of Python's."""
    target = [] if result.plan.target == str(DEFAULT_TARGET) else ["--target", result.plan.target]
    out = str(result.plan_path.parent) if result.plan_path is not None else "fixed"
    return ["halfwise", "fix", str(result.model.path), *target, "--out", out]


def _widened(result: FixResult, command: str) -> Step | None:
    """With what this answer keeps, and room for other inputs."""
    factor, asked = ROOM * result.measured.expected, result.plan.tolerance
    if asked.uses_user_metric or not math.isfinite(factor):
        return _looked_at(result, command)
    return _again(result, command, "State a tolerance that FP32 keeps", *tolerance_options(asked.relaxed(factor)))


def _compared(result: FixResult, command: str) -> Step | None:
    if result.model.path is None or result.typed is None:
        return None
    words = [*verify_words(result, result.typed.path, command), *input_words(command)]
    return Step("Compare with ONNX Runtime", "Runs the written model there.", shell([*words, "--backend", "ort-cpu"]))


def _looked_at(result: FixResult, command: str) -> Step | None:
    if result.model.path is None:
        return None
    words = ["halfwise", "trace", str(result.model.path), *input_words(command)]
    why = "Ranges of every tensor, and the error of each node alone in FP16."
    return Step("See where FP16 goes wrong", why, shell(words))
