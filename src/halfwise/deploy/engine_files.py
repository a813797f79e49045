"""The files of an engine's target: command, build script, and what there is to say of the compiled decision."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir

from halfwise.compiler.compiled import Compiled
from halfwise.core.english import say_all
from halfwise.core.errors import HalfwiseError, InputError
from halfwise.core.files.seen_from import seen_from
from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.targets import Fit, Target, Typing
from halfwise.core.whole_files import WholeFiles
from halfwise.deploy.advisories import Advisory
from halfwise.deploy.deploy_files import DeployFiles, Handover
from halfwise.deploy.layer_names import LayerMap
from halfwise.deploy.layouts import Layouts
from halfwise.deploy.script import ScriptRequest, build_script
from halfwise.deploy.trtexec import InputShape, LayerPrecision, TrtexecRequest, Unexpressible, trtexec_command
from halfwise.deploy.trtexec_grammar import IoFormat
from halfwise.model.families import RECURRENT
from halfwise.model.ops import CONTROL_FLOW
from halfwise.model.shape_inputs import holds_shape
from halfwise.precision.assignment import Assignment
from halfwise.precision.decision import Decision
from halfwise.precision.sites import Site, native_format
from halfwise.precision.typed_onnx import write_typed

if TYPE_CHECKING:
    from halfwise.compiler.build import InputProfile
    from halfwise.model.inputs.samples import Samples

__all__ = ["audited_on", "compiles_itself", "deploy"]

_SHOWN = 5  # violations told in words; the document lists all
# Their layers are loops with counters of integers: an output type of FP32 on all of them would be an error.


def deploy(handover: Handover) -> DeployFiles:
    """Write the command and the script beside the typed model; with nothing written there, say what is known only."""
    target, compiled, advisories, layouts = handover.target, handover.compiled, handover.advisories, handover.layouts
    notes: list[Note] = [
        *(compiled.notes if compiled else ()),
        *_verdict(target, compiled),
        *_defects(target, compiled, advisories),
    ]
    refusal = compiled.refusal if compiled is not None and compiles_itself(target) else ""
    if handover.typed is None or handover.plan is None:
        return DeployFiles(compiled=compiled, advisories=advisories, notes=tuple(notes), refusal=refusal)
    notes += layouts.notes if layouts is not None else ()
    writing = _Writing(
        target,
        handover.decision,
        _profiles(handover.samples, notes),
        handover.typed,
        handover.plan,
        handover.repaired,
        notes,
        handover.notify,
        handover.time_limit_s,
        layouts,
    )
    written = writing.run(compiled, advisories)
    return replace(written, refusal=refusal, build=()) if refusal else written


def _profiles(samples: Samples, notes: list[Note]) -> Mapping[str, InputProfile]:
    """The shapes of the inputs; none, and a note, where the samples leave them open."""
    from halfwise.compiler.build import profiles_from_samples

    try:
        return profiles_from_samples(samples.all)
    except InputError as error:
        notes.append(Note.of(NoteKind.SHAPES_OPEN, error=str(error)))
        return {}


def compiles_itself(target: Target) -> bool:
    """Whether what is compiled here is compiled by the target's own compiler."""
    return target.runtime.builder is not None and target.runtime.builder.offline


def audited_on(files: DeployFiles, target: Target, samples: Path) -> DeployFiles:
    """An audit that compiles the model again is told the shapes that its samples have."""
    if not files.audit_command or files.script is None or not compiles_itself(target):
        return files
    words = ["--inputs", str(seen_from(files.script.parent, samples))]
    return replace(files, audit_command=f"{files.audit_command} {shlex.join(words)}")


