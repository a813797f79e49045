"""The plan: which nodes stay out of FP16 and why, for which model, target and tolerance; a JSON file to commit."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import structs

from halfwise.core.document import LEFT_OUT, Documented, read
from halfwise.core.english import say, say_all
from halfwise.core.errors import InputError
from halfwise.core.files.absent import absent
from halfwise.core.files.identify import not_wanted
from halfwise.core.files.seen_from import seen_from
from halfwise.core.formats import FORMATS, Format
from halfwise.core.json_text import read_json
from halfwise.core.measures.named import measure_named
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.core.summary import Summary
from halfwise.core.tolerance import Tolerance
from halfwise.core.wording import counted, listed
from halfwise.model.fingerprint import graph_sha256
from halfwise.model.inputs.rollout import Rollout, rollout_of
from halfwise.model.model import Model
from halfwise.precision.plan_document import (
    ModelRecord,
    PlanDocument,
    PlannedRecord,
    RepairRecord,
    RolloutQuestion,
    StatedNode,
)

__all__ = ["Plan", "PlannedNode", "read_plan"]

_MACHINE_FILE = ".json"  # how the name of a learned profile ends
_ANY_SCHEMA = "halfwise.plan/"
_SCHEMA = f"{_ANY_SCHEMA}1"
_ASKED = Note.of(NoteKind.IN_PLAN)


@dataclass(frozen=True)
class PlannedNode:
    """A node that does not run in FP16: its format, why, and the numbers behind it.

    `because` tells first what happens at the node or who wants it, then what was measured without it.
    """

    name: str
    op: str
    format: Format
    why: Reason
    because: tuple[Note, ...] = field(compare=False)  # read back, it is the words that were written
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def cause(self) -> str:
        """What happens at the node, or who wants it, in words."""
        return say(self.because[0]) if self.because else ""

    @property
    def measured(self) -> str:
        """What was measured without the node in FP32, in words."""
        return "; ".join(say_all(self.because[1:]))

    @property
    def reason(self) -> str:
        """Why, in words."""
        return "; ".join(say_all(self.because))

    def document(self) -> PlannedRecord:
        return PlannedRecord(self.name, self.op, self.format.value, self.why, self.reason, self.numbers)


@dataclass(frozen=True, repr=False)
class Plan(Documented):
    """A decision, ready to be applied again to the same model. An empty `sha256` means any model with these nodes."""

    model: str
    sha256: str
    node_count: int
    target: str
    profile: str
    tolerance: Tolerance
    io_types: Format
    inputs: str
    nodes: tuple[PlannedNode, ...]
    repairs: tuple[RepairRecord, ...] = ()
    data_sha256: str = ""  # of the external data, where the model has some
    graph_sha256: str = ""  # of the graph without its weights; not stated by older plans and by those made by hand
    reference_sha256: str = ""  # of the FP32 original that judged, where one was given
    io_formats: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # layouts of inputs and outputs, not plain
    rollout: Rollout | None = None  # many steps in a row, where these were judged
    profile_sha256: str = ""  # of the machine file that `profile` names, where it names one

    def document(self) -> PlanDocument:
        return PlanDocument(
            model=ModelRecord(
                path=self.model,
                sha256=self.sha256,
                nodes=self.node_count,
                data_sha256=self.data_sha256 or LEFT_OUT,
                graph_sha256=self.graph_sha256 or LEFT_OUT,
                reference_sha256=self.reference_sha256 or LEFT_OUT,
            ),
            target=self.target,
            profile=self.profile,
            profile_sha256=self.profile_sha256 or LEFT_OUT,
            tolerance=self.tolerance.to_json(),
            output_kinds=self.tolerance.kinds or LEFT_OUT,
            metric=self.tolerance.measure or LEFT_OUT,
            io_types=self.io_types.value,
            io_formats=self.io_formats or LEFT_OUT,
            inputs=self.inputs,
            rollout=LEFT_OUT if self.rollout is None else _question(self.rollout),
            fp32_nodes=tuple(StatedNode(**structs.asdict(node.document())) for node in self.nodes),
            repairs=self.repairs,
        )

    def summary(self) -> Summary:
        kept = counted(len(self.nodes), "node")
        headline = f"plan for {self.model or 'a model'} on {self.target}: {kept} out of FP16"
        if self.repairs:
            headline += f", {counted(len(self.repairs), 'repair')}"
        rows = tuple((node.name, node.op, node.format.value, str(node.why), node.reason) for node in self.nodes)
        return Summary(headline, ("node", "operator", "format", "why", "reason"), rows)

    def text(self, folder: Path | None = None) -> str:
        """JSON that people read; what no letter stands for, as in a file's name of bytes, is an escape.

        A machine file is named from the `folder` that the plan is written into.
        """
        told = self
        if folder is not None and self.profile.endswith(_MACHINE_FILE):
            told = replace(self, profile=seen_from(folder, Path(self.profile)).as_posix())
        text = json.dumps(told.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        return text.encode("utf-8", "backslashreplace").decode("utf-8")

    def has_graph_of(self, model: Model) -> bool:
        """Whether it was made for this graph, whatever its weights."""
        if not self.graph_sha256:
            return bool(self.sha256) and self.sha256 == model.sha256
        return self.graph_sha256 == graph_sha256(model)

    def fitted(self, model: Model) -> Plan:
        """The plan for this model; of its graph with other weights it names none. Another graph is refused."""
        same_file = self.sha256 == model.sha256
        if same_file and (not self.data_sha256 or model.has_data(self.data_sha256)):
            return self
        if self.has_graph_of(model):
            return replace(self, sha256="", data_sha256="")
        known = model.node_by_name
        missing = [node.name for node in self.nodes if node.name not in known]
        if not self.sha256:
            if missing:
                raise InputError(f"the plan names a node {missing[0]!r}, and the model has none of that name")
            return self
        if missing:
            raise InputError(
                f"the plan is for another model: {len(missing)} of its {counted(len(self.nodes), 'node')} are not in "
                f"this one ({listed(missing)}); run fix without --plan"
            )
        if self.node_count != model.stored_nodes:
            raise InputError(
                f"the plan is for another model: that one has {counted(self.node_count, 'node')}, this one "
                f"{model.stored_nodes}; run fix without --plan"
            )
        differ = "names, wiring, attributes or shapes differ" if self.graph_sha256 else "other weights or attributes"
        raise InputError(
            f"the plan is for another model: its file's sha256 begins with {self.sha256[:12]}, this one's with "
            f"{model.sha256[:12]} (as many nodes; {differ}); run fix without --plan"
        )


def read_plan(path: str | Path) -> Plan:
    """Read a plan file; anything unfit raises one clear InputError.

    A plan written by hand needs nothing but `schema` and `fp32_nodes`, which may hold bare node names: it then fits
    every model that has these nodes, and what it leaves out has its usual value.
    """
    path = Path(path)
    try:
        document = read_json(path)
    except FileNotFoundError:
        raise absent(path, "plan") from None
    except OSError as error:
        raise InputError(f"{path}: the plan cannot be read: {error.strerror}") from None
    except ValueError as error:
        told = f"{path} is not a plan: it is not valid JSON ({error})"
        raise InputError(not_wanted(path, "a plan", told)) from None
    schema = document.get("schema") if isinstance(document, dict) else None
    if isinstance(schema, str) and schema.startswith(_ANY_SCHEMA) and schema != _SCHEMA:
        raise InputError(f"{path} is a plan of another version, {schema!r}; this halfwise reads {_SCHEMA!r}: update it")
    if schema != _SCHEMA:
        raise InputError(not_wanted(path, "a plan", f"{path} is not a plan (no schema {_SCHEMA!r} in it)"))
    planned = read(document, PlanDocument, f"{path} is not a plan")
    try:
        plan = _plan(planned)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return replace(plan, profile=_machine_file(plan.profile, path.parent))


def _machine_file(profile: str, folder: Path) -> str:
    """A plan in `folder` names its machine file from there; or both were moved, or it was named as one worked then."""
    if not profile.endswith(_MACHINE_FILE):
        return profile
    places = (folder / profile, folder / Path(profile).name)
    return next((os.path.normpath(place) for place in places if place.exists()), profile)


def _plan(stated: PlanDocument) -> Plan:
    nodes = tuple(_planned(entry) for entry in stated.fp32_nodes)
    names = [node.name for node in nodes]
    if len(set(names)) < len(names):
        twice = next(name for index, name in enumerate(names) if name in names[:index])
        raise InputError(f"fp32_nodes names {twice!r} twice; name it once")
    return Plan(
        model=stated.model.path,
        sha256=stated.model.sha256,
        node_count=stated.model.nodes,
        target=stated.target,
        profile=stated.profile,
        profile_sha256=stated.profile_sha256 or "",
        tolerance=replace(
            Tolerance.from_json(stated.tolerance) if stated.tolerance else Tolerance.default(),
            kinds=tuple(stated.output_kinds or ()),
            measure=_ready(stated.metric or ""),
        ),
        io_types=FORMATS[stated.io_types],
        inputs=stated.inputs,
        nodes=nodes,
        repairs=stated.repairs,
        data_sha256=stated.model.data_sha256 or "",
        graph_sha256=stated.model.graph_sha256 or "",
        reference_sha256=stated.model.reference_sha256 or "",
        io_formats=stated.io_formats or {},
        rollout=None if stated.rollout is LEFT_OUT else _rollout(stated.rollout),
    )


def _ready(measure: str) -> str:
    """Nothing that a plan names is imported: a function of the user's they name themselves."""
    if measure and measure_named(measure) is None:
        raise InputError(f"metric: {measure!r} is no ready measure; give a function of your own with --metric")
    return measure


def _question(rollout: Rollout) -> RolloutQuestion:
    return RolloutQuestion(rollout.steps, {state: output for output, state in rollout.feedback})


def _rollout(stated: RolloutQuestion) -> Rollout | None:
    return rollout_of(stated.steps, [f"{output}={state}" for state, output in stated.feedback.items()])


def _planned(entry: str | StatedNode) -> PlannedNode:
    stated = StatedNode(entry) if isinstance(entry, str) else entry
    told = _ASKED if stated.reason is LEFT_OUT else Note.of(NoteKind.AS_STATED, text=stated.reason)
    return PlannedNode(stated.name, stated.op, FORMATS[stated.format], _reason(stated), (told,), stated.numbers)


def _reason(stated: StatedNode) -> Reason:
    try:
        return Reason(stated.why)
    except ValueError:
        allowed = ", ".join(Reason)
        raise InputError(f"fp32_nodes: node {stated.name!r}: why: {stated.why!r} is not one of {allowed}") from None
