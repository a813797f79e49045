"""What PyTorch's two exporters write is repaired, whichever of them wrote it and at which opset."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from halfwise.repair import Rule
from halfwise.repair.attention_scale import AttentionScale
from halfwise.repair.masks import Masks
from halfwise.repair.norm_operator import NormOperator
from tests.repairing import effect

torch = pytest.importorskip("torch", reason="PyTorch is not installed: exporters cannot be asked")
pytest.importorskip("onnxscript", reason="onnxscript is not installed: PyTorch's newer exporter needs it")

WIDTH, HEADS = 16, 2


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


CASES: dict[Callable[[Any, Any], Any], Rule] = {
    **dict.fromkeys(
        (layer_norm, layer_norm_by_var, layer_norm_by_std, rms_norm, channel_norm, group_norm), NormOperator()
    ),
    **dict.fromkeys((masked_lowest, masked_billion), Masks()),
    **dict.fromkeys((unmasked, soft_by_hand), AttentionScale()),
}


def exported(function: Callable[[Any, Any], Any], opset: int, *, dynamo: bool) -> onnx.ModelProto:
    class Module(torch.nn.Module):  # type: ignore[name-defined,misc]
        def forward(self, x: Any, mask: Any) -> Any:
            return function(x, mask) + 0.0 * mask.sum()

    example = (torch.randn(2, 6, WIDTH), torch.ones(2, 6))
    names = {"input_names": ["x", "mask"], "output_names": ["y"], "opset_version": opset}
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


@pytest.mark.parametrize("function", CASES, ids=lambda function: function.__name__)
@pytest.mark.parametrize(("opset", "dynamo"), [(13, False), (17, False), (18, True), (23, True)])
def test_each_exporter_is_understood(function: Callable[[Any, Any], Any], opset: int, dynamo: bool) -> None:
    rng = np.random.default_rng(opset)
    mask = np.ones((2, 6), dtype=np.float32)
    mask[0, 4:] = mask[1] = 0.0
    size = 14.0 if "masked_" in function.__name__ else 75.0 if function is unmasked else 300.0
    x = rng.standard_normal((2, 6, WIDTH)) * size
    rule = CASES[function]
    found = effect(rule, exported(function, opset, dynamo=dynamo), [{"x": x.astype(np.float32), "mask": mask}])
    assert len(found.repairs) == 1
    assert found.deviation <= max(rule.bound, 0.0)
    assert found.after <= found.before
    assert found.after < 5.0
