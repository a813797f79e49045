"""TensorRT and TensorRT-RTX: strongly typed decisions are compiled, and a command and a script are written."""

from __future__ import annotations

from functools import partial

from halfwise.compiler.compiled import compile_and_adjust
from halfwise.core.targets import Target, Typing
from halfwise.deploy.deploy_files import DeployFiles, Handover
from halfwise.deploy.engine_files import compiles_itself, deploy
from halfwise.deploy.targets.kind import Compile
from halfwise.deploy.targets.plain import PlainTarget

__all__ = ["TensorRT"]


class TensorRT(PlainTarget):
    def compiler(self, target: Target) -> Compile | None:
        """TensorRT-RTX, which needs no GPU; it is strongly typed only."""
        return partial(compile_and_adjust, own=compiles_itself(target)) if target.typing is Typing.STRONG else None

    def deploy(self, handover: Handover) -> DeployFiles:
        return deploy(handover)
