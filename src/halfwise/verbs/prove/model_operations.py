"""The operations of a user's own model, to be timed at its sizes: as FP16 and as FP32 throughout."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from halfwise.core.formats import Format
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.latency import kernels_of
from halfwise.emulation.open_sizes import sizes_that_run
from halfwise.emulation.profiles import STRICT
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.timing.operation import Operation
from halfwise.model.inputs.samples import load_samples
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.tensor_statistics import tensor_statistics

__all__ = ["operations_of"]


def operations_of(path: Path) -> Sequence[Operation]:
    """Of one run with generated inputs: times hang on sizes, not on values."""
    model = load(path)
    emulator = Emulator(STRICT)
    samples = load_samples(model.inputs, None, sizes=sizes_that_run(model, None, emulator))
    sites = Sites(model)
    shapes = tensor_statistics(Stepper(emulator), sites, widen_feeds(samples.search[0])).shapes
    decisions = (Assignment.all_narrow(sites), Assignment(sites, {}, Format.FP32))
    return tuple(kernel.operation for decision in decisions for kernel in kernels_of(decision, shapes))