def _verdict(target: Target, compiled: Compiled | None) -> Iterator[Note]:
    """What the audit says."""
    if compiled is None or compiled.audit is None:
        return
    audit, cost = compiled.audit, compiled.audit.cost
    wanted, broken = len(compiled.decision.formats), len(audit.violations)
    compiler, fmt = compiled.compiler, compiled.decision.sites.fmt.value.upper()
    kernels, casts, reformats, megabytes = cost.kernels, cost.casts, cost.reformats, cost.bytes_moved / 1e6
    if wanted:
        yield Note.of(
            NoteKind.COMPILED,
            compiler=compiler,
            kept=wanted - broken,
            wanted=wanted,
            format=fmt,
            kernels=kernels,
            megabytes=megabytes,
            casts=casts,
            reformats=reformats,
        )
    else:
        yield Note.of(
            NoteKind.COMPILED_ALL_NARROW,
            compiler=compiler,
            format=fmt,
            kernels=kernels,
            megabytes=megabytes,
            casts=casts,
            reformats=reformats,
        )
    if audit.unproven:
        yield Note.of(NoteKind.PRECISION_UNKNOWN, count=len(audit.unproven))
    for each in audit.violations[:_SHOWN]:
        yield Note.of(NoteKind.NOT_KEPT, each.node, wanted=each.wanted, got=each.got, why=list(each.messages))
    if broken > _SHOWN:
        yield Note.of(NoteKind.MORE_NOT_KEPT, count=broken - _SHOWN)
    if compiled.builds and not compiles_itself(target):
        yield Note.of(NoteKind.NEAREST_COMPILER, compiler=compiled.compiler, target=target.title)


def _defects(target: Target, compiled: Compiled | None, advisories: Sequence[Advisory]) -> Iterator[Note]:
    sure = [a.entry.id for a in advisories if a.applies is Fit.YES and a.entry.kind in ("defect", "report")]
    if sure:
        yield Note.of(NoteKind.KNOWN_DEFECTS, target=target.title, ids=sure)
        if compiled is None:
            yield Note.of(NoteKind.DEFECTS_NOT_PREVENTED, target=target.title)


