"""A request to trtexec, said in short."""

from __future__ import annotations

from halfwise.emit.trtexec import LayerPrecision, TrtexecRequest
from halfwise.target import Target


def request(target: str, *layers: str | LayerPrecision, **options: object) -> TrtexecRequest:
    wanted = tuple(LayerPrecision(layer) if isinstance(layer, str) else layer for layer in layers)
    return TrtexecRequest(Target.parse(target), "m.onnx", layers=wanted, **options)  # type: ignore[arg-type]
