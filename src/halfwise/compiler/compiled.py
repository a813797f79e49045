"""Compiles a decision with TensorRT-RTX, audits it node by node, and corrects what the compiler would undo."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from halfwise.compiler.attention_regions import Fp32Region, find_fp32_region, fused_groups
from halfwise.compiler.buildable import buildable, refused_nodes
from halfwise.compiler.isolated_matmuls import companions, find_isolated_matmuls
from halfwise.compiler.layers_evidence import NodeInfo
from halfwise.compiler.layers_model import weight_size
from halfwise.compiler.unbuilt_attention import unbuilt_attention
from halfwise.core.errors import HalfwiseError, InputError
from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.core.whole_files import scratch_folder
from halfwise.model.ops import CONTROL_FLOW
from halfwise.precision.assignment import Assignment
from halfwise.precision.decision import Adjusted, Adjustment, Decision
from halfwise.precision.plan import PlannedNode
from halfwise.precision.sites import Site
from halfwise.precision.typed_onnx import write_typed

if TYPE_CHECKING:
    from halfwise.compiler.audit import Audit
    from halfwise.compiler.build import BuildError, InputProfile

__all__ = ["TIME_LIMIT_S", "Compiled", "Compiler", "as_listed", "compile_and_adjust", "node_infos"]

Wishes = Mapping[str, Format]

TIME_LIMIT_S = 300.0  # for one build; the largest models of the project's own benchmarks take seconds


@dataclass(frozen=True)
class Compiled(Adjusted):
    """What the compiler made of a decision, and how that changed it.

    `error`: why it built nothing; `refusal`: that, in NVIDIA's words; empty where it built it, or did not get to say.
    `unbuilt`: the Attention nodes with whose steps it would build it.
    """

    audit: Audit | None
    compiler: str = ""
    builds: int = 0
    seconds: float = 0.0
    region: Fp32Region | None = None
    error: str = ""
    refusal: str = ""
    unbuilt: tuple[str, ...] = ()

    @property
    def added(self) -> tuple[PlannedNode, ...]:
        return self.adjustment.added

    @property
    def notes(self) -> tuple[Note, ...]:
        return self.adjustment.notes


def node_infos(decision: Decision) -> tuple[NodeInfo, ...]:
    """The model's nodes as an audit takes them, with the types that the typed model states."""
    return tuple(
        NodeInfo(
            name=site.name,
            op=site.op,
            outputs=tuple(value.name or "" for value in site.node.outputs),
            compute=site.compute and site.op not in CONTROL_FLOW,
            declared=_declared(decision, site),
            weight=weight_size(site.node),
        )
        for site in decision.sites.all
    )


def _declared(decision: Decision, site: Site) -> str | None:
    """The type of what a node makes of real values; of one that makes none, and decides by some, what it takes."""
    stored = decision.assignment.stored
    if (made := next((fmt for value in site.node.outputs if (fmt := stored(value)) is not None), None)) is not None:
        return made.value
    if not site.compute or not site.free:
        return None
    return decision.formats.get(site.node, decision.sites.fmt).value


def as_listed(decision: Decision, layers: Path) -> Compiled:
    """What an engine that was built from a decision holds, by a list of its layers in a file."""
    from halfwise.compiler.audit import audit
    from halfwise.compiler.layers import read_layers

    found = audit(read_layers(layers), None, node_infos(decision), decision.wanted, str(layers))
    if not any(node.kernels for node in found.nodes):
        raise InputError(
            f"{layers}: no layer names a node of this model; is it the list of another engine, or without "
            "--profilingVerbosity=detailed?"
        )
    return Compiled(Adjustment(decision), found, f"TensorRT as {layers.name} lists it")


@dataclass
class Compiler:
    """Builds decisions with TensorRT-RTX in a folder of its own, and counts what that takes."""

    folder: Path
    profiles: Mapping[str, InputProfile]
    time_limit_s: float = TIME_LIMIT_S
    builds: int = 0
    seconds: float = 0.0
    version: str = field(default="")

    def __call__(self, decision: Decision) -> Audit:
        """Raises InputError (a BuildError with NVIDIA's reason) or MissingBackend."""
        typed = write_typed(decision.assignment, self.folder / "typed.onnx")
        return self.compile(typed.path, node_infos(decision), decision.wanted)

    def compile(self, path: Path, infos: Sequence[NodeInfo] | None = None, wanted: Wishes | None = None) -> Audit:
        """The same for a typed model that stands in a file."""
        from halfwise.compiler import rtx
        from halfwise.compiler.audit import audit
        from halfwise.compiler.buildlog import read_log
        from halfwise.compiler.layers import layers_from_log

        started = time.perf_counter()
        try:
            built = rtx.build(path, profiles=self.profiles, time_limit_s=self.time_limit_s, tf32=False)
            self.version = f"TensorRT-RTX {built.version}"
            log = read_log(built.log_path)
            built.log_path.unlink(missing_ok=True)
            return audit(layers_from_log(log), log, infos, wanted, self.version)
        finally:
            self.builds += 1
            self.seconds += time.perf_counter() - started


