"""What outputs are worth beside the reference ones: the errors of each sample, the worst of all, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from halfwise.core.choosing import Changes, changes_expected
from halfwise.core.contents import changed, tensors_in
from halfwise.core.formats import Format
from halfwise.core.judging import judged
from halfwise.core.metrics import Metrics, OutputMetric, compare, is_float, no_answer, worst
from halfwise.core.output_kinds import OutputKind, inner_names
from halfwise.core.tolerance import Tolerance, Verdict

__all__ = ["Evaluation", "SampleError", "evaluate", "float_outputs", "missing_output", "sample_error"]

Outputs = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class SampleError:
    """The error of one sample: of each output, and what the user's own metric says of all of them.

    `changes` are to be expected of the outputs that choose, whether any was seen or not.
    """

    outputs: Mapping[str, Metrics]
    user_metric: float | None = None
    changes: Mapping[str, Changes] = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluation:
    """The errors of a set of samples under a tolerance; `floats` names the outputs that hold real numbers."""

    tolerance: Tolerance
    floats: frozenset[str]
    samples: tuple[SampleError, ...]

    @cached_property
    def outputs(self) -> dict[str, Metrics]:
        """The worst of each output over the samples."""
        return {name: worst([each.outputs[name] for each in self.samples]) for name in self.samples[0].outputs}

    @property
    def user_metric(self) -> float | None:
        """The worst that the user's own metric said."""
        return max((each.user_metric for each in self.samples if each.user_metric is not None), default=None)

    @cached_property
    def verdict(self) -> Verdict:
        return self.tolerance.verdict(self.outputs, self.floats, self.user_metric)

    @property
    def ratios(self) -> tuple[float, ...]:
        """Error over allowed error, sample by sample."""
        return tuple(self.tolerance.ratio(each.outputs, self.floats, each.user_metric) for each in self.samples)

    @property
    def smooth(self) -> tuple[float, ...]:
        """The same but for choices of which the differences to expect are known: counts of a few tell less."""
        return tuple(
            self.tolerance.ratio(_without(each.changes, each.outputs), self.floats, each.user_metric)
            for each in self.samples
        )

    @property
    def chances(self) -> tuple[float, ...]:
        """Differences to expect in choices over those that 95% of inputs bear, sample by sample."""
        return tuple(self.tolerance.chance(each.changes) for each in self.samples)

    @property
    def uncompared(self) -> tuple[str, ...]:
        """The outputs that are judged place by place, and that had another shape than the reference."""
        return self.tolerance.uncompared(self.outputs, self.floats)


def evaluate(
    references: Iterable[Outputs],
    outputs: Iterable[Outputs | None],
    tolerance: Tolerance,
    metric: OutputMetric | None = None,
    read_in: Mapping[str, Format] | None = None,
) -> Evaluation:
    """Compare outputs with references, sample by sample; both give the same outputs, or none where a run failed.

    `read_in`: the formats in which choices read tensors inside the model, where these are narrower.
    """
    floats: frozenset[str] = frozenset()
    samples = []
    for reference, got in zip(references, outputs, strict=True):
        floats = float_outputs(reference)
        own = metric if tolerance.uses_user_metric else None
        samples.append(sample_error(reference, got, own, kinds=tolerance.kinds, read_in=read_in))
    return Evaluation(tolerance, floats, tuple(samples))


def sample_error(
    reference: Outputs,
    outputs: Outputs | None,
    metric: OutputMetric | None = None,
    names: Collection[str] | None = None,
    kinds: Sequence[OutputKind] = (),
    read_in: Mapping[str, Format] | None = None,
) -> SampleError:
    """One sample's error, of all outputs that the reference has or of those in `names`, each read as its kind says;
    infinite without outputs."""
    inner = inner_names(kinds)
    own = [name for name in reference if name not in inner]
    if outputs is None:
        judged_too = [kind.output for kind in kinds if kind.output in inner and kind.output in reference]
        lost = {name: no_answer(reference[name]) for name in ((*own, *judged_too) if names is None else names)}
        return SampleError(lost, None if metric is None else math.inf)
    found = judged(kinds, reference, outputs)
    compared = {
        name: found[name] if name in found else compare(reference[name], outputs[name])
        for name in (own if names is None else names)
    }
    if names is None:
        compared |= {name: each for name, each in found.items() if name not in compared}
    changes = changes_expected(kinds, reference, outputs, read_in or {})
    if metric is None:
        return SampleError(compared, None, changes)
    sides = ({name: changed(side[name], np.copy) for name in own} for side in (reference, outputs))  # it may write
    return SampleError(compared, float(metric(*sides)), changes)


def _without(changes: Mapping[str, Changes], outputs: Mapping[str, Metrics]) -> dict[str, Metrics]:
    """The outputs as if no choice had changed."""
    return {name: structs.replace(each, exact=1.0) if name in changes else each for name, each in outputs.items()}


def float_outputs(outputs: Outputs) -> frozenset[str]:
    """The names of the outputs that hold real numbers."""
    return frozenset(name for name, output in outputs.items() if any(is_float(a.dtype) for a in tensors_in([output])))


def missing_output(reference: Outputs, outputs: Sequence[Outputs]) -> str | None:
    """The first output of the reference that some sample's outputs lack."""
    return next((name for got in outputs for name in reference if name not in got), None)
