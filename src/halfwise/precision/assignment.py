"""From a format per node to a format per tensor: what each tensor is stored in, what each slot reads."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from halfwise.core.formats import FORMATS, Format
from halfwise.model.ops import takes_any_format
from halfwise.precision.sites import Site, Sites

__all__ = ["Assignment"]


class Assignment:
    """A decision spelled out for every tensor.

    A node in a narrow format stores its convertible outputs in it and reads its convertible inputs in it;
    everything else stays as the model has it. An edge between two FP32 nodes therefore never narrows, and a tensor
    that an FP32 node hands to a narrow one is rounded on that edge only.

    `io` is the format in which the model's inputs and outputs are handed over where the file has them in FP32; those
    that are narrow in the file stay so. None: all in FP32, as the reference takes and gives them.
    """

    def __init__(
        self,
        sites: Sites,
        formats: Mapping[ir.Node, Format],
        io: Format | None = None,
    ) -> None:
        self.sites = sites
        self._native = sites.native
        self.formats = formats
        self.io = io
        self._own = sites.model.interface if io is not None else {}
        self._others = Format.FP32 if io is None else io  # inputs and outputs that are FP32 in the file
        narrow = bool(self._own) or self._others is not Format.FP32
        self._inputs = set(sites.model.graph.inputs) if narrow else set()

    @classmethod
    def all_narrow(cls, sites: Sites, keep: frozenset[ir.Node] = frozenset(), io: Format = Format.FP32) -> Assignment:
        """Every free node in the narrow format of `sites`, but for those in `keep` that the user did not force."""
        wide = keep - sites.forced
        return cls(sites, {s.node: sites.fmt for s in sites.free if s.node not in wide}, io)

    @classmethod
    def excepting(cls, sites: Sites, formats: Mapping[ir.Node, Format], io: Format = Format.FP32) -> Assignment:
        """Every free node in the narrow format of `sites`, but for those with a format of their own."""
        chosen = {site.node: formats.get(site.node, sites.fmt) for site in sites.free}
        return cls(sites, {node: fmt for node, fmt in chosen.items() if fmt is not Format.FP32}, io)

    @property
    def code(self) -> bytes:
        """The formats of all nodes of these sites, a byte a node: as a key, for many decisions about many nodes."""
        numbers = {fmt: number for number, fmt in enumerate(FORMATS.values())}
        return bytes(numbers[self.of(site.node)] for site in self.sites.all)

    def of(self, node: ir.Node) -> Format:
        return self.formats.get(node, Format.FP32)

    def stored(self, value: ir.Value) -> Format | None:
        """The format a tensor is kept in; None where it is no float tensor. Initializers speak for themselves."""
        native = self._native[value]
        if native is not Format.FP32:
            return native
        node = value.producer()
        if node is None:
            holder = self.sites.entering.get(value)
            if holder is not None:
                return self._border(holder)
            return self.handed_over(value) if value in self._inputs else native
        fmt, site = self._narrowed(node)
        index = value.index()
        return fmt if site is not None and index is not None and site.outputs[index] else native

    def read(self, node: ir.Node, slot: int) -> Format | None:
        """The format in which a node takes one input; None where that is no float tensor."""
        value = node.inputs[slot]
        if value is None:
            return None
        if takes_any_format(node.op_type, node.domain, slot):
            return self.stored(value)
        native = self._native[value]
        if native is not Format.FP32:
            return native
        fmt, site = self._narrowed(node)
        return fmt if site is not None and site.inputs[slot] else native

    def outward(self, value: ir.Value, graph: ir.Graph) -> Format | None:
        """The format a graph hands an output out in: the model's own, or the one asked for at the main graph."""
        native = self._native[value]
        if native is not Format.FP32:
            return native
        if graph is self.sites.model.graph:
            return self.handed_over(value)
        holder = self.sites.holder.get(graph)
        return native if holder is None else self._border(holder)

    def handed_over(self, value: ir.Value) -> Format:
        """The format in which an FP32 input or output of the model is handed over."""
        return self._own.get(value.name or "", self._others)

    def _border(self, holder: ir.Node) -> Format:
        """The format of FP32 tensors that enter or leave the bodies of a node: one for all."""
        fmt, site = self._narrowed(holder)
        return Format.FP32 if site is None or not site.free else fmt

    def _narrowed(self, node: ir.Node) -> tuple[Format, Site | None]:
        """A node's format, and as what site it narrows; None where it stays in FP32."""
        fmt = self.formats.get(node, Format.FP32)
        if fmt is Format.FP32:
            return fmt, None
        return fmt, self.sites.of[node] if fmt is self.sites.fmt else self.sites.site(node, fmt)