@dataclass(frozen=True)
class _Writing:
    target: Target
    decision: Decision
    profiles: Mapping[str, InputProfile]  # of the inputs, from the samples
    typed: Path
    plan: Path
    repaired: bool
    notes: list[Note]
    notify: Callable[[str], None]
    time_limit_s: float
    layouts: Layouts | None = None

    @property
    def folder(self) -> Path:
        return self.typed.parent

    @property
    def stem(self) -> str:
        return self.plan.name.removesuffix(".plan.json")

    def run(self, compiled: Compiled | None, advisories: tuple[Advisory, ...]) -> DeployFiles:
        weak = self.target.typing is Typing.WEAK
        named = self._name_nodes() if weak else None
        model = named or (self.decision.sites.model.path if weak else None) or self.typed
        relative = str(seen_from(self.folder, model))
        kept = self._kept() if weak else ()
        layers = self._resolve(model) if weak and kept else None
        if layers is not None:
            kept = self._with_layers(kept, layers)
        # TensorRT-RTX lists no layers without a GPU; there the model is compiled again.
        source = self.typed.name if compiles_itself(self.target) else f"{self.stem}.layers.json"
        words = ["halfwise", "audit", source, "--plan", self.plan.name]
        if source != self.typed.name:
            words += ["--model", relative]  # what is folded away, or inside a region that names only its two ends
        if weak:
            self.notes.append(Note.of(NoteKind.WEAK_NOT_COMPILED))
        audit = shlex.join(words)
        command = self._command(relative, kept, layers, audit)
        script = self._script(relative, kept)
        return DeployFiles(
            command=command,
            script=script,
            model=named,
            build=self._build(command, script),
            audit_command=audit if command or script else "",
            outputs=self.folder / f"{self.stem}.engine-outputs" if script else None,
            compiled=compiled,
            advisories=advisories,
            notes=tuple(self.notes),
        )

    def _build(self, command: Path | None, script: Path | None) -> tuple[str, ...]:
        """The options of tensorrt_rtx are not verified, so there the script goes first."""
        if script is not None and (command is None or compiles_itself(self.target)):
            return ("python", str(script))
        return ("sh", str(command)) if command is not None else ()

    def _values(self) -> tuple[InputShape, ...]:
        """The small integer inputs, with the values of the samples: some may hold a shape, of tables those that do."""
        inputs = {value.name: value for value in self.decision.sites.model.graph.inputs if holds_shape(value)}
        rows = [(name, each) for name, each in self.profiles.items() if len(each.opt) < 2 or name in inputs]
        return tuple(InputShape(name, *each.values) for name, each in rows if each.values)

    def _told_shapes(self) -> tuple[InputShape, ...]:
        """What trtexec is told: the shapes of open inputs, and in the same way the values of those that hold one."""
        inputs = {value.name: value for value in self.decision.sites.model.graph.inputs}
        held = [each for each in self._values() if each.name in inputs and holds_shape(inputs[each.name])]
        names = {each.name for each in held}
        return (*(shape for shape in self._shapes() if shape.name not in names), *held)

    def _shapes(self) -> tuple[InputShape, ...]:
        """The inputs of open shape, with the shapes that the samples have."""
        opened = {
            spec.name
            for spec in self.decision.sites.model.inputs
            if spec.shape is None or not all(isinstance(size, int) for size in spec.shape)
        }
        return tuple(InputShape(n, p.min, p.opt, p.max) for n, p in self.profiles.items() if n in opened)

    # -- weak typing --------------------------------------------------------------------------------------------------

    def _name_nodes(self) -> Path | None:
        """A weakly typed build finds layers by name, so the model it reads must have the names that the plan has."""
        model = self.decision.sites.model
        as_given = model.path is not None and model.given is None and not self.repaired and not model.renamed_nodes
        if as_given and model.path is not None and not _has_functions(model.path):
            return None
        path = self.folder / f"{self.stem}.fp32.onnx"
        self.notify(f"writing {path}")
        written = write_typed(Assignment(self.decision.sites, {}), path)
        self.notes.append(Note.of(NoteKind.FP32_MODEL_WRITTEN, path.name))
        return written.path

    def _kept(self) -> tuple[tuple[Site, Format], ...]:
        """What a weakly typed build must be told: the plan's nodes, and those that the typed model cannot narrow."""
        sites, formats = self.decision.sites, self.decision.formats
        found = []
        for site in sites.all:
            if site.node in formats:
                found.append((site, formats[site.node]))
            elif site.pinned and site.compute and site.op not in CONTROL_FLOW and not _on_host(site):
                found.append((site, Format.FP32))
        return tuple(found)

    def _resolve(self, model: Path) -> LayerMap | None:
        """The layers that NVIDIA's parser makes of each node, where TensorRT-RTX is there to ask."""
        from halfwise.compiler import rtx

        if not rtx.available():
            self.notes.append(Note.of(NoteKind.PARSER_MISSING, install=rtx.INSTALL))
            return None
        self.notify("asking TensorRT-RTX's parser for layer names")
        try:
            built = rtx.build(model, profiles=self.profiles, time_limit_s=self.time_limit_s)
            layers, version = LayerMap.from_log(built.log_lines()), built.version
        except HalfwiseError as error:
            self.notes.append(Note.of(NoteKind.PARSER_FAILED, error=str(error)))
            return None
        self.notes.append(Note.of(NoteKind.PARSER_TOLD, version=version, target=self.target.title))
        return layers

    def _with_layers(self, kept: Sequence[tuple[Site, Format]], layers: LayerMap) -> tuple[tuple[Site, Format], ...]:
        # A log is read by the line: a name of several lines is not found in it, whatever the parser made of the node.
        lost = [site.name for site, _ in kept if not layers.layers_of(site.name) and not _breaks(site.name)]
        found = tuple(each for each in kept if each[0].name not in lost)
        if lost:
            self.notes.append(Note.of(NoteKind.FOLDED, nodes=lost))
        return found

    def _layers(self, kept: Sequence[tuple[Site, Format]], layers: LayerMap | None) -> tuple[LayerPrecision, ...]:
        found: dict[str, LayerPrecision] = {}
        for site, fmt in kept:
            if layers is not None and not layers.layers_of(site.name):
                raise Unexpressible(
                    f"the name {site.name!r} breaks the lines of the log that tells the layers of a node; rename the "
                    "node in the ONNX model"
                )
            plain = site.op not in RECURRENT and all(native_format(v) is not None for v in site.node.outputs if v.name)
            for name in layers.layers_of(site.name) if layers else (site.name,):
                found.setdefault(name, LayerPrecision(name, fmt, (fmt.value,) if plain else ()))
        silent = sorted({site.op for site, _ in kept if site.op in RECURRENT})
        if silent:
            self.notes.append(Note.of(NoteKind.LOOPS, operators=silent))
        return tuple(found.values())

    # -- files --------------------------------------------------------------------------------------------------------

    def _command(
        self, model: str, kept: Sequence[tuple[Site, Format]], layers: LayerMap | None, audit: str
    ) -> Path | None:
        inputs, outputs = self._io_formats()
        try:
            command = trtexec_command(
                TrtexecRequest(
                    target=self.target,
                    onnx=model,
                    engine=f"{self.stem}.engine",
                    layer_info=f"{self.stem}.layers.json",
                    layers=self._layers(kept, layers),
                    known_layers=layers.all_layers if layers else None,
                    nodes=tuple(site.name for site in self.decision.sites.all),
                    inputs=inputs,
                    outputs=outputs,
                    shapes=self._told_shapes(),
                    tf32=False,
                )
            )
        except InputError as error:
            self.notes.append(Note.of(NoteKind.NO_COMMAND, error=str(error)))
            return None
        self.notes.extend(command.notes)
        told = [f"Builds the engine for {self.target.title} from a plan of halfwise.", *say_all(command.notes)]
        given = " --inputs SAMPLES" if compiles_itself(self.target) else ""  # whose shapes it is compiled for again
        told.append(f"Afterwards, to see what precision really ran: {audit}{given}")
        lines = ["#!/bin/sh", *(f"# {_one_line(line)}" for line in told)]
        lines += ["set -e", 'cd "$(dirname "$0")"', command.shell, ""]
        return self._write(f"{self.stem}.trtexec.sh", "\n".join(lines))

    def _io_formats(self) -> tuple[tuple[IoFormat, ...], tuple[IoFormat, ...]]:
        """Under weak typing the types of inputs and outputs are the command's; a typed model states them itself."""
        graph = self.decision.sites.model.graph
        if not self.layouts and (self.target.typing is Typing.STRONG or not self._narrow_io):
            return (), ()
        inputs, outputs = (tuple(self._io_format(value) for value in side) for side in (graph.inputs, graph.outputs))
        return inputs, outputs

    @property
    def _narrow_io(self) -> bool:
        return self.decision.io_types is not Format.FP32 or bool(self.decision.sites.model.interface)

    def _stated_io(self) -> tuple[tuple[str, IoFormat], ...]:
        """The float inputs and outputs that the build script has to say something of."""
        graph, weak = self.decision.sites.model.graph, self.target.typing is Typing.WEAK
        found = {v.name or "": self._io_format(v) for v in (*graph.inputs, *graph.outputs) if native_format(v)}
        return tuple(
            (name, each)
            for name, each in found.items()
            if each.layouts != ("chw",) or (weak and self._narrow_io and each.type == Format.FP16.value)
        )

    def _io_format(self, value: ir.Value) -> IoFormat:
        native = native_format(value)
        if native is not None:
            held = self.decision.assignment.handed_over(value) if native is Format.FP32 else native
            return IoFormat(held.value, self.layouts[value.name or ""] if self.layouts else ("chw",))
        kind = str(value.dtype.numpy()) if value.dtype is not None else ""
        return IoFormat("int32" if kind == "int64" and not self.target.within("9.1") else kind)

    def _script(self, model: str, kept: Sequence[tuple[Site, Format]]) -> Path | None:
        try:
            text = build_script(
                ScriptRequest(
                    target=self.target,
                    onnx=model,
                    engine=f"{self.stem}.engine",
                    layer_info=f"{self.stem}.layers.json",
                    outputs=f"{self.stem}.engine-outputs",
                    nodes=tuple((site.name, fmt) for site, fmt in kept),
                    shapes=self._shapes(),
                    values=self._values(),
                    tf32=False,
                    model_io=self._stated_io(),
                )
            )
        except InputError as error:
            self.notes.append(Note.of(NoteKind.NO_SCRIPT, error=str(error)))
            return None
        return self._write(f"{self.stem}.build.py", text)

    def _write(self, name: str, text: str) -> Path:
        path = self.folder / name
        with WholeFiles() as files:
            place = files.text(path, text, errors="surrogateescape")  # names as the disk has them
            place.chmod(place.stat().st_mode | 0o111)
        return path


def _breaks(name: str) -> bool:
    return "\n" in name or "\r" in name


def _on_host(site: Site) -> bool:
    return site.pinned is not None and site.pinned.kind is NoteKind.SHAPE_ARITHMETIC


def _has_functions(path: Path) -> bool:
    """Whether nodes stand in local functions, which the plan names as if they were inlined."""
    import onnx

    return bool(onnx.load(path, load_external_data=False).functions)


def _one_line(text: str) -> str:
    return " ".join(text.split())
