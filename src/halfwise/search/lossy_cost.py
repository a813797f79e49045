"""What a lossy rule costs in error, beside the exact rescaling that brings the same weights into range without loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from halfwise.core.notes import Note, NoteKind
from halfwise.model.inputs.feed import Feed
from halfwise.model.model import Model
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.repair import Ranges, Repair, Rule, found_by, repaired
from halfwise.repair.rescale import RESCALE
from halfwise.search.context import EvaluationContext
from halfwise.search.departure import departure

__all__ = ["lossy_costs"]


def lossy_costs(
    rules: Sequence[Rule], model: Model, ranges: Ranges, context: EvaluationContext, feeds: Sequence[Feed]
) -> Iterator[Note]:
    """What to say of each lossy rule, measured on these inputs; nothing is decided by it."""
    lossy = [rule for rule in rules if rule.lossy]
    if not lossy:
        return
    floats = {v.name or "" for v in model.graph.outputs if v.dtype is not None and v.dtype.is_floating_point()}

    def errors(rule: Rule, found: Sequence[Repair]) -> tuple[float, float]:
        """In FP32, and with every node in FP16."""
        sites = Sites(repaired(model, [(rule, repair) for repair in found], context.failures.rule)[0])
        judge = context.judge(sites, feeds)
        runs = judge.measure(Assignment(sites, {})), judge.measure(Assignment.all_narrow(sites, io=context.io))
        fp32, fp16 = (departure(measured.outputs, floats) for measured in runs)
        return fp32, fp16

    plain = errors(RESCALE, ())[1]
    exact = found_by(RESCALE, model, ranges, context.failures.rule)
    for rule in lossy:
        found = found_by(rule, model, ranges, context.failures.rule)
        if not found:
            yield Note.of(NoteKind.LOSSY_NOTHING, rule.name)
            continue
        fp32, fp16 = errors(rule, found)
        yield Note.of(NoteKind.LOSSY_COST, rule.name, weights=len(found), fp32=fp32, fp16=fp16, plain=plain)
        if exact:
            fp32, fp16 = errors(RESCALE, exact)
            yield Note.of(NoteKind.LOSSY_COST_BESIDE, RESCALE.name, fp32=fp32, fp16=fp16)
