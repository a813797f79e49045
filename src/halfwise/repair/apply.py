"""Applies repairs to a copy of a model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from onnx_ir.passes.common import RemoveUnusedNodesPass

from halfwise.model.model import Model
from halfwise.model.normal_form import normalise
from halfwise.repair.rule import Repair, Rule

__all__ = ["repaired"]


def repaired(model: Model, repairs: Iterable[tuple[Rule, Repair]]) -> tuple[Model, tuple[Repair, ...]]:
    """The model with the repairs made, and those that could be made; the given model stays as it is."""
    copy = model.ir.clone()
    done = tuple(repair for rule, repair in repairs if rule.apply(copy, repair))
    RemoveUnusedNodesPass()(copy)
    normalise(copy)
    return replace(model, ir=copy), done
