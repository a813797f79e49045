"""What comes with this package of a machine: the kernels that `halfwise prove` saw there, in the file that it wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import onnx_ir as ir

from halfwise.emulation.profiles.fusion import Fusion
from halfwise.emulation.profiles.learned import learned_profile
from halfwise.emulation.profiles.machine import MachineDocument, read_machine
from halfwise.emulation.profiles.profile import Kernel, Profile
from halfwise.precision.sites import Sites

__all__ = ["ShippedFusions", "ShippedKernels", "is_loose", "shipped_machine"]

_FILE = Path(__file__).with_name("ort_cuda_h100.json")


@cache
def shipped_machine() -> MachineDocument:
    return read_machine(_FILE)


@cache
def _learned() -> Profile:
    return learned_profile(_FILE.name, shipped_machine())


class ShippedKernels(Mapping[str, Kernel]):
    """The kernels, read from the file when the first is asked for."""

    def __getitem__(self, op: str) -> Kernel:
        return _learned().kernels[op]

    def __iter__(self) -> Iterator[str]:
        return iter(_learned().kernels)

    def __len__(self) -> int:
        return len(_learned().kernels)


@dataclass(frozen=True)
class ShippedFusions:
    """The rule of fusion, read likewise."""

    def fusions(self, sites: Sites) -> Iterator[Fusion]:
        rule = _learned().fusion
        assert not isinstance(rule, str)
        return rule.fusions(sites)


def is_loose(node: ir.Node) -> bool:
    return _learned().loose(node)
