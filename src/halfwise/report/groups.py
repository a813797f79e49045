"""Nodes that say one thing, told as one: by what they are part of (a pattern, else a module) and by their reason."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from halfwise.core.formats import Format
from halfwise.core.reasons import Reason
from halfwise.model.model import Model
from halfwise.model.patterns import KINDS
from halfwise.model.patterns.things import things
from halfwise.precision.plan import PlannedNode
from halfwise.report.story import tell
from halfwise.verbs.fix.result import FixResult

__all__ = ["Group", "Grouping", "kept_nodes", "reason", "worst_first"]

_LIKE_PATTERNS = frozenset({"Softmax", "LogSoftmax", "Attention", "MultiHeadAttention"})


@dataclass(frozen=True)
class Group:
    """Nodes of one kind, the worst first. `title` is the node's name where there is but one."""

    title: str
    nodes: tuple[PlannedNode, ...]

    @property
    def worst(self) -> PlannedNode:
        return self.nodes[0]

    @property
    def operators(self) -> str:
        """ "Pow, ReduceMean x2", the commonest first."""
        counts = Counter(node.op for node in self.nodes).most_common()
        return ", ".join(op if count == 1 else f"{op} x{count:,}" for op, count in counts)


class Grouping:
    """Knows what each node of a model is part of."""

    def __init__(self, model: Model, names: Sequence[str]) -> None:
        """`names` are those of all nodes, to tell a module from what the whole model is called."""
        self._part = things(model)  # the pattern's number and its kind
        self._root = _common([_scope(name).split("/") for name in names if "/" in name])

    def groups(self, nodes: Sequence[PlannedNode]) -> tuple[Group, ...]:
        """In the order of the first of each; so sort the worst first before."""
        scopes = {_scope(node.name) for node in nodes if not self._thing(node)}
        found: dict[tuple[str, ...], list[PlannedNode]] = {}
        for node in nodes:
            found.setdefault((*self._key(node, scopes), str(node.why), node.format.value), []).append(node)
        return tuple(Group(self._title(key, each), tuple(each)) for key, each in found.items())

    def _thing(self, node: PlannedNode) -> str:
        """The pattern that the node is part of, or the operator that is one; empty where it is neither."""
        if (pattern := self._part.get(node.name)) is not None:
            return KINDS[pattern[1]]
        return node.op if node.op.endswith("Normalization") or node.op in _LIKE_PATTERNS else ""

    def _key(self, node: PlannedNode, scopes: set[str]) -> tuple[str, str]:
        if thing := self._thing(node):
            return "thing", thing
        module = self._module(_scope(node.name), scopes)
        return ("module", re.sub(r"\d+", "*", module)) if module else ("operator", node.op)

    def _module(self, scope: str, scopes: set[str]) -> str:
        """The outermost module that itself holds one of the nodes; the whole model is none."""
        parts = scope.split("/")
        for end in range(1, len(parts)):
            outer = "/".join(parts[:end])
            if outer in scopes and self._within(outer):
                return outer
        return scope if self._within(scope) else ""

    def _within(self, scope: str) -> bool:
        return scope.split("/") != self._root[: scope.count("/") + 1]

    def _title(self, key: tuple[str, ...], nodes: Sequence[PlannedNode]) -> str:
        if len(nodes) == 1:
            return nodes[0].name
        kind, name = key[:2]
        if kind != "thing":
            return name
        places = {self._part.get(node.name, node.name) for node in nodes}
        return f"{name} ({len(places):,})" if len(places) > 1 else name


def kept_nodes(result: FixResult) -> list[PlannedNode]:
    """What the plan keeps out of FP16, the worst first."""
    return worst_first([node for node in result.plan.nodes if node.format is not Format.FP16], result.shares)


def reason(result: FixResult, node: PlannedNode) -> str:
    """What the page says of it."""
    known = result.model.node_by_name.get(node.name)
    known = known or next((site.node for site in result.sites.all if site.name == node.name), None)
    return tell(node, known, result.measured.ranges).words


def worst_first(nodes: Sequence[PlannedNode], shares: Mapping[str, float]) -> list[PlannedNode]:
    """Overflows first, where an infinity begins before those that are handed it; then by what each does alone."""

    def key(node: PlannedNode) -> tuple[bool, bool, float, float]:
        numbers = node.numbers
        handed = node.why is Reason.OVERFLOW and numbers.get("input_max_abs", 0.0) > Format.FP16.max
        return node.why is not Reason.OVERFLOW, handed, -numbers.get("error_without", 0.0), -shares.get(node.name, 0.0)

    return sorted(nodes, key=key)


def _common(paths: Sequence[list[str]]) -> list[str]:
    """The parts that all paths begin with."""
    first, last = min(paths, default=[]), max(paths, default=[])
    same = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:same]


def _scope(name: str) -> str:
    return name.rpartition("/")[0]
