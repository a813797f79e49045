"""The evidence that an engine's layers and its log give of each ONNX node: its type, how sure that is, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from halfwise.compiler.buildlog.layer_text import PARSER_LAYERS, fused_parts, is_cut, region_ends
from halfwise.compiler.kernel_evidence import MIXED, UNKNOWN, Coverage, floats, in_kernel, of_product
from halfwise.compiler.kernel_names import cast_count, fused_attention, is_bookkeeping, is_copy, may_hold, shows
from halfwise.compiler.layer_owners import LayerOwners
from halfwise.compiler.layers_cost import is_reformat
from halfwise.compiler.layers_fields import FLOATS, NARROW, QUANTISED, EngineLayers, Layer
from halfwise.core.notes import Note, NoteKind
from halfwise.model.families import PRODUCTS, RECURRENT

if TYPE_CHECKING:
    from halfwise.compiler.buildlog.report import LogReport

__all__ = ["UNKNOWN", "Coverage", "Evidence", "NodeAudit", "NodeInfo", "nodes_from_log"]

# Layers that TensorRT adds of itself, so that their names are no nodes; and those that only move what a node moves.
_ADDED_TYPES = frozenset({"ShapeHostToDevice", "ShapeDeviceToHost", "TrainStation", "Reformat"})
_MOVING_TYPES = frozenset({"Shuffle", "Slice", "Concatenation", "Padding", "Shape", "NoOp", "Constant", "reshape"})
_UNNAMED = frozenset({"Elu"})  # operators whose kernels name the nodes beside them, but not them


@dataclass(frozen=True)
class NodeInfo:
    """An ONNX node of the model that was built. `declared` is its output's type ("fp32") where that is known.

    `weight`: the size of an FP32 constant that a product multiplies by; 0 where it has none.
    """

    name: str
    op: str
    outputs: tuple[str, ...] = ()
    compute: bool = True
    declared: str | None = None
    weight: int = 0


@dataclass(frozen=True)
class NodeAudit:
    """What is known of one node. `notes` tell what is knowable, and what is not."""

    node: str
    op: str
    compute: bool
    precision: str  # "fp32", "fp16", "bf16", "int64", ..., "mixed" or "unknown"
    coverage: Coverage
    kernels: tuple[str, ...]
    notes: tuple[Note, ...]
    attention: str | None = None  # the fused attention kernel it is in


def nodes_from_log(log: LogReport) -> tuple[NodeInfo, ...]:
    """The model's nodes as the parser announced them in a verbose log."""
    from halfwise.model.moving import MOVES
    from halfwise.model.ops import CONTROL_FLOW

    movers = MOVES | CONTROL_FLOW | {"Constant", "Range", "NonZero"}
    registered = set(log.structure.registered.values())  # a call of a local function is announced, but has no layers
    return tuple(
        NodeInfo(
            name,
            node.op,
            tuple(output for output, _ in node.outputs),
            node.op not in movers and name in registered and any(dtype in FLOATS for _, dtype in node.outputs),
            next((dtype for _, dtype in node.outputs), None),
        )
        for name, node in log.structure.nodes.items()
    )


