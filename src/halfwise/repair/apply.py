"""Applies repairs to a copy of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from onnx_ir.passes.common import RemoveUnusedNodesPass

from halfwise.model.model import Model
from halfwise.model.normal_form import normalise
from halfwise.repair.rule import Ranges, Repair, Rule

__all__ = ["found_by", "repaired"]

Failed = Callable[[str, Exception], None]  # takes the name of a rule that threw


def found_by(rule: Rule, model: Model, ranges: Ranges, failed: Failed) -> Sequence[Repair]:
    """Every place where the rule holds; nothing where it throws."""
    try:
        return rule.find(model, ranges)
    except Exception as error:
        failed(rule.name, error)
        return ()


def repaired(
    model: Model, repairs: Iterable[tuple[Rule, Repair]], failed: Failed | None = None
) -> tuple[Model, tuple[Repair, ...]]:
    """The model with the repairs made, and those that could be made; the given model stays as it is.

    With `failed`, a repair that throws is left out and told; without, it ends the call.
    """
    wanted = list(repairs)
    while True:
        copy, done = model.ir.clone(), []
        rule: Rule | None = None
        try:
            for rule, repair in wanted:
                if rule.apply(copy, repair):
                    done.append(repair)
                    RemoveUnusedNodesPass()(copy)  # else they are readers still, and the next repair asks who reads
            rule = None
            RemoveUnusedNodesPass()(copy)
            normalise(copy)
        except Exception as error:
            if failed is None or not wanted:
                raise
            culprit = rule or _breaks(model, wanted)
            failed(culprit.name, error)
            wanted = [entry for entry in wanted if entry[0] is not culprit]  # the copy is half rewritten: begin anew
        else:
            return replace(model, ir=copy), tuple(done)


def _breaks(model: Model, wanted: Sequence[tuple[Rule, Repair]]) -> Rule:
    """The first rule after which the model is no longer one that can be brought into normal form."""
    for count, (rule, _) in enumerate(wanted, 1):
        try:
            repaired(model, wanted[:count])
        except Exception:
            return rule
    return wanted[-1][0]
