"""The question that a comparison with a model puts: its outputs understood from its FP32 answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from halfwise.core.evaluation import float_outputs
from halfwise.core.measures.named import spec_of
from halfwise.core.metrics import OutputMetric
from halfwise.core.tolerance import Tolerance
from halfwise.model.outputs.kinds import OutputFacts, kinds_of

__all__ = ["Understood", "understand"]

Array = NDArray[Any]
Outputs = dict[str, Array]


@dataclass(frozen=True)
class Understood:
    """The tolerance, and the answers that it was read from: of the outputs, and of tensors inside that judge."""

    tolerance: Tolerance
    answers: tuple[Outputs, ...]
    names: tuple[str, ...]


def understand(
    facts: OutputFacts, stated: Sequence[str], metric: OutputMetric | None, answers: Sequence[Mapping[str, Array]]
) -> Understood:
    """`answers` are those of the model with all watched that the facts name."""
    outputs = {name: answers[0][name] for name in facts.model.output_names}
    floats, user = float_outputs(outputs), metric is not None
    tolerance = Tolerance.parse(
        stated, outputs, floats, user_metric=user, measure=spec_of(metric), kinds=kinds_of(facts, answers)
    )
    names = (*outputs, *(name for name in tolerance.inner if name in answers[0]))
    return Understood(tolerance, tuple({name: each[name] for name in names} for each in answers), names)
