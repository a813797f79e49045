"""The plan: which nodes stay out of FP16 and why, for which model, target and tolerance; a JSON file to commit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from halfwise.errors import InputError
from halfwise.formats import Format
from halfwise.model import Model
from halfwise.tolerance import Tolerance

__all__ = ["Plan", "PlannedNode", "read_plan"]

SCHEMA = "halfwise.plan/1"


@dataclass(frozen=True)
class PlannedNode:
    """A node that does not run in FP16: its format, why, and the numbers behind it.

    `why` is one of: overflow, rounding (measured: putting the node back breaks the tolerance), margin (within the
    tolerance without it, but too near for inputs not seen), unproven (not measured alone), pinned (it cannot narrow).
    """

    name: str
    op: str
    format: Format
    why: str
    reason: str
    numbers: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "op": self.op,
            "format": self.format.value,
            "why": self.why,
            "reason": self.reason,
            "numbers": dict(self.numbers),
        }


@dataclass(frozen=True)
class Plan:
    """A decision, ready to be applied again to the same model."""

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

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "model": {"path": self.model, "sha256": self.sha256, "nodes": self.node_count},
            "target": self.target,
            "profile": self.profile,
            "tolerance": self.tolerance.to_json(),
            "io_types": self.io_types.value,
            "inputs": self.inputs,
            "fp32_nodes": [node.to_json() for node in self.nodes],
            "repairs": [dict(repair) for repair in self.repairs],
        }

    def text(self) -> str:
        return json.dumps(self.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def check(self, model: Model) -> None:
        """Refuse a plan that was made for another model, naming the difference."""
        if self.sha256 == model.sha256:
            return
        known = model.node_by_name
        missing = [node.name for node in self.nodes if node.name not in known]
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


def read_plan(path: Path) -> Plan:
    """Read a plan file; anything unfit raises one clear InputError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such plan") from None
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{path} is not a plan: {error}") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise InputError(f"{path} is not a plan (no schema {SCHEMA!r} in it)")
    try:
        return Plan(
            model=str(document["model"]["path"]),
            sha256=str(document["model"]["sha256"]),
            node_count=int(document["model"]["nodes"]),
            target=str(document["target"]),
            profile=str(document["profile"]),
            tolerance=Tolerance.from_json(document["tolerance"]),
            io_types=Format(document["io_types"]),
            inputs=str(document["inputs"]),
            nodes=tuple(_planned(entry) for entry in document["fp32_nodes"]),
            repairs=tuple(document.get("repairs", ())),
        )
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except KeyError as error:
        raise InputError(f"{path} is not a plan: it lacks {error.args[0]!r}") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path} is not a plan: {error}") from None


def _planned(entry: Any) -> PlannedNode:
    if isinstance(entry, str):  # written by hand: just the name
        return PlannedNode(entry, "", Format.FP32, "wanted", "asked for in the plan")
    return PlannedNode(
        name=str(entry["name"]),
        op=str(entry.get("op", "")),
        format=Format(entry.get("format", "fp32")),
        why=str(entry.get("why", "wanted")),
        reason=str(entry.get("reason", "asked for in the plan")),
        numbers={str(k): float(v) for k, v in entry.get("numbers", {}).items()},
    )
