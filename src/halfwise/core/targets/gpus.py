"""NVIDIA GPUs by name: their compute capability."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches

from halfwise.core.errors import InputError

__all__ = ["KNOWN_GPUS", "LEAST_CAPABILITY", "Gpu"]

LEAST_CAPABILITY = {"bf16": (8, 0)}  # from which a format is there; one that is not named is there on all

_BY_CAPABILITY = {
    (5, 3): "nano",
    (6, 0): "p100",
    (6, 1): "p4 p40 gtx10",
    (6, 2): "tx2",
    (7, 0): "v100 titanv",
    (7, 2): "xavier",
    (7, 5): "t4 gtx16 rtx20",
    (8, 0): "a100 a30",
    (8, 6): "a10 a16 a2 a40 rtxa2000 rtxa4000 rtxa5000 rtxa6000 rtx30",
    (8, 7): "orin",
    (8, 9): "l4 l20 l40 l40s rtx6000ada rtx40",
    (9, 0): "h100 h200 h20 h800 gh200",
    (10, 0): "b100 b200 gb200",
    (10, 3): "b300 gb300",
    (11, 0): "thor",
    (12, 0): "rtxpro6000 rtx50",
    (12, 1): "gb10",
}
KNOWN_GPUS = {name: capability for capability, names in _BY_CAPABILITY.items() for name in names.split()}

_JETSON = frozenset({"nano", "tx2", "xavier", "orin", "thor"})
_NOISE = re.compile(r"nvidia|geforce|tesla|jetson|[\s_-]")
_SM = re.compile(r"sm_?(\d{1,2})(\d)")
# A card of a consumer series has the capability of its series, e.g. rtx3090ti that of rtx30.
_CARD = re.compile(r"(gtx1[06]|rtx[2-5]0)(?:\d0)(?:ti|super|tisuper|d)?")


@dataclass(frozen=True)
class Gpu:
    """A GPU (or a family of them): its name in targets and its compute capability."""

    name: str
    capability: tuple[int, int]

    @classmethod
    def parse(cls, text: str) -> Gpu:
        """A name ("t4", "RTX 4090", "rtx40") or a compute capability ("sm_86")."""
        lowered = text.strip().lower()
        bare = _SM.fullmatch(lowered)
        if bare and (int(bare[1]), int(bare[2])) in _BY_CAPABILITY:
            major, minor = int(bare[1]), int(bare[2])
            return cls(f"sm_{major}{minor}", (major, minor))
        name = _NOISE.sub("", lowered)
        card = _CARD.fullmatch(name)
        capability = KNOWN_GPUS.get(name) or (KNOWN_GPUS[card[1]] if card else None)
        if capability is None:
            near = get_close_matches(name, KNOWN_GPUS, n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise InputError(f"unknown GPU '{text}': write one of {' '.join(sorted(KNOWN_GPUS))}, or sm_86{hint}")
        return cls(name, capability)

    @property
    def sm(self) -> int:
        return self.capability[0] * 10 + self.capability[1]

    @property
    def is_jetson(self) -> bool:
        return self.name in _JETSON or self.sm in (53, 62, 72, 87, 110)

    def __str__(self) -> str:
        return self.name

    def describe(self) -> str:
        return f"{self.name} (compute capability {self.capability[0]}.{self.capability[1]})"
