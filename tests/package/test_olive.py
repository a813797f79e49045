"""The pass for Olive: in Olive itself where it is installed, else against a stand-in for the little that it uses."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import halfwise
from tests.models.build import model, node, value, weight

FEEDS = [np.random.default_rng(seed).standard_normal((2, 8)).astype(np.float32) for seed in range(3)]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    weights = weight("w", np.random.default_rng(9).standard_normal((8, 4)).astype(np.float32))
    made = model([node("MatMul", "x w", "y")], [value("x", shape=(2, 8))], [value("y", shape=(2, 4))], [weights])
    onnx.save(made, tmp_path / "m.onnx")
    (tmp_path / "samples").mkdir()
    for number, x in enumerate(FEEDS):
        np.savez(tmp_path / "samples" / f"{number}.npz", x=x)
    return tmp_path


class Pass:
    """As in Olive: a pass is made of its configuration, whose fields `_default_config` declares."""

    def __init__(self, accelerator_spec: Any, config: Any) -> None:
        self.config = config

    def run(self, given: Any, output_model_path: str) -> Any:
        run = self._run_for_config  # type: ignore[attr-defined]
        return run(given, self.config, output_model_path)


@pytest.fixture
def pass_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`halfwise.olive` where only a stand-in for Olive is there."""
    names = "olive olive.model olive.passes olive.passes.pass_config olive.package_config".split()
    modules = {name: ModuleType(name) for name in names}
    modules["olive.model"].ONNXModelHandler = SimpleNamespace  # type: ignore[attr-defined]
    modules["olive.passes"].Pass = Pass  # type: ignore[attr-defined]
    modules["olive.passes.pass_config"].PassConfigParam = SimpleNamespace  # type: ignore[attr-defined]
    default = SimpleNamespace(model_dump=lambda: {"passes": {"onnxquantization": {}}, "extra_dependencies": {}})
    modules["olive.package_config"].OlivePackageConfig = SimpleNamespace(  # type: ignore[attr-defined]
        load_default_config=lambda: default
    )
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "halfwise.olive", raising=False)
    yield importlib.import_module("halfwise.olive")
    del sys.modules["halfwise.olive"], halfwise.olive


def made(pass_of: Any, **options: Any) -> Any:
    declared = pass_of.HalfwiseFix._default_config(None)
    assert set(options) <= set(declared)
    defaults = {name: each.default_value for name, each in declared.items()}
    return pass_of.HalfwiseFix(None, SimpleNamespace(**{**defaults, **options}))


@pytest.mark.parametrize("where", ["folder", "folder/model.onnx"])
def test_the_pass_writes_a_typed_model(where: str, pass_of: Any, project: Path) -> None:
    given = SimpleNamespace(model_path=str(project / "m.onnx"))
    found = made(pass_of, inputs=str(project / "samples"), io_types="fp16").run(given, str(project / where))
    assert Path(found.model_path).parent == project / "folder"
    typed = onnx.load(found.model_path)
    assert [v.type.tensor_type.elem_type for v in typed.graph.input] == [TensorProto.FLOAT16]
    assert (project / "folder" / "m.plan.json").is_file()


def test_a_model_with_weights_beside_it_is_a_folder(
    pass_of: Any, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halfwise.precision.typed_onnx.EMBED_BYTES", 1)
    monkeypatch.setattr("halfwise.precision.typed_onnx.INLINE_BYTES", 1)
    given = SimpleNamespace(model_path=str(project / "m.onnx"))
    found = made(pass_of, inputs=str(project / "samples")).run(given, str(project / "out"))
    assert found.model_path == str(project / "out") and (project / "out" / found.onnx_file_name).is_file()


def test_a_tolerance_that_is_missed_fails_the_pass(pass_of: Any, project: Path) -> None:
    given = SimpleNamespace(model_path=str(project / "m.onnx"))
    with pytest.raises(ValueError, match="misses the tolerance"):
        made(pass_of, tolerance=["y:max_abs<=0"], io_types="fp16").run(given, str(project / "out"))


def test_olive_is_told_where_the_pass_is(pass_of: Any) -> None:
    told = pass_of.package_config()["passes"]
    assert set(told) == {"onnxquantization", "halfwisefix"}
    module, _, name = told["halfwisefix"]["module_path"].rpartition(".")
    assert getattr(importlib.import_module(module), name) is pass_of.HalfwiseFix


@pytest.mark.skipif(find_spec("olive") is None, reason="Olive is not installed (pip install olive-ai)")
def test_a_workflow_of_olive_runs_the_pass(project: Path) -> None:
    from olive.workflows import run

    pass_of = importlib.import_module("halfwise.olive")
    options = {"type": "HalfwiseFix", "inputs": str(project / "samples"), "tolerance": ["rel_l2<=0.005"]}
    workflow = {
        "input_model": {"type": "OnnxModel", "model_path": str(project / "m.onnx")},
        "passes": {"fp16": options},
        "output_dir": str(project / "out"),
        "cache_dir": str(project / "cache"),
    }
    (found,) = run(workflow, package_config=pass_of.package_config()).get_output_models()
    typed = onnx.load(found.model_path)
    assert TensorProto.FLOAT16 in {each.data_type for each in typed.graph.initializer}
