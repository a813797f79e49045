"""The code of the page on other tools, run: where a tool is not installed, its code waits for one that is."""

from __future__ import annotations

import re
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from halfwise import fix
from tests.models.build import model, node, value, weight
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")


def code(word: str, **replaced: str) -> str:
    (found,) = (block for block in re.findall(r"```python\n(.*?)```", PAGE, re.S) if word in block)
    for old, new in replaced.items():
        assert old in found
        found = found.replace(old, new)
    return str(found)


def needs(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(package) is None, reason=f"{package} is not installed")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    weights = weight("w", np.random.default_rng(9).standard_normal((8, 4)).astype(np.float32))
    made = model([node("MatMul", "x w", "y")], [value("x", shape=(2, 8))], [value("y", shape=(2, 4))], [weights])
    made.metadata_props.add(key="names", value="{0: 'cat'}")
    onnx.save(made, "model.onnx")
    Path("samples").mkdir()
    for number in range(3):
        np.savez(f"samples/{number}.npz", x=np.random.default_rng(number).standard_normal((2, 8)).astype(np.float32))


def test_the_conversion() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(code("halfwise.convert("), {})
    typed = onnx.load("model.fp16.onnx")
    assert {each.data_type for each in typed.graph.initializer} == {TensorProto.FLOAT16}


def test_the_test_of_a_plan() -> None:
    from halfwise.pytest_plugin import halfwise_keeps

    fix("model.onnx", "samples", out="fp16")
    held: dict[str, object] = {}
    exec(code("halfwise_keeps"), held)
    wrapped = getattr(halfwise_keeps, "__wrapped__", None) or halfwise_keeps.__pytest_wrapped__.obj  # type: ignore
    held["test_the_plan_holds"](wrapped())  # type: ignore[operator]


def test_what_other_tools_keep_in_a_model_stays_in_it() -> None:
    typed = fix("model.onnx", "samples", out="fp16").typed
    assert typed is not None
    assert [(each.key, each.value) for each in onnx.load(typed.path).metadata_props] == [("names", "{0: 'cat'}")]


@needs("olive")
def test_olive() -> None:
    exec(code("olive.workflows"), {})
    (written,) = Path("olive").rglob("*.onnx")
    assert {each.data_type for each in onnx.load(written).graph.initializer} == {TensorProto.FLOAT16}


@needs("ultralytics")
def test_ultralytics() -> None:
    from PIL import Image

    Path("photos").mkdir()
    for number in range(2):
        pixels = np.random.default_rng(number).integers(0, 255, (120, 160, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(f"photos/{number}.png")
    smaller = {"yolo11n.pt": "yolo11n.yaml", '"onnx"': '"onnx", imgsz=160, simplify=False', "(640, 640)": "(160, 160)"}
    at = {
        '"fp16/yolo11n.fp16.onnx")': '"fp16/yolo11n.fp16.onnx", task="detect")',
        '("photos")': '("photos", imgsz=160)',
    }
    exec(code("ultralytics", **smaller, **at), {})


@needs("optimum.onnxruntime" if find_spec("optimum") else "optimum")
def test_optimum() -> None:
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(vocab_size=64, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    made = BertForSequenceClassification(config).eval()
    Path("exported").mkdir()
    config.save_pretrained("exported")
    ids = torch.arange(8)[None]
    names = {"input_names": ["input_ids", "attention_mask"], "output_names": ["logits"]}
    torch.onnx.export(made, (ids, torch.ones_like(ids)), "exported/model.onnx", dynamo=False, **names)
    for file in Path("samples").iterdir():
        np.savez(file, input_ids=ids.numpy(), attention_mask=np.ones_like(ids.numpy()))
    held: dict[str, object] = {}
    exec(code("optimum"), held)
    assert held["model"](input_ids=ids, attention_mask=torch.ones_like(ids)).logits.shape == (1, 2)  # type: ignore
