"""Where a node of the model as given stands in the model as fixed: itself, or what a repair put in its place."""

from __future__ import annotations

from collections import deque

import onnx_ir as ir

from halfwise.verbs.fix.result import FixResult

__all__ = ["Places"]

_FAR = 60  # nodes to look at behind one that is gone


class Places:
    """Looks up nodes by name; the graph of the page is that of the fixed model."""

    def __init__(self, result: FixResult) -> None:
        self._fixed = {site.name: site for site in result.sites.all}
        self._makers = {v.name: site.index for site in result.sites.all for v in site.node.outputs if v.name}
        self._given = result.model.node_by_name
        self.repaired = frozenset(
            site.name
            for site in result.sites.all
            if result.plan.repairs and (site.name not in self._given or site.name in _changed(result))
        )

    def given(self, name: str) -> ir.Node | None:
        """The node in the model as given, else in the fixed one."""
        if name in self._given:
            return self._given[name]
        return self._fixed[name].node if name in self._fixed else None

    def index(self, name: str) -> int | None:
        """The node's place in the fixed model; of one that is gone, the place of what now makes its result."""
        if name in self._fixed:
            return self._fixed[name].index
        if name not in self._given:
            return None
        waiting = deque([self._given[name]])
        seen: set[ir.Node] = set()
        while waiting and len(seen) < _FAR:
            node = waiting.popleft()
            if node in seen:
                continue
            seen.add(node)
            for value in node.outputs:
                if value.name in self._makers:
                    return self._makers[value.name]
                waiting.extend(use.node for use in value.uses())
        return None


def _changed(result: FixResult) -> frozenset[str]:
    return frozenset(name for repair in result.plan.repairs for name in repair.nodes)
