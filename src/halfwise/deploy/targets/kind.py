"""What a target is: one object that holds its facts, the profile that judges, and what is done for it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from halfwise.compiler.compiled import Compiled
from halfwise.core.targets import Runtime, Target
from halfwise.deploy.deploy_files import DeployFiles, Handover
from halfwise.emulation.profiles import Profile
from halfwise.precision.assignment import Assignment
from halfwise.precision.decision import Adjustment, Decision

__all__ = ["Compile", "TargetKind"]

Compile = Callable[..., Compiled]  # with the arguments of `compile_and_adjust`


@dataclass(frozen=True)
class TargetKind:
    """All targets of one runtime. By itself a kind adjusts nothing, compiles nothing and deploys nothing.

    `profile` judges, and so do the profiles `beside` it; the worst result counts. `on_cpu`: the model may also run on
    ONNX Runtime's CPU provider.
    """

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
        """What suits the target; of a decision that is `given`, only what there is to say.

        `ratio` measures: what is changed may not come out worse than before, or than what is allowed. Nodes that are
        `stated` by the user stay as they are.
        """
        return Adjustment(decision)

    def as_written(self, assignment: Assignment) -> Assignment:
        """The decision as the model is written in it: nodes may stand in another order where the runtime needs that."""
        return assignment

    def compiler(self, target: Target) -> Compile | None:
        """What compiles a decision as the target does, or nearly so; None where nothing can without a GPU."""
        return None

    def deploy(self, handover: Handover) -> DeployFiles:
        """Write what the target needs beside the typed model."""
        return DeployFiles()