def compile_and_adjust(
    decision: Decision,
    *,
    samples: Sequence[Mapping[str, Any]],
    sizes: Mapping[ir.Value, int],
    suspects: Sequence[str],
    holds: Callable[[Assignment], bool] | None,
    folder: Path | None,
    notify: Callable[[str], None],
    time_limit_s: float = TIME_LIMIT_S,
    forced: Collection[str] = (),
    own: bool = False,
    reads: Collection[str] = (),
    title: str = "",
) -> Compiled:
    """Compile and audit; where the compiler undoes the decision, add FP32 nodes, and keep them if the audit says so.
    Where it does not build it at all and is the target's `own`, add those with which it does.

    `suspects`: parts of the names of fused attention kernels to keep out. `forced`: nodes that stay in FP16 whatever
    the compiler makes of it, since the user says so. `holds` tells whether the tolerance is kept;
    None: the decision is to stay as it is. `title`: of a target with the same parser; `reads`: operators that it may
    read beyond that. Never raises for what the compiler makes of a model: a note says it.
    """
    from halfwise.compiler import rtx
    from halfwise.compiler.build import BuildError, profiles_from_samples

    if not rtx.available():
        return Compiled(Adjustment(decision).noting(Note.of(NoteKind.NOT_COMPILED, install=rtx.INSTALL)), None)
    notify("compiling with TensorRT-RTX")
    # Beside the artefacts, where there is room for a model, if that folder is there already.
    with scratch_folder(folder) as scratch:
        try:
            compiler = Compiler(scratch, profiles_from_samples(samples), time_limit_s)
            result = _adjusted(decision, compiler, sizes, suspects, holds, notify, forced, own)
        except HalfwiseError as error:
            note = Note.of(NoteKind.NOT_PROVEN, error=_told(error, scratch))
            result = Compiled(Adjustment(decision).noting(note), None, error=_told(error, scratch))
            if not own and isinstance(error, BuildError):
                result = _unread(result, error, reads, title)
            searched = own and holds is not None
            return _unbuilt(result, compiler, error, searched) if isinstance(error, BuildError) else result
    return replace(result, compiler=compiler.version, builds=compiler.builds, seconds=compiler.seconds)


def _unread(result: Compiled, error: BuildError, reads: Collection[str], title: str) -> Compiled:
    """With the nodes that the target does not read either."""
    nodes = [each.node for each in error.refusals if each.node and each.unknown and each.operator not in reads]
    return result.noting(Note.of(NoteKind.PARSER_REFUSES, title, nodes=nodes)) if nodes else result


def _unbuilt(result: Compiled, compiler: Compiler, error: BuildError, searched: bool) -> Compiled:
    """With what would be built or has to be written otherwise, where nothing in FP32 helped."""
    refused = error.failure == "refused"
    if refused:
        result = replace(result, refusal=result.error)
    if not searched or error.failure not in ("refused", "crashed"):
        return result
    result = replace(result, unbuilt=unbuilt_attention(result.decision, compiler))
    if not refused:
        return result
    nodes = [refusal.node for refusal in error.refusals if refusal.node] or _named(result, str(error))
    if not nodes:
        return result.noting(Note.of(NoteKind.REFUSED_WHOLE))
    return result.noting(Note.of(NoteKind.OPERATORS_REFUSED, nodes=nodes))


def _named(result: Compiled, error: str) -> list[str]:
    """The nodes of the layers that it names, and of the tensors that it speaks of as results."""
    return [
        node.name or ""
        for node in result.decision.sites.model.nodes
        if f"Layer {node.name}: " in error or any(f" {value.name} : " in error for value in node.outputs)
    ]


def _adjusted(
    decision: Decision,
    compiler: Compiler,
    sizes: Mapping[ir.Value, int],
    suspects: Sequence[str],
    holds: Callable[[Assignment], bool] | None,
    notify: Callable[[str], None],
    forced: Collection[str],
    own: bool,
) -> Compiled:
    result = _built(decision, compiler, holds if own else None, notify, forced)
    if holds is None:
        return result
    try:
        result = _join_isolated_matmuls(result, compiler, sizes, holds, notify, forced)
        return _keep_kernel_out(result, compiler, suspects, holds, notify, forced)
    except HalfwiseError as error:
        note = Note.of(NoteKind.NOT_CORRECTED, error=_told(error, compiler.folder))
        return result.noting(note)


