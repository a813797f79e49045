"""What goes wrong in FP16, planted into a PyTorch module with random weights."""

from __future__ import annotations

from typing import Any

__all__ = ["PATHOLOGIES", "plant"]

PATHOLOGIES = ("none", "massive channel", "tiny weights", "large weights", "dead weights", "none")


def plant(module: Any, seed: int) -> str:
    """Change the weights of one layer in place; which layer and how follows from the seed. Says what was done."""
    import torch

    chosen = PATHOLOGIES[seed % len(PATHOLOGIES)]
    layers = [
        each for each in module.modules() if isinstance(each, torch.nn.Linear | torch.nn.Conv2d | torch.nn.Conv1d)
    ]
    if chosen == "none" or not layers:
        return "none"
    layer = layers[(seed // 7) % len(layers)]
    with torch.no_grad():
        if chosen == "massive channel":
            layer.weight[0] *= 3e4
        elif chosen == "tiny weights":
            layer.weight *= 1e-6
        elif chosen == "large weights":
            layer.weight *= 300.0
        else:
            layer.weight[: max(1, layer.weight.shape[0] // 4)] = 1e-40
    return chosen
