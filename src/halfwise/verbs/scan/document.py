"""The document of a scan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from halfwise.core.document import LEFT_OUT, Count, Document, Left, Number, Record, about
from halfwise.core.finding import Finding

__all__ = ["InitializerRecord", "RoundingRecord", "ScanDocument", "TotalsRecord", "WeightsRecord"]


class RoundingRecord(Record, frozen=True):
    """What rounding to FP16 does to values."""

    max_abs_change: Number
    max_rel_change: Number
    rel_l2_change: Number
    rel_l2_change_weak: Annotated[Number, about("By a weakly typed TensorRT, which keeps tiny values from 0.")]
    share_of_energy: Annotated[Number, about("Of the values that FP16 holds badly.")]


class TotalsRecord(Record, frozen=True):
    """All weights together."""

    initializers: Count
    count: Count
    subnormal: Count
    underflow: Count
    overflow: Count
    nonfinite: Count
    max_abs: Number
    min_abs: Number
    rounding: Annotated[RoundingRecord | Left, about("Of all weights together, with --rounding.")] = LEFT_OUT


class InitializerRecord(Record, frozen=True):
    """One weight."""

    name: str
    count: Count
    subnormal: Count
    underflow: Count
    overflow: Count
    nonfinite: Count
    max_abs: Number
    min_abs: Number
    dtype: Annotated[str | Left, about("Where it is not fp32.")] = LEFT_OUT
    rounding: Annotated[RoundingRecord | Left, about("What FP16 does to it, where it holds it badly.")] = LEFT_OUT


class WeightsRecord(Record, frozen=True):
    totals: TotalsRecord
    initializers: Sequence[InitializerRecord]


class ScanDocument(Document, frozen=True, tag="halfwise.scan/1"):
    """What `halfwise scan --json` prints: findings of a model that was not run."""

    weights: WeightsRecord
    findings: Sequence[Finding]
