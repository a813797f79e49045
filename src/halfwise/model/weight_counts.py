"""How the values of weights lie in FP16: counted once, and kept with the file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import onnx_ir as ir

from halfwise.core.counting import Counts
from halfwise.model.elements import Elements, count_all
from halfwise.model.weight_facts import facts_of_weights

__all__ = ["counts_of_weights"]


def counts_of_weights(
    tensors: Sequence[ir.TensorProtocol], done: Callable[[int], None] = lambda values: None
) -> list[Counts]:
    """The counts of each, as it is stored in a float type. `done` gets how many more values are counted."""

    def told(numbers: Sequence[int]) -> list[dict[str, Any]]:
        return [asdict(counts) for counts in count_all([Elements(tensors[number]) for number in numbers], done)]

    return [Counts(**each) for each in facts_of_weights(tensors, "counts in FP16", told)]
