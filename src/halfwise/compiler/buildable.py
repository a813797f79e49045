"""Where the compiler refuses a typed model or crashes on it, and would build it in FP32: the FP32 nodes that it takes.

It fuses nodes by patterns, some of which it then has no kernel for in the types that meet there. Where it names what
it refuses, those nodes are enough, or others are named in turn. Else, as each build takes seconds, a few of all nodes
in order are sought by halves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from halfwise.core.errors import InputError
from halfwise.core.fewest import fewest
from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.precision.decision import Adjustment, Decision
from halfwise.precision.plan import PlannedNode

if TYPE_CHECKING:
    from halfwise.compiler.audit import Audit

__all__ = ["buildable", "refused_nodes"]

TIME_LIMIT_S = 120.0  # for all builds together


def refused_nodes(error: Exception) -> frozenset[str]:
    """The names of the nodes that a compiler says it refuses."""
    from halfwise.compiler.build import BuildError

    refusals = error.refusals if isinstance(error, BuildError) else ()
    return frozenset(refusal.node for refusal in refusals if refusal.node)


def buildable(
    decision: Decision,
    compiler: Callable[[Decision], Audit],
    said: str,
    forced: Collection[str],
    named: Collection[str] = (),
) -> tuple[Adjustment, Audit] | None:
    """The decision with as many FP32 nodes more as it takes, and what was built; None where that is no help.

    `named`: the nodes that the compiler refused.
    """
    sites = decision.sites
    may = [
        site.node
        for site in sites.free
        if site.node not in decision.formats and site.node not in sites.forced and site.name not in forced
    ]
    until = time.monotonic() + TIME_LIMIT_S
    built: dict[frozenset[ir.Node], Audit | None] = {frozenset(): None}
    refused = {frozenset[ir.Node](): frozenset(named)}

    def builds(nodes: Sequence[ir.Node]) -> bool:
        if (key := frozenset(nodes)) not in built:
            try:
                built[key] = compiler(decision.with_fp32(nodes))
            except InputError as error:  # of the compiler, or of what it listed
                built[key], refused[key] = None, refused_nodes(error)
        return built[key] is not None

    wanted: list[ir.Node] = []
    while more := [n for n in may if n.name in refused.get(frozenset(wanted), ()) and n not in wanted]:
        wanted += more
        if builds(wanted) or time.monotonic() > until:
            break
    if not builds(wanted):
        if not builds(may):
            return None
        wanted = fewest(may, builds, lambda: time.monotonic() <= until)
    audit = built[frozenset(wanted)]
    assert audit is not None
    added = [
        PlannedNode(
            n.name or "", n.op_type, Format.FP32, Reason.COMPILER, (Note.of(NoteKind.KEEPS_BUILDABLE, n.op_type),)
        )
        for n in wanted
    ]
    names = [node.name for node in wanted]
    told = Note.of(NoteKind.BUILT_WITH_MORE, error=said, nodes=names)
    return Adjustment(decision).to(decision.with_fp32(wanted), added, told), audit
