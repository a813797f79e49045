"""Where the compiler does not build a typed model for its Attention operators: those whose steps it builds instead.

It has fused kernels for some shapes and types, and writes out no operator by itself. Nodes of one form are asked about
together: each build takes seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from halfwise.core.errors import InputError
from halfwise.core.fewest import fewest
from halfwise.core.formats import Format
from halfwise.precision.decision import Decision
from halfwise.precision.sites import Sites
from halfwise.repair import Ranges, repaired
from halfwise.repair.attention_steps import ATTENTION_STEPS, steps_of

if TYPE_CHECKING:
    from halfwise.compiler.audit import Audit

__all__ = ["unbuilt_attention"]

TIME_LIMIT_S = 120.0  # for all builds together

Group = tuple[ir.Node, ...]


def unbuilt_attention(decision: Decision, compiler: Callable[[Decision], Audit]) -> tuple[str, ...]:
    """Their names; none where they are not the reason."""
    model = decision.sites.model
    found = [name for repair in ATTENTION_STEPS.find(model, Ranges()) for name in repair.nodes]
    groups = dict[Any, Group]()
    for node in (model.node_by_name[name] for name in found):
        form = _form(node, decision)
        groups[form] = (*groups.get(form, ()), node)

    def builds(wanted: Sequence[Group]) -> bool:
        if not wanted:
            return False
        try:
            compiler(in_steps(decision, [node.name or "" for group in wanted for node in group]))
        except InputError:
            return False
        return True

    every = list(groups.values())
    if not builds(every):
        return ()
    until = time.monotonic() + TIME_LIMIT_S
    wanted = fewest(every, builds, lambda: time.monotonic() <= until) if len(every) > 1 else every
    names = {node.name for group in wanted for node in group}
    return tuple(name for name in found if name in names)


def in_steps(decision: Decision, names: Sequence[str]) -> Decision:
    """The same decision about the model with these nodes written out; what was in FP32 is so step by step."""
    model, _ = repaired(decision.sites.model, [(ATTENTION_STEPS, ATTENTION_STEPS.at(names))])
    by_name = model.node_by_name
    formats = {by_name[name]: fmt for name, fmt in decision.wanted.items() if name in by_name}
    wide = steps_of(model, [name for name in names if name in decision.wanted])
    return Decision(Sites(model), {**formats, **{by_name[name]: Format.FP32 for name in wide}}, decision.io_types)


def _form(node: ir.Node, decision: Decision) -> Any:
    attributes = sorted((name, str(attribute.value)) for name, attribute in node.attributes.items())
    given = tuple(None if value is None else (str(value.dtype), str(value.shape)) for value in node.inputs)
    return decision.formats.get(node), tuple(attributes), given
