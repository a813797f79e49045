"""Measured times as a document: what `prove --time` puts into a machine's file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta

from halfwise.core.document import Count, Number, Record, about
from halfwise.emulation.timing.operation import Operation

__all__ = ["Precision", "TimeRecord", "TimesRecord"]

Precision = Literal["fp16", "fp32", "tf32"]
Microseconds = Annotated[float, Meta(ge=1e-4, le=1e9)]


class TimeRecord(Record, frozen=True):
    """One operator at one size in one format."""

    operation: Operation
    format: Annotated[
        Precision,
        about("Of its floating-point tensors; of a Cast, of what it makes. tf32: FP32 whose products may use TF32."),
    ]
    microseconds: Annotated[Microseconds, about("Median of several rounds, one of many kernels of one CUDA graph.")]
    spread: Annotated[Number, about("Of the rounds: slowest over fastest, less one.")] = 0.0
    cold_us: Annotated[
        float, Meta(ge=0, le=1e9), about("With its weights outside the GPU's cache; 0 where that was not timed.")
    ] = 0.0


class TimesRecord(Record, frozen=True):
    """What was timed, and how."""

    clock: Annotated[str, about("What measured: CUDA events around CUDA graphs, or the host's clock.")]
    graph_us: Annotated[Number, about("What starting a graph takes the host, at least.")]
    rows: Sequence[TimeRecord]
    refused: Annotated[Sequence[str], about("Operators that the backend did not run on the device.")] = ()
    seconds: Number = 0.0
    cache_bytes: Annotated[Count, about("The GPU's level-2 cache; 0 where it is not known.")] = 0
