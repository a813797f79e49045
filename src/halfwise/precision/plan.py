"""The plan: which nodes stay out of FP16 and why, for which model, target and tolerance; a JSON file to commit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from halfwise.core.english import say, say_all
from halfwise.core.errors import InputError
from halfwise.core.formats import FORMATS, Format, format_named
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.core.targets import DEFAULT_TARGET, STRICT_PROFILE
from halfwise.core.tolerance import Tolerance
from halfwise.model.model import Model

__all__ = ["Plan", "PlannedNode", "read_plan"]

SCHEMA = "halfwise.plan/1"

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

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "op": self.op,
            "format": self.format.value,
            "why": self.why.value,
            "reason": self.reason,
            "numbers": dict(self.numbers),
        }


@dataclass(frozen=True)
class Plan:
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
    repairs: tuple[Mapping[str, Any], ...] = ()
    data_sha256: str = ""  # of the external data, where the model has some
    graph_sha256: str = ""  # of the graph without its weights; not stated by older plans and by those made by hand
    io_formats: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # layouts of inputs and outputs, not plain

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "model": {
                "path": self.model,
                "sha256": self.sha256,
                "nodes": self.node_count,
                **({"data_sha256": self.data_sha256} if self.data_sha256 else {}),
                **({"graph_sha256": self.graph_sha256} if self.graph_sha256 else {}),
            },
            "target": self.target,
            "profile": self.profile,
            "tolerance": self.tolerance.to_json(),
            "io_types": self.io_types.value,
            **({"io_formats": {name: list(each) for name, each in self.io_formats.items()}} if self.io_formats else {}),
            "inputs": self.inputs,
            "fp32_nodes": [node.to_json() for node in self.nodes],
            "repairs": [dict(repair) for repair in self.repairs],
        }

    def text(self) -> str:
        """JSON that people read; what no letter stands for, as in a file's name of bytes, is an escape."""
        text = json.dumps(self.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        return text.encode("utf-8", "backslashreplace").decode("utf-8")

    def check(self, model: Model) -> None:
        """Refuse a plan that was made for another model, naming the difference."""
        if self.sha256 and self.sha256 == model.sha256:
            if self.data_sha256 and self.data_sha256 != model.data_sha256:
                raise InputError(
                    "the plan is for another model: the same file, but other weights in its external data; "
                    "run fix without --plan"
                )
            return
        known = model.node_by_name
        missing = [node.name for node in self.nodes if node.name not in known]
        if not self.sha256:
            if missing:
                raise InputError(f"the plan names a node {missing[0]!r}, and the model has none of that name")
            return
        if missing:
            shown = ", ".join(repr(name) for name in missing[:3]) + (" ..." if len(missing) > 3 else "")
            raise InputError(
                f"the plan is for another model: {len(missing)} of its {len(self.nodes)} nodes are not in this one "
                f"({shown}); run fix without --plan"
            )
        if self.node_count != model.stored_nodes:
            raise InputError(
                f"the plan is for another model: that one has {self.node_count} nodes, this one {model.stored_nodes}; "
                "run fix without --plan"
            )
        raise InputError(
            f"the plan is for another model: its file's sha256 begins with {self.sha256[:12]}, this one's with "
            f"{model.sha256[:12]} (the same nodes, other weights or attributes); run fix without --plan"
        )


def read_plan(path: str | Path) -> Plan:
    """Read a plan file; anything unfit raises one clear InputError.

    A plan written by hand needs nothing but `schema` and `fp32_nodes`, which may hold bare node names: it then fits
    every model that has these nodes, and what it leaves out has its usual value.
    """
    path = Path(path)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such plan") from None
    except OSError as error:
        raise InputError(f"{path}: the plan cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not a plan: it is not valid JSON ({error})") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise InputError(f"{path} is not a plan (no schema {SCHEMA!r} in it)")
    try:
        return _read(document)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"{path} is not a plan: {error}") from None


def _read(document: Mapping[str, Any]) -> Plan:
    model = _object(document, "model")
    entries = document.get("fp32_nodes")
    if not isinstance(entries, list):
        raise InputError("not a plan: it has no list 'fp32_nodes'")
    nodes = tuple(_planned(entry, index) for index, entry in enumerate(entries))
    names = [node.name for node in nodes]
    if len(set(names)) < len(names):
        twice = next(name for index, name in enumerate(names) if name in names[:index])
        raise InputError(f"not a plan: fp32_nodes names {twice!r} twice")
    tolerance = document.get("tolerance")
    return Plan(
        model=str(model.get("path", "")),
        sha256=str(model.get("sha256", "")),
        node_count=int(model.get("nodes", 0)),
        target=str(document.get("target", DEFAULT_TARGET)),
        profile=str(document.get("profile", STRICT_PROFILE)),
        tolerance=Tolerance.default() if tolerance is None else Tolerance.from_json(tolerance),
        io_types=_format(document.get("io_types", "fp32"), "io_types"),
        inputs=str(document.get("inputs", "")),
        nodes=nodes,
        repairs=tuple(document.get("repairs", ())),
        data_sha256=str(model.get("data_sha256", "")),
        graph_sha256=str(model.get("graph_sha256", "")),
        io_formats={name: _layouts(name, value) for name, value in _object(document, "io_formats").items()},
    )


def _planned(entry: Any, index: int) -> PlannedNode:
    if isinstance(entry, str):  # written by hand: just the name
        entry = {"name": entry}
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise InputError(f"not a plan: fp32_nodes[{index}] is neither a node's name nor an object with a 'name'")
    return PlannedNode(
        name=entry["name"],
        op=str(entry.get("op", "")),
        format=_format(entry.get("format", "fp32"), f"node {entry['name']!r}"),
        why=_reason(entry.get("why", "wanted")),
        because=(Note.of(NoteKind.AS_STATED, text=str(entry["reason"])) if "reason" in entry else _ASKED,),
        numbers={str(k): float(v) for k, v in _object(entry, "numbers").items()},
    )


def _reason(value: Any) -> Reason:
    """What a person wrote there by hand is that person's decision."""
    try:
        return Reason(value)
    except ValueError:
        return Reason.WANTED


def _layouts(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(each, str) for each in value):
        raise InputError(f'not a plan: io_formats[{name!r}] is no list of layouts such as ["hwc8"]')
    return tuple(value)


def _object(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = document.get(key, {})
    if not isinstance(value, dict):
        raise InputError(f"not a plan: {key!r} is not an object")
    return value


def _format(value: Any, where: str) -> Format:
    fmt = format_named(value)
    if fmt is None:
        raise InputError(f"not a plan: {where}: {value!r} is not a format; there are {', '.join(FORMATS)}")
    return fmt
