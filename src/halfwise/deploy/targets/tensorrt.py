"""TensorRT and TensorRT-RTX: strongly typed decisions are compiled, and a command and a script are written."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from halfwise.compiler.compiled import compile_and_adjust
from halfwise.core.targets import Target, Typing
from halfwise.deploy.deploy_files import DeployFiles, Handover
from halfwise.deploy.engine_files import compiles_itself, deploy
from halfwise.deploy.recurrent_lengths import keep_lengths
from halfwise.deploy.targets.kind import Compile
from halfwise.deploy.targets.plain import PlainTarget
from halfwise.precision.assignment import Assignment
from halfwise.precision.decision import Adjustment, Decision

__all__ = ["TensorRT"]


class TensorRT(PlainTarget):
    def adjust(
        self,
        target: Target,
        decision: Decision,
        ratio: Callable[[Assignment], float],
        *,
        stated: Collection[str] = (),
        given: bool = False,
    ) -> Adjustment:
        if given or target.typing is not Typing.STRONG:
            return Adjustment(decision)
        return keep_lengths(decision, stated)

    def compiler(self, target: Target) -> Compile | None:
        """TensorRT-RTX, which needs no GPU; it is strongly typed only."""
        if target.typing is not Typing.STRONG:
            return None
        reads = target.runtime.reads_since
        return partial(compile_and_adjust, own=compiles_itself(target), reads=reads, title=target.title)

    def deploy(self, handover: Handover) -> DeployFiles:
        return deploy(handover)
