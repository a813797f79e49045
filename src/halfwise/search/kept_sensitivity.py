"""What walks over some samples of a large model saw, in a journal: an interrupted search goes on with the next."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from halfwise.precision.sites import Sites
from halfwise.search.effects import Sensitivity
from halfwise.search.journal_entries import SensitivityEntry
from halfwise.search.sets import Sets

__all__ = ["keep_sensitivity", "kept_sensitivity"]


def keep_sensitivity(sets: Sets, seen: Sensitivity, so_far: Sequence[int], runs: float) -> None:
    """Of these samples, walked in this way. What lies in subgraphs is not kept."""
    if not sets.judge.emulator.streams(sets.sites.model) or seen.parts:
        return
    numbers = {value: str(number) for number, value in enumerate(_values(sets.sites))}

    def told(energies: dict[ir.Value, float]) -> dict[str, float]:
        return {numbers[value]: energy for value, energy in energies.items()}

    entry = SensitivityEntry(
        {node.name or "": told(effects) for node, effects in seen.reads.items()},
        told(seen.handed_out),
        {node.name or "": energy for node, energy in seen.weights.items()},
        tuple((node.name or "", numbers[value]) for node, value in seen.breaks),
        tuple(numbers[value] for value in seen.overflows),
        {numbers[value]: size for value, size in seen.size.items()},
        seen.samples,
        runs,
        sets.counter.samples,
    )
    sets.journal.put(_key(sets, so_far), entry.to_json())


def kept_sensitivity(sets: Sets, so_far: Sequence[int]) -> Sensitivity | None:
    """What was kept of them; its runs count."""
    key, values = _key(sets, so_far), {str(number): value for number, value in enumerate(_values(sets.sites))}
    nodes = sets.sites.model.node_by_name
    entry = sets.journal.get(key, SensitivityEntry, lambda entry: entry.of(nodes, values))
    if entry is None:
        return None
    sets.counter.remember(*sets.journal.runs(key))

    def read(energies: dict[str, float]) -> dict[ir.Value, float]:
        return {values[number]: float(energy) for number, energy in energies.items()}

    return Sensitivity(
        {nodes[name]: read(dict(effects)) for name, effects in entry.reads.items()},
        read(dict(entry.handed_out)),
        {nodes[name]: float(energy) for name, energy in entry.weights.items()},
        {(nodes[name], values[number]) for name, number in entry.breaks},
        {values[number] for number in entry.overflows},
        {values[number]: size for number, size in entry.size.items()},
        [],
        entry.samples,
    )


def _key(sets: Sets, so_far: Sequence[int]) -> str:
    return sets.key("roundings", *so_far)


def _values(sites: Sites) -> list[ir.Value]:
    """Those of branches, too, which are stepped into."""
    model = sites.model
    made = (value for node in model.nodes for value in node.outputs)
    return list(dict.fromkeys((*model.graph.inputs, *model.initializers(), *made)))
