"""Scan: what can be known of a model's FP16 numerics without running it."""

from __future__ import annotations

from pathlib import Path

import onnx

from halfwise.finding import Severity
from halfwise.model import Model, load
from halfwise.patterns import find_patterns
from halfwise.patterns.view import View
from halfwise.scan.constants import constant_findings
from halfwise.scan.pattern_findings import pattern_findings
from halfwise.scan.result import ModelFacts, ScanResult
from halfwise.scan.type_findings import type_findings
from halfwise.scan.weight_findings import weight_findings
from halfwise.scan.weights import InitializerCounts, count_initializers
from halfwise.sites import Sites

__all__ = ["InitializerCounts", "ModelFacts", "ScanResult", "scan"]

_RANK: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}


def scan(model: str | Path | onnx.ModelProto | Model) -> ScanResult:
    """Count the weights that FP16 holds badly, find risky constants, patterns and types; most severe findings first."""
    model = model if isinstance(model, Model) else load(model)
    view, sites = View(model), Sites(model)
    counted = count_initializers(model)
    patterns = find_patterns(model)
    constants, explained = constant_findings(view, sites, counted)
    findings = [
        *weight_findings(view, sites, counted, explained),
        *constants,
        *pattern_findings(patterns),
        *type_findings(model, patterns),
    ]
    findings.sort(key=lambda finding: (_RANK[finding.severity], finding.rule))
    facts = ModelFacts(
        path=str(model.path) if model.path is not None else None,
        nodes=len(model.nodes),
        opset=model.opset(),
        weight_bytes=model.weight_bytes,
    )
    return ScanResult(tuple(entry for _, entry in counted), tuple(findings), patterns, facts)
