"""The rules for scale, guards and logarithms on what PyTorch's exporters really write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from repairing import effect

from halfwise.repair.epsilons import EPSILONS
from halfwise.repair.reductions import REDUCTIONS
from halfwise.repair.rescale import RESCALE
from halfwise.repair.stable_logs import STABLE_LOGS

torch = pytest.importorskip("torch", reason="PyTorch is not installed: its exporters cannot be run")


class Step(torch.nn.Module):  # type: ignore[misc,name-defined]
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def tiny() -> Any:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(16, 16) for _ in range(3)]
    with torch.no_grad():
        for layer, scale in zip(layers, (3e4, 1e-6, 100.0), strict=True):
            layer.weight *= scale
            layer.bias *= min(scale, 1.0)
    return torch.nn.Sequential(layers[0], torch.nn.LeakyReLU(), layers[1], torch.nn.ReLU(), layers[2])


CASES = {
    "unit": (EPSILONS, lambda: Step(lambda x: torch.nn.functional.normalize(x, dim=-1)), 3.0),
    "log-softmax": (STABLE_LOGS, lambda: Step(lambda x: torch.log(torch.softmax(x, -1))), 9.0),
    "guarded": (EPSILONS, lambda: Step(lambda x: torch.log(torch.softmax(x, -1).clamp(min=1e-12))), 9.0),
    "log-sum-exp": (STABLE_LOGS, lambda: Step(lambda x: x - torch.log(torch.exp(x).sum(-1, keepdim=True))), 9.0),
    "logit": (STABLE_LOGS, lambda: Step(lambda x: torch.logit(x.sigmoid(), eps=1e-5)), 4.0),
    "mean": (REDUCTIONS, lambda: Step(lambda x: x.abs().sum(-1) / 1e5), 9e3),
    "tiny": (RESCALE, tiny, 3.0),
}


@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize("name", list(CASES))
def test_the_rule_hits(name: str, dynamo: bool, tmp_path: Path) -> None:
    if dynamo:
        pytest.importorskip("onnxscript", reason="onnxscript is not installed: the dynamo exporter cannot be run")
    rule, build, scale = CASES[name]
    path, x = tmp_path / "m.onnx", torch.randn(6, 16)
    kind: dict[str, Any] = {"external_data": False} if dynamo else {"opset_version": 17}
    torch.onnx.export(build().eval(), (x,), str(path), input_names=["x"], verbose=False, dynamo=dynamo, **kind)
    rng = np.random.default_rng(0)
    feeds = [{"x": (scale * rng.standard_normal((6, 16))).astype(np.float32)} for _ in range(3)]
    for feed in feeds:
        feed["x"][-1] *= 0.0 if name == "unit" else 1.0
    found = effect(rule, path, feeds)
    assert len(found.repairs) == 1
    assert found.before > 1 > found.after
    assert found.deviation <= rule.bound
