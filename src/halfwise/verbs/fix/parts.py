"""What the main job decided, and what it wrote."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from halfwise.deploy.deploy_files import DeployFiles
from halfwise.model.inputs.samples import Samples
from halfwise.model.model import Model
from halfwise.precision.plan import Plan, PlannedNode
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import TypedModel

__all__ = ["FixDecision", "FixFiles"]


@dataclass(frozen=True, eq=False)
class FixDecision:
    """The model as given, the plan for it, and the nodes that no plan can narrow; `sites` are of the repaired model.

    `given`: the plan was not searched for.
    """

    model: Model
    plan: Plan
    sites: Sites
    pinned: tuple[PlannedNode, ...]
    samples: Samples
    given: bool = False


@dataclass(frozen=True, eq=False)
class FixFiles:
    """Paths are None where nothing was written."""

    typed: TypedModel | None = None
    plan_path: Path | None = None
    deploy_files: DeployFiles = field(default_factory=DeployFiles)
    report: Path | None = None
    samples: Path | None = None  # the folder that the build script runs its engine on
