"""The scan of a checkpoint: weights without a graph, judged by what their names and shapes tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from halfwise.core.finding import Finding, most_severe_first
from halfwise.model.checkpoints import Checkpoint, StoredTensor
from halfwise.model.elements import count_all
from halfwise.verbs.scan.result import CheckpointFacts, ScanResult
from halfwise.verbs.scan.rounding import rounding
from halfwise.verbs.scan.training import training_advice
from halfwise.verbs.scan.values_done import values_done
from halfwise.verbs.scan.weight_findings import Usage, gathered, harmed, judge, summary
from halfwise.verbs.scan.weights import InitializerCounts

__all__ = ["scan_checkpoint"]

# Added, or statistics that are folded before anything runs: their smallness is no loss.
_ADDED = ("bias", "bias_ih", "bias_hh", "beta", "running_mean", "running_var", "num_batches_tracked")


def scan_checkpoint(checkpoint: Checkpoint, every_rounding: bool, notify: Callable[[int, int], None]) -> ScanResult:
    """Count every tensor once, and judge each as the factor that its name says it is."""
    values = sum(tensor.elements.size for tensor in checkpoint.tensors)
    done = values_done((2 if every_rounding else 1) * values, notify)
    counts = count_all([tensor.elements for tensor in checkpoint.tensors], done)
    entries: list[InitializerCounts] = []
    findings: list[Finding] = []
    for tensor, of in zip(checkpoint.tensors, counts, strict=True):
        entry = InitializerCounts(tensor.name, of, tensor.dtype)
        usage = _usage(tensor)
        if entry.affected:
            found, change = judge(tensor.name, of, tensor.elements, tensor.shape, usage)
            findings.extend(found)
            entry = replace(entry, rounding=change)
        if every_rounding and entry.rounding is None:
            entry = replace(entry, rounding=rounding(tensor.elements, tensor.shape, usage.axis, done))
        elif every_rounding:
            done(of.count)
        entries.append(entry)
    affected = [entry.counts for entry in entries if entry.affected and entry.dtype != "fp16"]
    facts = CheckpointFacts(
        path=str(checkpoint.path),
        files=len(checkpoint.files),
        other=len(checkpoint.other_names),
        shared=sum(len(tensor.aliases) for tensor in checkpoint.tensors),
        notes=checkpoint.notes,
    )
    told = [*summary(affected, len(entries), harmed(findings)), *gathered(findings)]
    ordered = most_severe_first(told)
    return ScanResult(tuple(entries), ordered, (), facts, training_advice(ordered, (), None))


def _usage(tensor: StoredTensor) -> Usage:
    """PyTorch's layers keep their output channels first; of what is added, only its range can matter."""
    last = tensor.name.rpartition(".")[2]
    added = any(last == name or last.startswith(f"{name}_l") for name in _ADDED) or last.endswith("_bias")
    return Usage(scales=not added, axis=0 if len(tensor.shape) > 1 else None)
