"""A target that adjusts nothing, compiles nothing and deploys nothing: others say where they differ."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from halfwise.core.targets import Runtime, Target
from halfwise.deploy.deploy_files import DeployFiles, Handover
from halfwise.deploy.targets.kind import Compile
from halfwise.emulation.profiles import Profile
from halfwise.precision.assignment import Assignment
from halfwise.precision.decision import Adjustment, Decision

__all__ = ["PlainTarget"]


@dataclass(frozen=True)
class PlainTarget:
    runtime: Runtime
    profile: Profile
    on_cpu: bool = False

    def adjust(
        self,
        target: Target,
        decision: Decision,
        ratio: Callable[[Assignment], float],
        *,
        stated: Collection[str] = (),
        given: bool = False,
    ) -> Adjustment:
        return Adjustment(decision)

    def as_written(self, assignment: Assignment) -> Assignment:
        return assignment

    def compiler(self, target: Target) -> Compile | None:
        return None

    def deploy(self, handover: Handover) -> DeployFiles:
        return DeployFiles()
