"""The operations of a user's own model at its sizes: kernels to be timed, as FP16 and as FP32, and nodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from halfwise.core.formats import Format
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.latency import kernels_of
from halfwise.emulation.open_sizes import sizes_that_run
from halfwise.emulation.profiles import STRICT
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.timing.of_node import Shapes, operation_of
from halfwise.emulation.timing.operation import Operation
from halfwise.model.inputs.samples import load_samples
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.tensor_statistics import tensor_statistics

__all__ = ["nodes_of", "operations_of"]


def operations_of(path: Path) -> Sequence[Operation]:
    """The kernels of one run with generated inputs: times hang on sizes, not on values."""
    sites, shapes = _seen(path)
    decisions = (Assignment.all_narrow(sites), Assignment(sites, {}, Format.FP32))
    return tuple(kernel.operation for decision in decisions for kernel in kernels_of(decision, shapes))


def nodes_of(path: Path) -> Sequence[Operation]:
    """The nodes that may run in FP16, each by itself."""
    sites, shapes = _seen(path)
    return tuple(operation_of(site.node, shapes) for site in sites.free)


def _seen(path: Path) -> tuple[Sites, Shapes]:
    model = load(path)
    emulator = Emulator(STRICT)
    samples = load_samples(model.inputs, None, sizes=sizes_that_run(model, None, emulator))
    sites = Sites(model)
    shapes = tensor_statistics(Stepper(emulator), sites, widen_feeds(samples.search[0])).shapes
    return sites, shapes
