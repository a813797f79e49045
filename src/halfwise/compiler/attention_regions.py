"""Finds the smallest FP32 region in attention that keeps a fused kernel out, proven by compiling before and after."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import field

from halfwise.compiler.layers_cost import EngineCost
from halfwise.core.document import Count, Record
from halfwise.core.notes import Note, NoteKind
from halfwise.model.model import Model

if TYPE_CHECKING:
    from halfwise.compiler.audit import Audit

__all__ = ["Fp32Region", "Group", "RegionRecord", "Trial", "find_fp32_region", "fused_groups", "groups_of"]


@dataclass(frozen=True)
class Group:
    """One attention: the product of queries and keys, what scales and masks it, softmax, the product with values."""

    product: str
    scores: tuple[str, ...]
    softmax: str
    weights: tuple[str, ...]  # between the softmax and the last product
    last: str

    @property
    def nodes(self) -> tuple[str, ...]:
        return (self.product, *self.scores, self.softmax, *self.weights, self.last)

    def candidates(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Regions from the cheapest on: no matrix product in FP32, then one, then both.

        A product alone is not among them: where it stands between casts, the compiler takes it back to FP16.
        """
        scored, last = (*self.scores, self.softmax), (*self.weights, self.last)
        yield "the softmax", (self.softmax,)
        if self.scores:
            yield "scale, mask and softmax", scored
        yield "the softmax and the product with the values", (self.softmax, *last)
        if self.scores:
            yield "the product of queries and keys, its scale and its mask", (self.product, *self.scores)
            yield "scale, mask, softmax and the product with the values", (*scored, *last)
        yield "everything from the product of queries and keys to the softmax", (self.product, *scored)
        yield "the whole attention", self.nodes


class Trial(Record, frozen=True):
    """One region that was compiled: how many attentions it was tried on, and how many it freed of the kernel."""

    title: str = field(name="island")
    tried: Count
    freed: Count


class RegionRecord(Record, frozen=True):
    """The FP32 nodes that keep a kernel out of attention, with the engine's cost before and after."""

    kernel: str
    region: str = field(name="island")
    nodes: Sequence[str]
    attentions: Count
    remaining: Sequence[str]
    trials: Sequence[Trial]
    before: EngineCost
    after: EngineCost


@dataclass(frozen=True)
class Fp32Region:
    """The proof. `nodes` in FP32 keep `kernel` out of every attention but the `remaining` ones."""

    kernel: str
    title: str
    nodes: tuple[str, ...]
    attentions: int
    remaining: tuple[str, ...]  # the softmax of each attention that no region freed
    trials: tuple[Trial, ...]
    before: EngineCost
    audit: Audit

    def notes(self) -> Iterator[Note]:
        """What was found, and what was tried first."""
        if not self.nodes:
            yield Note.of(NoteKind.REGION_NOT_FOUND, self.kernel, attentions=self.attentions)
            return
        before, after = self.before, self.audit.cost
        yield Note.of(
            NoteKind.REGION_FOUND,
            self.kernel,
            region=self.title,
            freed=self.attentions - len(self.remaining),
            attentions=self.attentions,
            compiler=self.audit.source,
            kernels=[before.kernels, after.kernels],
            bytes=[before.bytes_moved, after.bytes_moved],
            casts=[before.casts, after.casts],
        )
        if swallowed := [trial.title for trial in self.trials if not trial.freed]:
            yield Note.of(NoteKind.REGION_TRIED, self.kernel, regions=swallowed)

    def document(self) -> RegionRecord:
        return RegionRecord(
            kernel=self.kernel,
            region=self.title,
            nodes=self.nodes,
            attentions=self.attentions,
            remaining=self.remaining,
            trials=self.trials,
            before=self.before,
            after=self.audit.cost,
        )


def groups_of(model: Model) -> tuple[Group, ...]:
    """Every attention of a model, in execution order."""
    from halfwise.model.patterns.attention import find_attentions
    from halfwise.model.patterns.view import View

    view = View(model)
    makers = {value.name: node.name or "" for node in model.nodes for value in node.outputs}
    found = []
    for pattern in find_attentions(view):
        product, last = makers[pattern.details["scores"]], makers[pattern.details["output"]]
        names, softmax = pattern.nodes, pattern.anchor
        first, middle, end = names.index(product), names.index(softmax), names.index(last)
        found.append(Group(product, names[first + 1 : middle], softmax, names[middle + 1 : end], last))
    return tuple(found)


def fused_groups(model: Model, audit: Audit) -> tuple[Group, ...]:
    """The attentions that the engine computes in a fused kernel."""
    fused = {node.node for node in audit.nodes if node.attention}
    return tuple(group for group in groups_of(model) if fused.intersection(group.nodes))


def find_fp32_region(
    groups: Sequence[Group], suspects: Sequence[str], before: Audit, compile_with: Callable[[frozenset[str]], Audit]
) -> Fp32Region | None:
    """Try regions on all `groups` at once, from the cheapest on; each attention takes the first that frees it.

    `suspects` are parts of kernel names; `compile_with` compiles with these nodes in FP32, too, and audits the engine.
    The last engine compiled is the proof: it holds every region found. None where no attention is in such a kernel.
    """
    kernels = [kernel for kernel in before.attention_kernels if any(part in kernel for part in suspects)]
    waiting = [group for group in groups if _is_fused(group, before, kernels)]
    if not waiting:
        return None
    kept: set[str] = set()
    trials: list[Trial] = []
    titles: dict[str, None] = {}
    proof = before
    for title, chosen in _rounds(waiting):
        nodes = {group: chosen[group] for group in waiting if group in chosen}
        if not nodes:
            continue
        audit = compile_with(frozenset(kept.union(*nodes.values())))
        freed = [group for group in nodes if not _is_fused(group, audit, kernels)]
        trials.append(Trial(title, len(nodes), len(freed)))
        if freed:
            titles[title] = None
            kept.update(name for group in freed for name in nodes[group])
            waiting = [group for group in waiting if group not in freed]
            proof = audit
        if not waiting:
            break
    if kept and trials[-1].freed != trials[-1].tried:  # the last engine held regions that freed nothing
        proof = compile_with(frozenset(kept))
    return Fp32Region(
        kernel=", ".join(kernels),
        title="; ".join(titles),
        nodes=tuple(name for group in groups for name in group.nodes if name in kept),
        attentions=sum(_is_fused(group, before, kernels) for group in groups),
        remaining=tuple(group.softmax for group in waiting),
        trials=tuple(trials),
        before=before.cost,
        audit=proof,
    )


def _rounds(groups: Sequence[Group]) -> Iterator[tuple[str, dict[Group, tuple[str, ...]]]]:
    """The candidates by title, for every group that has one of that title."""
    listed = {group: dict(group.candidates()) for group in groups}
    fullest = max(listed.values(), key=len)
    for title in fullest:
        yield title, {group: names[title] for group, names in listed.items() if title in names}


def _is_fused(group: Group, audit: Audit, kernels: Sequence[str]) -> bool:
    names = set(group.nodes)
    return any(node.node in names and node.attention in kernels for node in audit.nodes)
