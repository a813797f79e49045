"""A model cut at its modules: every stage alone and chained, which one is wrong, and the node in it."""

from halfwise.verbs.stages.result import Run, Stage, StagesResult, Upto
from halfwise.verbs.stages.run import stages

__all__ = ["Run", "Stage", "StagesResult", "Upto", "stages"]
