"""Where the target's compiler does not build Attention operators, their steps are searched and written instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from halfwise.compiler.compiled import Compiled
from halfwise.core.notes import Note, NoteKind
from halfwise.model.inputs.samples import Samples
from halfwise.precision.choices import Choices
from halfwise.repair.attention_steps import ATTENTION_STEPS, steps_of
from halfwise.search.journal import Journal
from halfwise.verbs.fix.decide import decide
from halfwise.verbs.fix.feedback import Feedback
from halfwise.verbs.fix.prepare import Prepared

__all__ = ["with_built_attention"]


def with_built_attention(prepared: Prepared, found: Feedback) -> tuple[Prepared, Feedback]:
    """What was found, or what is found with such nodes written out, and what that is about."""
    compiled = found.candidate.compiled
    if compiled is None or not compiled.unbuilt:
        return prepared, found
    other = _in_steps(prepared, compiled, found.candidate.decided.samples)
    prepared.request.notify("searching again: the compiler builds Attention in single operators only")
    prepared.context.counter.search()
    again = decide(other)
    built = again.candidate.compiled is not None and again.candidate.compiled.audit is not None
    return (other, again) if built else (prepared, found)


def _in_steps(prepared: Prepared, unbuilt: Compiled, samples: Samples) -> Prepared:
    names = unbuilt.unbuilt
    written_out = ((ATTENTION_STEPS, ATTENTION_STEPS.at(names)),)
    context, given = prepared.context, prepared.request.choices
    model = context.repaired(prepared.request.model, written_out)[0]
    steps = steps_of(model, names)
    choices = Choices(_by_step(given.kept, steps), _by_step(given.forced, steps))
    sites = context.sites(model, choices)
    return replace(
        prepared,
        request=replace(prepared.request, choices=choices),
        sites=sites,
        samples=samples,
        context=replace(context, references=context.references.of_form(sites)),
        journal=Journal(),
        notes=(*prepared.notes, Note.of(NoteKind.ATTENTION_IN_STEPS, nodes=names, error=unbuilt.error)),
        written_out=written_out,
    )


def _by_step(chosen: Mapping[str, str], steps: Mapping[str, str]) -> dict[str, str]:
    """What the user decided about an operator holds for its steps."""
    gone = set(steps.values())
    there = {name: why for name, why in chosen.items() if name not in gone}
    return {**there, **{step: chosen[of] for step, of in steps.items() if of in chosen}}
