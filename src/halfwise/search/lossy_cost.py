"""What a lossy rule costs in error, beside the exact rescaling that brings the same weights into range without loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from halfwise.core.formats import Format
from halfwise.model.model import Model
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.repair import Ranges, Repair, Rule, repaired
from halfwise.repair.rescale import RESCALE
from halfwise.search.judge import Judge
from halfwise.search.repair_selector import departure

__all__ = ["lossy_costs"]


def lossy_costs(
    rules: Sequence[Rule], model: Model, ranges: Ranges, judge_of: Callable[[Sites], Judge], io: Format
) -> Iterator[str]:
    """A sentence for each lossy rule, measured on the judge's inputs; nothing is decided by it."""
    lossy = [rule for rule in rules if rule.lossy]
    if not lossy:
        return
    floats = {v.name or "" for v in model.graph.outputs if v.dtype is not None and v.dtype.is_floating_point()}

    def errors(rule: Rule, found: Sequence[Repair]) -> tuple[str, str]:
        """In FP32, and with every node in FP16."""
        sites = Sites(repaired(model, [(rule, repair) for repair in found])[0])
        judge = judge_of(sites)
        runs = judge.measure(Assignment(sites, {})), judge.measure(Assignment.all_narrow(sites, io=io))
        fp32, fp16 = (f"{departure(measured.outputs, floats):.3g}" for measured in runs)
        return fp32, fp16

    plain = errors(RESCALE, ())[1]
    exact = RESCALE.find(model, ranges)
    for rule in lossy:
        found = rule.find(model, ranges)
        if not found:
            yield f"{rule.name} finds nothing to change in this model"
            continue
        fp32, fp16 = errors(rule, found)
        beside = f"; all in FP16 the error is {fp16} with it, {plain} without"
        if exact:
            exact_fp32, exact_fp16 = errors(RESCALE, exact)
            beside = (
                f", the exact {RESCALE.name} by {exact_fp32}; all in FP16 the error is {fp16} with {rule.name}, "
                f"{exact_fp16} with {RESCALE.name}, {plain} with neither"
            )
        places = f"{len(found)} weight{'s' if len(found) != 1 else ''}"
        yield f"{rule.name}, applied to all {places} that it fits, moves the FP32 answer by {fp32}{beside}"
