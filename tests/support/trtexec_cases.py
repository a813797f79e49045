"""A request to trtexec, said in short."""

from __future__ import annotations

from halfwise.core.targets import Target
from halfwise.deploy.trtexec import LayerPrecision, TrtexecRequest


def request(target: str, *layers: str | LayerPrecision, **options: object) -> TrtexecRequest:
    wanted = tuple(LayerPrecision(layer) if isinstance(layer, str) else layer for layer in layers)
    return TrtexecRequest(Target.parse(target), "m.onnx", layers=wanted, **options)  # type: ignore[arg-type]
