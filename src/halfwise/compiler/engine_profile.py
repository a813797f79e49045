"""The numeric profile of one engine, read off its audit: which nodes share a kernel, and what its name says of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from halfwise.compiler.kernel_names import fused_attention, is_copy, steps, sums_narrow
from halfwise.core.notes import Note, NoteKind
from halfwise.core.wording import listed
from halfwise.emulation.profiles import ENGINE, EngineKernel, Profile, engine_profile, profile_named
from halfwise.model.families import PRODUCTS

if TYPE_CHECKING:
    from halfwise.compiler.audit import Audit
    from halfwise.compiler.compiled import Compiled
    from halfwise.compiler.layers_fields import Layer

__all__ = ["engine_view", "kernel_words", "kernels_of", "profile_of", "sums_note"]


def engine_view(profile: str, compiled: Compiled | None) -> tuple[Profile | None, tuple[Note, ...]]:
    """The profile of the engine that was compiled, where one was and its kernels are TensorRT's; and notes on it."""
    if not profile_named(profile).by_engine:
        return None, ()
    if compiled is None or compiled.audit is None:
        return None, (Note.of(NoteKind.NO_ENGINE),)
    audit = compiled.audit
    found = profile_of(audit, frozenset(node.name or "" for node in compiled.decision.formats))
    kernels = kernels_of(audit)
    if not kernels:
        return None, (Note.of(NoteKind.NO_KERNEL_TIED),)
    placed = {name for kernel in kernels for name in kernel.nodes}
    computing = [node.node for node in audit.nodes if node.compute]
    held = len(placed & set(computing))
    judges = Note.of(
        NoteKind.ENGINE_JUDGES, profile=ENGINE, compiler=compiled.compiler, held=held, computing=len(computing)
    )
    notes = [judges, sums_note(audit)]
    if back := [each.node for each in audit.violations if each.got == "fp16"]:
        notes.append(Note.of(NoteKind.ENGINE_REVERTS, profile=ENGINE, nodes=back))
    return found, tuple(notes)


def profile_of(audit: Audit, wide: frozenset[str] = frozenset()) -> Profile:
    """What the engine's kernels round; nodes that it runs in FP16 against the plan are FP16 there.

    `wide` are the nodes that were FP32 when it was compiled: their kernels say nothing of what they would be in FP16.
    """
    back = frozenset(each.node for each in audit.violations if each.got == "fp16")
    return engine_profile(kernels_of(audit, wide - back), back)


def kernel_words(compiled: Compiled | None) -> dict[str, str]:
    """The names of the kernels of each node that do not only move values, for people."""
    nodes = compiled.audit.nodes if compiled is not None and compiled.audit is not None else ()
    named = {node.node: [name for name in node.kernels if not is_copy(name)] for node in nodes}
    return {node: listed(kernels, quote=str) for node, kernels in named.items() if kernels}


def kernels_of(audit: Audit, without: frozenset[str] = frozenset()) -> tuple[EngineKernel, ...]:
    """The kernels that are tied to nodes. A region that is listed as one layer is no kernel, and says nothing."""
    nodes: dict[str, list[str]] = {}
    for node in (each for each in audit.nodes if each.node not in without):
        for kernel in dict.fromkeys(node.kernels):
            nodes.setdefault(kernel, []).append(node.node)
    return tuple(
        EngineKernel(
            layer.name,
            tuple(nodes[layer.name]),
            steps(layer.name),
            attention=fused_attention(layer.name) is not None,
            narrow_sums=bool(sums_narrow(layer.tactic)),
        )
        for layer in audit.layers
        if layer.name in nodes and not layer.is_region
    )


def sums_note(audit: Audit) -> Note:
    """Whether this engine holds tactics that accumulate in FP16, as far as its list tells."""
    layers: Mapping[str, Layer] = {layer.name: layer for layer in audit.layers}
    names = dict.fromkeys(name for node in audit.nodes if node.op in PRODUCTS for name in node.kernels)
    told = {name: sums_narrow(layers[name].tactic) for name in names if name in layers}
    narrow = [name for name, sums in told.items() if sums]
    named = sum(sums is not None for sums in told.values())
    if narrow:
        return Note.of(NoteKind.SUMS_IN_FP16, count=len(narrow), kernels=narrow)
    if named:
        return Note.of(NoteKind.SUMS_IN_FP32, matrix=len(told), named=named)
    return Note.of(NoteKind.SUMS_UNKNOWN)
