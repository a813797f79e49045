"""A pass for Olive: `HalfwiseFix`. Imported by who uses Olive; halfwise itself does not need it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Union

from olive.model import ONNXModelHandler
from olive.passes import Pass
from olive.passes.pass_config import PassConfigParam

from halfwise.verbs.contained.calling import contained
from halfwise.verbs.fix.fix import fix

__all__ = ["HalfwiseFix", "package_config"]

_LOG = logging.getLogger(__name__)
_OPTIONS: dict[str, tuple[Any, Any, str]] = {
    "inputs": (Union[str, list[str]], None, "Files or folders of samples; random ones without."),  # noqa: UP007
    "tolerance": (list[str], [], "Bounds such as 'logits:rel_l2<=0.005'; 1% of each output without."),
    "target": (str, None, "Runtime that will run the model, such as ort-cuda."),
    "io_types": (str, "fp32", "Type of float inputs and outputs: fp32 or fp16."),
}


class HalfwiseFix(Pass):  # type: ignore[misc]
    """Finds the fewest FP32 nodes that keep the tolerance, and writes the typed model, its plan beside it."""

    @classmethod
    def _default_config(cls, accelerator_spec: Any) -> dict[str, PassConfigParam]:
        return {
            name: PassConfigParam(type_=kind, default_value=default, description=told)
            for name, (kind, default, told) in _OPTIONS.items()
        }

    def _run_for_config(self, model: Any, config: Any, output_model_path: str) -> ONNXModelHandler:
        folder = Path(output_model_path)
        folder = folder.parent if folder.suffix == ".onnx" else folder
        options = {name: getattr(config, name) for name in _OPTIONS}
        in_worker = contained(fix, "halfwise.verbs.fix.fix:fix")
        result = in_worker(model.model_path, options.pop("inputs"), out=folder, **options)
        if not result.good or result.typed is None:
            raise ValueError(f"HalfwiseFix: {result.summary().headline}")
        if result.standing.rank == "caution":
            _LOG.warning("HalfwiseFix: %s", result.summary().headline)
        if result.typed.data is not None:  # a model and its weights are a folder
            return ONNXModelHandler(model_path=str(folder), onnx_file_name=result.typed.path.name)
        return ONNXModelHandler(model_path=str(result.typed.path))


def package_config() -> dict[str, Any]:
    """Olive's own configuration with this pass in it, for `olive.workflows.run(..., package_config=...)`."""
    from olive.package_config import OlivePackageConfig

    known: dict[str, Any] = OlivePackageConfig.load_default_config().model_dump()
    entry = {
        "module_path": "halfwise.olive.HalfwiseFix",
        "supported_providers": ["*"],
        "supported_accelerators": ["*"],
        "supported_precisions": ["fp16"],
    }
    return {**known, "passes": {**known["passes"], "halfwisefix": entry}}
