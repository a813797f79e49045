"""Sessions for models of few nodes, whose weights are handed to them."""

from __future__ import annotations

import onnx

from halfwise.emulation.ort import AnySession, Device, Session

__all__ = ["session_for"]


def session_for(proto: onnx.ModelProto, *, threads: int, device: Device = "cpu", redraw: bool = True) -> AnySession:
    """On a GPU a product is summed as the processor sums it, where that can be."""
    found = None
    if device == "cuda":
        from halfwise.emulation.product_session import product_session

        found = product_session(proto, threads)
    return Session(proto, threads=threads, device=device, redraw=redraw) if found is None else found
