"""Scan: what can be known of a model's or a checkpoint's FP16 numerics without running it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import onnx
import onnx_ir as ir

from halfwise.core.finding import most_severe_first
from halfwise.core.formats import Format
from halfwise.model.checkpoints import is_checkpoint, read_checkpoint
from halfwise.model.elements import Elements
from halfwise.model.fp32_model import fp32_model, kept_wide
from halfwise.model.known_operators import not_run
from halfwise.model.model import Model, load
from halfwise.model.patterns import find_patterns
from halfwise.model.patterns.view import View
from halfwise.model.runnable_part import part_command
from halfwise.precision.sites import Sites, native_format
from halfwise.verbs.scan.checkpoint import scan_checkpoint
from halfwise.verbs.scan.constants import constant_findings
from halfwise.verbs.scan.pattern_findings import pattern_findings
from halfwise.verbs.scan.result import CheckpointFacts, ModelFacts, ScanResult
from halfwise.verbs.scan.roles import readings
from halfwise.verbs.scan.rounding import Rounding
from halfwise.verbs.scan.rounding import rounding as measure_rounding
from halfwise.verbs.scan.stored_findings import stored_findings
from halfwise.verbs.scan.training import training_advice
from halfwise.verbs.scan.type_findings import type_findings
from halfwise.verbs.scan.values_done import values_done
from halfwise.verbs.scan.weight_findings import channel_axis, weight_findings
from halfwise.verbs.scan.weights import InitializerCounts, count_initializers

__all__ = ["CheckpointFacts", "InitializerCounts", "ModelFacts", "ScanResult", "scan"]


def scan(
    source: str | Path | onnx.ModelProto | Model,
    *,
    rounding: bool = False,
    notify: Callable[[int, int], None] = lambda done, total: None,
) -> ScanResult:
    """Count the weights that FP16 holds badly, find risky constants, patterns and types; most severe findings first.

    `source` is an ONNX model, or a checkpoint: safetensors, PyTorch's `.pt` and `.pth`, or a folder or index of their
    shards, of which only the weights can be judged. With `rounding`, what rounding does is measured of every weight.
    `notify` gets the values done and their total; those that are rounded, too, count twice.
    """
    if isinstance(source, (str, Path)) and is_checkpoint(Path(source)):
        return scan_checkpoint(read_checkpoint(Path(source)), rounding, notify)
    model = fp32_model(source if isinstance(source, Model) else load(source))
    view, sites = View(model), Sites(model)
    passes = 2 if rounding else 1
    counted = count_initializers(model, lambda done, total: notify(done, passes * total))
    patterns, wide = find_patterns(model), kept_wide(model)
    full = [(value, entry) for value, entry in counted if native_format(value) is Format.FP32]
    constants, explained = constant_findings(view, sites, full)
    of_weights, statistics = weight_findings(view, sites, full, explained)
    findings = [
        *of_weights,
        *stored_findings(counted),
        *constants,
        *pattern_findings([pattern for pattern in patterns if pattern.anchor not in wide]),
        *type_findings(model, patterns),
    ]
    if rounding:
        statistics.update(_every_rounding(view, sites, counted, statistics, notify))
    model.stamps.check()
    facts = ModelFacts(
        path=str(model.path) if model.path is not None else None,
        nodes=len(model.nodes),
        opset=model.stored_opset,
        weight_bytes=model.weight_bytes,
        next=_next(model),
    )
    entries = tuple(replace(entry, rounding=statistics.get(entry.name)) for _, entry in counted)
    ordered = most_severe_first(findings)
    return ScanResult(entries, ordered, patterns, facts, training_advice(ordered, patterns, model))


def _next(model: Model) -> tuple[str, ...]:
    if model.path is None:
        return ()
    node = next(iter(not_run(model.nodes)), None)
    if node is not None:
        return part_command(model, model.path, node)
    return ("halfwise", "fix", str(model.path), "--inputs", "SAMPLES", "--out", "fixed")


def _every_rounding(
    view: View,
    sites: Sites,
    counted: list[tuple[ir.Value, InitializerCounts]],
    known: Mapping[str, Rounding],
    notify: Callable[[int, int], None],
) -> Iterator[tuple[str, Rounding]]:
    values = sum(entry.counts.count for _, entry in counted)
    done = values_done(values, lambda done, total: notify(values + done, values + total))
    for value, entry in counted:
        tensor = value.const_value
        if tensor is not None and entry.name not in known:
            shape = tuple(int(dim) for dim in tensor.shape.numpy())
            axis = channel_axis(readings(view, sites, value), len(shape))
            yield entry.name, measure_rounding(Elements(tensor), shape, axis, done)
        else:
            done(entry.counts.count)