def _built(
    decision: Decision,
    compiler: Compiler,
    holds: Callable[[Assignment], bool] | None,
    notify: Callable[[str], None],
    forced: Collection[str],
) -> Compiled:
    """What the compiler makes of it, or of as much of it as it builds."""
    from halfwise.compiler.build import BuildError

    try:
        return Compiled(Adjustment(decision), compiler(decision))
    except BuildError as error:
        if holds is None or error.failure not in ("refused", "crashed"):
            raise
        notify("looking for the nodes that TensorRT-RTX does not build in FP16")
        mended = buildable(decision, compiler, _told(error, compiler.folder), forced, refused_nodes(error))
        if mended is None or not holds(mended[0].decision.assignment):
            raise
    return Compiled(*mended)


def _told(error: HalfwiseError, scratch: Path) -> str:
    """The error without the name of a file that is gone by now."""
    return str(error).replace(str(scratch / "typed.onnx"), "the typed model")


def _join_isolated_matmuls(
    result: Compiled,
    compiler: Compiler,
    sizes: Mapping[ir.Value, int],
    holds: Callable[[Assignment], bool],
    notify: Callable[[str], None],
    forced: Collection[str],
) -> Compiled:
    decision, audit = result.decision, result.audit
    assert audit is not None
    joined, notes = _companions(decision, audit, sizes, forced)
    if not joined:
        return result.noting(*notes)
    notify(f"{len(joined)} more nodes in FP32, so that the compiler keeps isolated matmuls in FP32")
    wider = decision.with_fp32(joined)
    after = compiler(wider)
    names = [node.name for node in joined]
    if len(after.violations) >= len(audit.violations):
        return result.noting(*notes, Note.of(NoteKind.JOINING_IN_VAIN, nodes=names))
    if not holds(wider.assignment):
        return result.noting(*notes, Note.of(NoteKind.JOINING_MISSES, nodes=names))
    done = Note.of(
        NoteKind.PRODUCTS_JOINED,
        compiler=compiler.version,
        products=list(dict.fromkeys(joined.values())),
        nodes=names,
        before=len(audit.violations),
        after=len(after.violations),
    )
    added = tuple(_kept_for(node, product) for node, product in joined.items())
    return replace(result, adjustment=result.adjustment.to(wider, added, *notes, done), audit=after)


def _companions(
    decision: Decision, audit: Audit, sizes: Mapping[ir.Value, int], forced: Collection[str]
) -> tuple[dict[ir.Node, str], list[Note]]:
    """The nodes that would keep isolated matmuls in FP32, each with its matmul, and why others have none."""
    joined: dict[ir.Node, str] = {}
    notes: list[Note] = []
    for product in find_isolated_matmuls(audit.violations, decision.sites, decision.formats):
        path = companions(product, decision.sites, decision.formats, sizes)
        if not path:
            notes.append(Note.of(NoteKind.PRODUCT_ALONE, product.name))
        if own := [node.name for node in path if node.name in forced]:
            notes.append(Note.of(NoteKind.PRODUCT_FORCED, product.name, nodes=own))
            continue
        joined.update((node, product.name or "") for node in path)
    return joined, notes


def _kept_for(node: ir.Node, product: str) -> PlannedNode:
    why = (Note.of(NoteKind.KEEPS_PRODUCT, product),)
    return PlannedNode(node.name or "", node.op_type, Format.FP32, Reason.COMPILER, why)


def _keep_kernel_out(
    result: Compiled,
    compiler: Compiler,
    suspects: Sequence[str],
    holds: Callable[[Assignment], bool],
    notify: Callable[[str], None],
    forced: Collection[str],
) -> Compiled:
    decision, audit = result.decision, result.audit
    assert audit is not None
    if not any(part in kernel for part in suspects for kernel in audit.attention_kernels):
        return result
    model = decision.sites.model
    by_name = model.node_by_name
    notify("looking for the FP32 region that prevents the fused attention kernel")

    def compile_with(names: frozenset[str]) -> Audit:
        return compiler(decision.with_fp32(by_name[name] for name in names if decision.sites.of[by_name[name]].free))

    region = find_fp32_region(fused_groups(model, audit), suspects, audit, compile_with)
    if region is None:
        note = Note.of(NoteKind.ATTENTION_UNKNOWN, kernels=list(audit.attention_kernels))
        return result.noting(note)
    result = result.noting(*region.notes())
    if not region.nodes:
        return result
    free = [by_name[name] for name in region.nodes if decision.sites.of[by_name[name]].free]
    nodes = [node for node in free if node not in decision.formats]
    if own := [node.name for node in nodes if node.name in forced]:
        return result.noting(Note.of(NoteKind.REGION_FORCED, nodes=own))
    wider = decision.with_fp32(nodes)
    if not holds(wider.assignment):
        return result.noting(Note.of(NoteKind.REGION_MISSES))
    because = (Note.of(NoteKind.KEEPS_KERNEL_OUT, region.kernel),)
    added = tuple(PlannedNode(n.name or "", n.op_type, Format.FP32, Reason.COMPILER, because) for n in nodes)
    return replace(result, adjustment=result.adjustment.to(wider, added), audit=region.audit, region=region)
