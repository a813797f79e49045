"""What PyTorch's two exporters write is repaired, whichever of them wrote it and at which opset."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest

from halfwise.repair import Rule
from halfwise.repair.attention_scale import AttentionScale
from halfwise.repair.epsilons import EPSILONS
from halfwise.repair.fold_constants import FOLD_CONSTANTS
from halfwise.repair.masks import Masks
from halfwise.repair.norm_operator import NormOperator
from halfwise.repair.reductions import REDUCTIONS
from halfwise.repair.rescale import RESCALE
from halfwise.repair.stable_logs import STABLE_LOGS
from tests.support.repairing import effect

torch = pytest.importorskip("torch", reason="PyTorch is not installed: exporters cannot be asked")
pytest.importorskip("onnxscript", reason="onnxscript is not installed: PyTorch's newer exporter needs it")

WIDTH, HEADS = 16, 2
MATRICES = np.random.default_rng(0).standard_normal((3, WIDTH, WIDTH)).astype(np.float32)
MATRICES *= np.array([8e3, 3e-7, 25.0], np.float32)[:, None, None]


def layer_norm(x: Any, mask: Any) -> Any:
    c = x - x.mean(-1, keepdim=True)
    return c / torch.sqrt(c.pow(2).mean(-1, keepdim=True) + 1e-5)


def layer_norm_by_var(x: Any, mask: Any) -> Any:
    return (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-6)


def layer_norm_by_std(x: Any, mask: Any) -> Any:
    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6)


def rms_norm(x: Any, mask: Any) -> Any:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def channel_norm(x: Any, mask: Any) -> Any:
    c = x - x.mean(1, keepdim=True)
    return c / torch.sqrt((c * c).mean(1, keepdim=True) + 1e-6)


def rms_norm_by_reciprocal(x: Any, mask: Any) -> Any:
    return x * (1.0 / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6))


def rms_norm_by_power(x: Any, mask: Any) -> Any:
    return x * torch.pow(x.pow(2).mean(-1, keepdim=True) + 1e-6, -0.5)


def instance_norm(x: Any, mask: Any) -> Any:
    """Over rows and columns of maps whose channels come last."""
    maps = x.view(x.shape[0], 2, 3, WIDTH)
    c = maps - maps.mean((1, 2), keepdim=True)
    return (c * torch.rsqrt(c.pow(2).mean((1, 2), keepdim=True) + 1e-5)).view(x.shape)


def group_norm(x: Any, mask: Any) -> Any:
    groups = x.view(x.shape[0], 3, -1)
    c = groups - groups.mean(-1, keepdim=True)
    return (c * (groups.var(-1, keepdim=True, unbiased=False) + 1e-5).rsqrt()).view(x.shape)


def heads(x: Any) -> Any:
    return x.view(x.shape[0], x.shape[1], HEADS, WIDTH // HEADS).transpose(1, 2)


def masked(x: Any, mask: Any, lowest: float) -> Any:
    scores = heads(x) @ heads(x).transpose(-1, -2) / math.sqrt(WIDTH // HEADS)
    scores = scores + (1.0 - mask[:, None, None, :]) * lowest
    return torch.softmax(scores, -1) @ heads(x)


def masked_lowest(x: Any, mask: Any) -> Any:
    return masked(x, mask, torch.finfo(torch.float32).min)


def masked_billion(x: Any, mask: Any) -> Any:
    return masked(x, mask, -1e9)


def unmasked(x: Any, mask: Any) -> Any:
    return masked(x, mask, 0.0)


def soft_by_hand(x: Any, mask: Any) -> Any:
    power = torch.exp(x / 20.0)
    return power / power.sum(-1, keepdim=True)


def log_softmax(x: Any, mask: Any) -> Any:
    return torch.log(torch.softmax(x, -1))


def guarded_log_softmax(x: Any, mask: Any) -> Any:
    return torch.log(torch.softmax(x, -1).clamp(min=1e-12))


def log_sum_exp(x: Any, mask: Any) -> Any:
    return x - torch.log(torch.exp(x).sum(-1, keepdim=True))


def logit(x: Any, mask: Any) -> Any:
    return torch.logit(x.sigmoid(), eps=1e-5)


def unit(x: Any, mask: Any) -> Any:
    return torch.nn.functional.normalize(x * mask[..., None], dim=-1)


def share(x: Any, mask: Any) -> Any:
    """Of a sum that may be zero."""
    weights = x.abs() * mask[..., None]
    return weights / weights.sum(-1, keepdim=True).clamp(min=1e-12)


def mean_by_hand(x: Any, mask: Any) -> Any:
    return x.abs().sum(-1) / 1e5


def box_widths(x: Any, mask: Any) -> Any:
    """Of boxes decoded on a grid of pixels, corners stacked and taken apart again."""
    centre = (x.sigmoid() + torch.arange(WIDTH).float() * 30.0) * 8.0
    half = torch.exp(x * 0.5) / 2
    boxes = torch.stack((centre - half, x, centre + half), -1)
    return boxes[..., 2] - boxes[..., 0]


def tiny_weights(x: Any, mask: Any) -> Any:
    loud, tiny, last = (torch.from_numpy(matrix) for matrix in MATRICES)
    return torch.relu(torch.nn.functional.leaky_relu(x @ loud) @ tiny) @ last


CASES: dict[Callable[[Any, Any], Any], Rule] = {
    **dict.fromkeys((layer_norm, layer_norm_by_var, layer_norm_by_std, channel_norm, group_norm), NormOperator()),
    **dict.fromkeys((rms_norm, rms_norm_by_reciprocal, rms_norm_by_power, instance_norm), NormOperator()),
    **dict.fromkeys((masked_lowest, masked_billion), Masks()),
    **dict.fromkeys((unmasked, soft_by_hand), AttentionScale()),
    **dict.fromkeys((guarded_log_softmax, unit, share), EPSILONS),
    **dict.fromkeys((log_softmax, log_sum_exp, logit), STABLE_LOGS),
    mean_by_hand: REDUCTIONS,
    box_widths: FOLD_CONSTANTS,
    tiny_weights: RESCALE,
}
SIZES: dict[Callable[[Any, Any], Any], float] = {
    **dict.fromkeys((masked_lowest, masked_billion), 14.0), unmasked: 75.0, log_softmax: 9.0, guarded_log_softmax: 9.0,
    log_sum_exp: 4.0, logit: 4.0, unit: 3.0, share: 3.0, mean_by_hand: 7e3, box_widths: 1.0, tiny_weights: 3.0,
}  # fmt: skip
EXPORTERS = ((13, False), (17, False), (18, True), (23, True))


@cache
def exported(opset: int, dynamo: bool) -> onnx.ModelProto:
    """All functions in one model: an export takes longer than everything else here."""

    class Module(torch.nn.Module):  # type: ignore[name-defined,misc]
        def forward(self, x: Any, mask: Any) -> Any:
            return tuple(function(x, mask) + 0.0 * mask.sum() for function in CASES)

    example = (torch.randn(2, 6, WIDTH), torch.ones(2, 6))
    outputs = [f"{function.__name__}_out" for function in CASES]
    names = {"input_names": ["x", "mask"], "output_names": outputs, "opset_version": opset}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dynamo:
            program = torch.onnx.export(Module().eval(), example, dynamo=True, verbose=False, **names)
            proto = program.model_proto
            assert isinstance(proto, onnx.ModelProto)
            return proto
        buffer = io.BytesIO()
        axes = {"x": {0: "batch"}, "mask": {0: "batch"}}
        torch.onnx.export(Module().eval(), example, buffer, dynamo=False, dynamic_axes=axes, **names)
        return onnx.load_from_string(buffer.getvalue())


def alone(proto: onnx.ModelProto, output: str) -> onnx.ModelProto:
    """What leads to one output."""
    needed, nodes = {output}, []
    for each in reversed(proto.graph.node):
        if needed.intersection(each.output):
            needed.update(each.input)
            nodes.append(each)
    part = onnx.ModelProto()
    part.CopyFrom(proto)
    del part.graph.node[:], part.graph.output[:], part.graph.initializer[:]
    part.graph.node.extend(reversed(nodes))
    part.graph.output.extend(each for each in proto.graph.output if each.name == output)
    part.graph.initializer.extend(each for each in proto.graph.initializer if each.name in needed)
    return part


@pytest.mark.parametrize(("opset", "dynamo"), EXPORTERS)
@pytest.mark.parametrize("function", CASES, ids=lambda function: function.__name__)
def test_each_exporter_is_understood(function: Callable[[Any, Any], Any], opset: int, dynamo: bool) -> None:
    rng = np.random.default_rng(opset)
    mask = np.ones((2, 6), dtype=np.float32)
    mask[0, 4:] = mask[1] = 0.0
    x = rng.standard_normal((2, 6, WIDTH)) * SIZES.get(function, 300.0)
    rule = CASES[function]
    found = effect(
        rule, alone(exported(opset, dynamo), f"{function.__name__}_out"), [{"x": x.astype(np.float32), "mask": mask}]
    )
    assert len(found.repairs) == 1
    assert found.deviation <= rule.bound
    assert found.after <= found.before
    assert found.after < 5.0
