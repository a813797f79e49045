"""Stage by stage from PyTorch: stages are called as the submodules are, and the softmax of a tracker is found."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import onnx
import pytest

from halfwise import InputError
from halfwise.core.notes import NoteKind

torch = pytest.importorskip("torch", reason="PyTorch is not installed (the extra 'torch')")
pytest.importorskip("onnxscript", reason="onnxscript, which PyTorch exports with, is not installed")

from torch import nn  # noqa: E402

from halfwise.torch import stages  # noqa: E402
from halfwise.verbs.contained import pool  # noqa: E402
from halfwise.verbs.torch.export import _names  # noqa: E402
from halfwise.verbs.torch.inputs import Call, calls_of  # noqa: E402
from tests.support.says import Says  # noqa: E402

WIDTH = 16


class BoxEncoding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, WIDTH)

    def forward(self, boxes: Any) -> Any:
        centre, size = boxes[..., :2], boxes[..., 2:]
        return self.fc(torch.cat([centre - size / 2, centre + size / 2], -1)).relu()


class SineEmbedding(nn.Module):
    def forward(self, boxes: Any) -> Any:
        waves = 2 ** torch.arange(WIDTH // 4)
        angles = boxes[..., :2, None] * math.pi / waves
        return torch.cat([angles.sin(), angles.cos()], -1).flatten(-2)


class Layer(nn.Module):
    def __init__(self, spread: float = 0.0) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.norm, self.fc = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)
        with torch.no_grad():
            self.attention.in_proj_bias[WIDTH : 2 * WIDTH].normal_().mul_(spread)

    def forward(self, x: Any) -> Any:
        return self.fc(self.norm(x + self.attention(x, x, x, need_weights=False)[0]))


class Tracker(nn.Module):
    def __init__(self, spread: float) -> None:
        super().__init__()
        self.box_encoding, self.position = BoxEncoding(), SineEmbedding()
        self.transformer = nn.Sequential(Layer(), Layer())
        self.filter_predictor = Layer(spread)
        self.classifier = nn.Linear(WIDTH, 3)

    def forward(self, boxes: Any, *, features: Any, names: Any = None) -> Any:
        tokens = self.box_encoding(boxes) + self.position(boxes) + features["map"]
        made = self.filter_predictor(self.transformer(tokens))
        return {"filter": made, "scores": self.classifier(made), "names": names}


def inputs(count: int = 2) -> list[Any]:
    return [((torch.rand(1, 24, 4),), {"features": {"map": torch.randn(1, 24, WIDTH)}}) for _ in range(count)]


def test_the_softmax_of_the_filter_predictor_is_named(tmp_path: Path) -> None:
    torch.manual_seed(0)
    tracker = Tracker(spread=2000.0)
    tracker.train()
    result = stages(tracker, inputs(), out=tmp_path, upto="transformer")
    names = [stage.name for stage in result.stages]
    assert [n for n in names if n != "(root)"] == [
        "box_encoding",
        "position",
        "transformer",
        "filter_predictor",
        "classifier",
    ]
    assert [stage.name for stage in result.wrong] == ["filter_predictor"]
    first = result.stage("filter_predictor").culprits[0]
    assert first.op == "Softmax" and first.because[0].kind is NoteKind.ROUNDS_EXPONENT
    assert set(result.whole.outputs) == {"filter", "scores"} and result.model == "Tracker"
    assert result.upto is not None and result.upto.whole.verdict.met
    assert {each.name for each in onnx.load(tmp_path / "model.onnx").graph.input} == {"boxes", "features.map"}
    assert tracker.training and all(p.dtype is torch.float32 for p in tracker.parameters())


def test_the_exported_model_is_analysed_in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    module, sample = nn.Sequential(nn.Linear(4, 4), nn.Softmax(-1)), torch.ones(1, 4)
    here = stages(module, sample)
    monkeypatch.delenv("HALFWISE_CONTAIN")
    begun = list(pool._idle)
    assert stages(module, sample).to_json() == here.to_json()
    assert len(pool._idle) == len(begun) + (not begun)


def test_what_cannot_be_exported_is_one_line(says: Says) -> None:
    class Asks(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2 if float(x.sum()) > 0 and self.more(x) else None

        def more(self, x: Any) -> bool:
            raise RuntimeError("first line\nsecond line")

    with says.raises(InputError) as caught:
        stages(Asks(), torch.ones(2))
    assert "\n" not in str(caught.value)


def test_bad_calls(says: Says) -> None:
    with says.raises(InputError):
        stages("model.onnx", torch.ones(1))
    with says.raises(InputError):
        stages(nn.Linear(2, 2), (torch.ones(1, 2), torch.ones(1)))
    with says.raises(InputError):
        stages(nn.Linear(2, 2), [torch.ones(1, 2), torch.ones(2, 2)])
    with says.raises(InputError):
        calls_of([[torch.ones(1)]])


def test_inputs_are_named_after_parameters() -> None:
    x = torch.ones(1)
    tracker = Tracker(0.0)
    assert _names(tracker, Call((x,), {"features": {"map": torch.ones(1)}})) == ["boxes", "features.map"]
    assert _names(tracker, Call((x,), {"features": {"map": x}})) == ["boxes", "boxes_1"]
    assert [call.args for call in calls_of((x, 3))] == [(x, 3)]
    assert [(call.args, dict(call.kwargs)) for call in calls_of([{"a": x}, x])] == [((), {"a": x}), ((x,), {})]
