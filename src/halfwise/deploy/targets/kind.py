"""What a target is: one object that holds its facts, the profile that judges, and what is done for it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from halfwise.compiler.compiled import Compiled
from halfwise.core.targets import Runtime, Target
from halfwise.deploy.deploy_files import DeployFiles, Handover
from halfwise.emulation.profiles import Profile
from halfwise.precision.assignment import Assignment
from halfwise.precision.decision import Adjustment, Decision

__all__ = ["Compile", "TargetKind"]

Compile = Callable[..., Compiled]  # with the arguments of `compile_and_adjust`


class TargetKind(Protocol):
    """All targets of one runtime; `PlainTarget` has the usual answers."""

    @property
    def runtime(self) -> Runtime:
        """Its name, versions, typing, formats, and what its parser reads."""
        ...

    @property
    def profile(self) -> Profile:
        """It judges, and so do the profiles `beside` it; the worst result counts."""
        ...

    @property
    def on_cpu(self) -> bool:
        """Whether the model may also run on ONNX Runtime's CPU provider."""
        ...

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
        ...

    def as_written(self, assignment: Assignment) -> Assignment:
        """The decision as the model is written in it: nodes may stand in another order where the runtime needs that."""
        ...

    def compiler(self, target: Target) -> Compile | None:
        """What compiles a decision as the target does, or nearly so; None where nothing can without a GPU."""
        ...

    def deploy(self, handover: Handover) -> DeployFiles:
        """Write what the target needs beside the typed model."""
        ...
