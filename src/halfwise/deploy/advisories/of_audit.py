"""The advisories of an audited engine: for the target that its build log, its plan or the user names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from halfwise.core.errors import InputError
from halfwise.core.targets import Fit, Gpu, Target, Typing
from halfwise.deploy.advisories.entries import Entry
from halfwise.deploy.advisories.matcher import Advisory, match
from halfwise.deploy.advisories.model_facts import ModelFacts, facts_of_layers, facts_of_model

if TYPE_CHECKING:
    from halfwise.compiler.buildlog.report import LogReport
    from halfwise.compiler.layers_fields import EngineLayers

__all__ = ["advisories_of_engine", "summary", "target_of_log"]


def target_of_log(log: LogReport) -> Target | None:
    """The target that a build log states; None where it states no version, or one that is not known here."""
    target = None if log.trt_version is None else Target.of_builder(log.trt_version)
    if target is None:
        return None
    weak = log.strongly_typed is False and Typing.WEAK in target.typings
    return Target(target.runtime, target.version, Typing.WEAK if weak else target.typing, _gpu(log))


def advisories_of_engine(target: Target, layers: EngineLayers, model: Path | None) -> tuple[Advisory, ...]:
    """What is known of the target that this engine can meet: by its kernels, and by its model's operators if given."""
    if target.runtime.builder is None:
        return ()
    engine = facts_of_layers(layers)
    nodes = facts_of_model(model).nodes if model is not None else None
    return match(target, ModelFacts(nodes, engine.kernels, engine.kernels_hidden))


def summary(target: Target, advisories: Iterable[Advisory]) -> str:
    """In one line, what surely applies by name and the rest by number; what holds for any build is left out.

    Empty where nothing is left.
    """
    told = [advisory for advisory in advisories if _speaks_of_engine(advisory.entry)]
    if not told:
        return ""
    sure = [advisory.entry.id for advisory in told if advisory.applies is Fit.YES]
    unsure = len(told) - len(sure)
    where = f" on {target.gpu}" if target.gpu else ""
    listed = f"{', '.join(sure)} appl{'y' if len(sure) > 1 else 'ies'}" if sure else "none surely applies"
    return f"known for {target.title}{where}: {listed}" + (f", {unsure} may apply" if unsure else "")


def _speaks_of_engine(entry: Entry) -> bool:
    general = not (entry.ops or entry.kernels or entry.gpus)
    return entry.kind in ("defect", "report") or (entry.kind == "behaviour" and not general)


def _gpu(log: LogReport) -> Gpu | None:
    """By its name ("Tesla T4"), a word of it ("NVIDIA A100-SXM4-40GB"), or else by its compute capability alone."""
    device = log.device or ""
    stated = f"sm_{log.capability.replace('.', '')}" if log.capability else ""
    capability = _parsed(stated)
    for text in (device, *re.split(r"[\s-]+", device)):
        found = _parsed(text)
        if found is not None and (capability is None or found.capability == capability.capability):
            return found
    return capability


def _parsed(text: str) -> Gpu | None:
    try:
        return Gpu.parse(text) if text else None
    except InputError:
        return None