class Evidence:
    """Holds the evidence of one engine and judges node by node."""

    def __init__(self, engine: EngineLayers, log: LogReport | None, nodes: Sequence[NodeInfo] | None) -> None:
        self._engine = engine
        self._log = log
        structure = log.structure if log else None
        declared = {info.name: info for info in nodes_from_log(log)} if log else {}
        self._members = dict(structure.foreign) if structure else {}
        # Of nodes that the layers name themselves neither the order nor the whole is known.
        self.knows_model = nodes is not None or bool(declared)
        self._owners = LayerOwners(
            engine.layers, structure.registered if structure else {}, None if nodes is None else [n.name for n in nodes]
        )
        if nodes is None:
            nodes = tuple(declared.values()) or self._nodes_from_layers(engine.layers)
        self.infos = tuple(nodes)
        self._order = {info.name: place for place, info in enumerate(self.infos)}
        self._strong = engine.schema in ("rtx", "11") or bool(log and log.strongly_typed)
        self._working = [layer for layer in engine.layers if not is_bookkeeping(layer.type, layer.name)]
        self._types = {fmt for layer in self._working for fmt in _types_of(layer)}
        # An engine with FP16 in it was not built from a model without: the types of such a model say nothing of it.
        stated = {info.declared for info in self.infos}
        self.foreign_types = self._strong and bool(self._types & NARROW) and not stated & (NARROW | {None})
        self._declared = {
            info.name: (None if self.foreign_types else info.declared)
            or (declared[info.name].declared if info.name in declared else None)
            for info in self.infos
        }
        self._regions = [layer for layer in self._working if layer.is_region]
        self._kernels: dict[str, dict[Layer, None]] = {}
        for layer in self._working:
            if not layer.is_region and not is_reformat(layer):
                for name in self._owners.of_layer(layer):
                    self._kernels.setdefault(name, {})[layer] = None
        compute = [info.name for info in self.infos if info.compute]
        # Compilers fold some nodes away, not most: then the list is cut off, or of one layer, or of another engine.
        placed = sum(name in self._kernels or self.region_of(name) is not None for name in compute)
        self._partial = self.knows_model and 2 * placed < len(compute)
        self._nameless = [layer for layer in self._working if self._is_nameless(layer)]
        self._fp16_norms = self._warned_norms()
        allowed_fp32 = log is not None and log.precision == "FP32"
        self.only_fp32 = allowed_fp32 and not self._strong and not self._types & NARROW

    def _is_nameless(self, layer: Layer) -> bool:
        """Computes with real values, and does not say for which node."""
        added = is_reformat(layer) or layer.type in _ADDED_TYPES | _MOVING_TYPES | {"Cast"}
        named = layer.onnx_nodes and not is_cut(layer.metadata or "")
        if added or layer.is_region or named or layer.name.startswith(PARSER_LAYERS):
            return False
        return not is_copy(layer.name) and bool(_types_of(layer))

    def _nodes_from_layers(self, layers: Iterable[Layer]) -> tuple[NodeInfo, ...]:
        """The nodes that the layers name, a region by its two ends. One that only moves data computes nothing."""
        found: dict[str, bool] = {}
        for layer in layers:
            if layer.type in _ADDED_TYPES or is_reformat(layer):
                continue
            computes = layer.type not in _MOVING_TYPES and _may_be_float(layer)
            names = self._members.get(layer.name) or self._owners.of_layer(layer)
            names = names or (self._ends_of(layer) if layer.is_region else ())
            for name in names:
                found[name] = found.get(name, False) or computes
        return tuple(NodeInfo(name, "", compute=compute) for name, compute in found.items())

    def _ends_of(self, region: Layer) -> tuple[str, ...]:
        """The nodes at the two ends of a region's name; one of them may be a weight, which only a model tells."""
        return tuple(map(self._owners.of_name, region_ends(region.name)))

    def _warned_norms(self) -> set[str]:
        findings = self._log.findings if self._log else ()
        return {
            self._owners.of_name(layer)
            for finding in findings
            if finding.rule == "HW711"
            for layer in finding.numbers["layers"]
        }

    def notes(self) -> Iterator[Note]:
        if self._regions:
            yield Note.of(NoteKind.REGIONS_OPAQUE, count=len(self._regions))
        if self._engine.schema == "names-only":
            yield Note.of(NoteKind.NAMES_ONLY)
        if self.foreign_types:
            yield Note.of(NoteKind.OTHER_MODEL)
        if self._types == {"fp32"} and not self._casts_inside():
            yield Note.of(NoteKind.NOTHING_IN_FP16)
        if self._log and self._log.structure.engines > 1:
            yield Note.of(NoteKind.LAST_ENGINE, engines=self._log.structure.engines)

    def _casts_inside(self) -> bool:
        """Whether a kernel of a node that the model states as narrow casts: FP16 may begin and end within it."""
        stated = [name for name in self._kernels if self.declared(name) in NARROW]
        return any(cast_count(kernel.name) for name in stated for kernel in self._kernels[name])

    @property
    def strong(self) -> bool:
        """Whether the build was bound to the types that the model states."""
        return self._strong

    def declared(self, node: str) -> str | None:
        """The type that the model states, where the build was bound to it."""
        return self._declared.get(node) if self._strong else None

    def region_of(self, node: str) -> Layer | None:
        """The Myelin region that holds the node: by the log's list, else by the two ends its name states."""
        for region in self._regions:
            if node in (self._members.get(region.name) or self._owners.of_layer(region) or self._ends_of(region)):
                return region
        spans = [region for region in self.unlisted if self.knows_model and self._spans(region, node)]
        return spans[0] if len(spans) == 1 else None

    @property
    def unlisted(self) -> list[Layer]:
        """The regions of which no list says what is inside."""
        return [region for region in self._regions if not self._members.get(region.name) and not region.onnx_nodes]

    def why_not_found(self) -> Note:
        """Why a node that was asked for may be missing from those audited."""
        if self.knows_model:
            return Note.of(NoteKind.NODE_NOT_IN_ENGINE)
        if self._engine.schema == "names-only":
            return Note.of(NoteKind.NO_LAYER_NAMED)
        if self.unlisted:
            return Note.of(NoteKind.MAYBE_IN_REGION, regions=len(self.unlisted))
        return Note.of(NoteKind.NO_LAYER_HAS_IT)

    def _spans(self, region: Layer, node: str) -> bool:
        """Whether the node lies between the ends of the region's name; an end that is no node (a weight) is open."""
        inner = region.name.partition("{ForeignNode[")[2].rpartition("]}")[0]
        place = self._order.get(node)
        if place is None or not inner:
            return place is not None and len(self._regions) == 1
        for cut in _cuts(inner):
            first, last = (self._places(part) for part in (inner[:cut], inner[cut + 3 :]))
            if first or last:
                return min(first, default=0) <= place <= max(last, default=len(self._order))
        return len(self._regions) == 1

    def _places(self, name: str) -> list[int]:
        """Where the nodes that one end of a region was fused from stand in the model."""
        return [self._order[node] for part in fused_parts(name) if (node := self._owners.of_name(part)) in self._order]

    def float_types(self, region: Layer) -> set[str]:
        return floats((*region.inputs, *region.outputs))

    def node(self, info: NodeInfo) -> NodeAudit:
        kernels = tuple(self._kernels.get(info.name, ()))
        if not kernels:
            return self._without_kernel(info)
        names = tuple(kernel.name for kernel in kernels)
        attention = next((fused for kernel in kernels if (fused := fused_attention(kernel.name))), None)
        # Long reductions come with kernels that only set counters: those say nothing of the node's type.
        telling = [kernel for kernel in kernels if _may_be_float(kernel)] or kernels
        declared = self.declared(info.name)
        verdicts = [in_kernel(info.op, info.weight, declared, kernel) for kernel in telling]
        if info.op in PRODUCTS and declared == "fp32":
            verdicts = of_product(verdicts, telling)
        precisions = {precision for precision, _, _ in verdicts}
        coverages = {coverage for _, coverage, _ in verdicts}
        notes = list(dict.fromkeys(note for _, _, note in verdicts if note))
        if "unknown" in coverages:
            coverage: Coverage = "unknown"
        else:
            coverage = "exact" if coverages == {"exact"} and len(precisions) == 1 else "mixed"
        if len(precisions) == 1:
            precision = precisions.pop()
        else:
            known = precisions & (FLOATS | QUANTISED)
            precision = MIXED if known else UNKNOWN
            notes.append(Note.of(NoteKind.KERNELS_DIFFER, count=len(telling), types=sorted(precisions)))
        return NodeAudit(info.name, info.op, info.compute, precision, coverage, names, tuple(notes), attention)

    def _without_kernel(self, info: NodeInfo) -> NodeAudit:
        def found(precision: str, coverage: Coverage, note: Note, kernels: tuple[str, ...] = ()) -> NodeAudit:
            return NodeAudit(info.name, info.op, info.compute, precision, coverage, kernels, (note,))

        region = self.region_of(info.name)
        if region is not None:
            if self.only_fp32:
                return found("fp32", "region-only", Note.of(NoteKind.ONLY_TYPE_ALLOWED), (region.name,))
            if info.name in self._fp16_norms:
                return found("fp16", "region-only", Note.of(NoteKind.NORM_WARNED), (region.name,))
            types = sorted(fmt.upper() for fmt in self.float_types(region))
            seen = Note.of(NoteKind.IN_REGION, types=types) if types else Note.of(NoteKind.IN_REGION_UNTYPED)
            return found(UNKNOWN, "region-only", seen, (region.name,))
        if self.unlisted:
            return found(UNKNOWN, "unknown", Note.of(NoteKind.MAYBE_IN_ANY_REGION))
        if info.op in RECURRENT:
            return self._unrolled(info)
        silent = sum(may_hold(info.op, layer.name) for layer in self._nameless)
        if silent:
            return found(UNKNOWN, "unknown", Note.of(NoteKind.NO_KERNEL_NAMED, count=silent))
        if info.op in _UNNAMED and (showing := sum(shows(info.op, layer.name) for layer in self._working)):
            return found(UNKNOWN, "unknown", Note.of(NoteKind.STEP_UNNAMED, count=showing))
        if self._partial and info.compute:
            return found(UNKNOWN, "unknown", Note.of(NoteKind.LIST_NOT_WHOLE))
        if any(layer.onnx_nodes for layer in self._working):
            return found(self.declared(info.name) or UNKNOWN, "folded", Note.of(NoteKind.FOLDED_AWAY))
        return found(UNKNOWN, "unknown", Note.of(NoteKind.LIST_NAMES_NO_NODES))

    def _unrolled(self, info: NodeInfo) -> NodeAudit:
        """A recurrent operator: its kernels bear no name of it, so only the whole engine's types speak for it."""
        types = floats(tensor for layer in self._working for tensor in (*layer.inputs, *layer.outputs))
        declared = self.declared(info.name)
        precision: str = UNKNOWN
        coverage: Coverage = "unknown"
        note = Note.of(NoteKind.UNROLLED)
        if len(types) == 1:
            precision, coverage, note = next(iter(types)), "mixed", Note.of(NoteKind.UNROLLED_ONE_TYPE)
        elif declared is not None and declared in types:
            precision, coverage, note = declared, "mixed", Note.of(NoteKind.UNROLLED_AS_STATED)
        return NodeAudit(info.name, info.op, info.compute, precision, coverage, (), (note,))


def _types_of(layer: Layer) -> set[str]:
    return floats((*layer.inputs, *layer.outputs)) | (
        {layer.weights} & (FLOATS | QUANTISED) if layer.weights else set()
    )


def _may_be_float(layer: Layer) -> bool:
    types = {tensor.dtype for tensor in (*layer.inputs, *layer.outputs)}
    return not types or bool(types & (FLOATS | QUANTISED | {UNKNOWN}))


def _cuts(text: str) -> Iterable[int]:
    """Where "..." stands between the two ends of a region's name; a name may hold dots itself."""
    cut = text.find("...")
    while cut >= 0:
        yield cut
        cut = text.find("...", cut + 1)
