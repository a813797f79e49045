"""The border of a model: what handing its inputs over in FP16, or in another memory layout, does."""

from __future__ import annotations

from halfwise.border.inputs import InputEffect, input_effects, input_findings, measured_effects, refuse_ids
from halfwise.border.layouts import Layouts, layouts_of

__all__ = ["InputEffect", "Layouts", "input_effects", "input_findings", "layouts_of", "measured_effects", "refuse_ids"]
