"""One kernel's work as data: an operator with the shapes that it reads and writes, and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import field

from halfwise.core.document import Record, about
from halfwise.model.families import PRODUCTS, RECURRENT
from halfwise.model.moving import MOVES

__all__ = ["Attribute", "Operand", "Operation", "Work", "has_work", "work_of"]

Attribute = int | float | str | tuple[float, ...]

_NORMS = frozenset(
    {"GroupNormalization", "InstanceNormalization", "LayerNormalization", "LpNormalization", "RMSNormalization",
     "SimplifiedLayerNormalization", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"}
)  # fmt: skip
_SOFTMAXES = frozenset({"BiasSoftmax", "LogSoftmax", "Softmax"})
_SELECTS = frozenset({"Gather", "GatherElements", "GatherND", "Slice"})  # read no more than they write
_MOST = 1e24  # of values and of FLOP: more than any machine does
_POOLS = frozenset({"AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool", "MaxPool"})


class Operand(Record, frozen=True):
    """One input: its shape, and its numbers where they are few and fixed."""

    shape: tuple[int, ...]
    kind: Annotated[Literal["float", "int", "bool"], about("Floating-point tensors have the format of the row.")] = (
        "float"
    )
    fixed: Annotated[bool, about("Stored in the model.")] = False
    values: tuple[float, ...] = ()

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class Operation(Record, frozen=True):
    """An operator at one size. `inputs` holds None for what is left out."""

    op: str
    inputs: tuple[Operand | None, ...]
    outputs: tuple[tuple[int, ...], ...]
    attributes: dict[str, Attribute] = field(default_factory=dict)
    domain: str = ""
    opset: int = 20

    @property
    def key(self) -> str:
        """The same of operations that take the same time."""
        shapes = ",".join("-" if each is None else "x".join(map(str, each.shape)) for each in self.inputs)
        told = " ".join(f"{name}={_told(value)}" for name, value in sorted(self.attributes.items()))
        return f"{self.op} {shapes} {told}"


def _told(value: Attribute) -> str:
    return "x".join(f"{each:g}" for each in value) if isinstance(value, tuple) else str(value)


@dataclass(frozen=True)
class Work:
    """What the time of a kernel depends on. `features`: logarithms of its sizes, which tell likeness."""

    family: str
    features: tuple[float, ...]
    flops: float
    read: int  # floating-point values
    written: int


def work_of(operation: Operation) -> Work:
    floats = [each for each in operation.inputs if each is not None and each.kind == "float"]
    written = sum(math.prod(shape) for shape in operation.outputs)
    read = min(written, sum(each.size for each in floats)) if operation.op in _SELECTS else sum(e.size for e in floats)
    family, features, flops = _family(operation, written)
    return Work(family, tuple(math.log2(max(each, 1e-3)) for each in features), flops, read, written)


def has_work(operation: Operation) -> bool:
    """Whether that is numbers: the sizes in a file may be anybody's."""
    try:
        work = work_of(operation)
    except (ArithmeticError, IndexError):
        return False
    return all(0 <= each <= _MOST for each in (work.flops, work.read, work.written))


def _family(operation: Operation, written: int) -> tuple[str, Sequence[float], float]:
    op, first = operation.op, operation.inputs[0] if operation.inputs else None
    shape = first.shape if first is not None else ()
    out = operation.outputs[0] if operation.outputs else ()
    weight = operation.inputs[1] if len(operation.inputs) > 1 else None
    if op in ("Conv", "ConvTranspose", "FusedConv") and weight is not None:
        return _conv(op, shape, weight.shape, out, operation)
    if (op in PRODUCTS or op == "FusedMatMul") and weight is not None:
        return _product(operation, shape, out)
    if op in RECURRENT and weight is not None:
        steps, batch, width = (*shape, 1, 1, 1)[:3]
        hidden = out[-1] if out else 1
        sides, gates = weight.shape[0], weight.shape[1] / max(hidden, 1)
        flops = 2.0 * steps * batch * sides * gates * hidden * (width + hidden)
        return op, (steps, batch, width, hidden, sides), flops
    if op in _NORMS or op in _SOFTMAXES or op.startswith("Reduce") or op in ("ArgMax", "ArgMin", "TopK", "CumSum"):
        size = max(math.prod(shape), 1)
        length = size / max(written, 1) if op not in _NORMS and op not in _SOFTMAXES else (shape[-1] if shape else 1)
        family = "norm" if op in _NORMS else "softmax" if op in _SOFTMAXES else "reduce"
        return family, (size / max(length, 1), length), 4.0 * size
    if op in _POOLS:
        return "pool", (written, max(math.prod(shape), 1) / max(written, 1)), float(math.prod(shape))
    if op in MOVES or op in ("Cast", "Resize", "Upsample"):
        return op, (written, math.prod(shape) / max(written, 1)), 0.0
    spread = any(each is not None and each.size not in (1, written) for each in operation.inputs)
    return "spread" if spread else "pointwise", (written, len([e for e in operation.inputs if e])), float(written)


def _conv(
    op: str, shape: Sequence[int], weight: Sequence[int], out: Sequence[int], operation: Operation
) -> tuple[str, Sequence[float], float]:
    group = operation.attributes.get("group", 1)
    group = group if isinstance(group, int) else 1
    taps, places = math.prod(weight[2:]), math.prod(out[2:]) * (out[0] if out else 1)
    ins, outs = (shape[1] if len(shape) > 1 else 1) / group, (out[1] if len(out) > 1 else 1) / group
    at = places if op != "ConvTranspose" else math.prod(shape[2:]) * (shape[0] if shape else 1)
    step = max(math.prod(shape[2:]), 1) / max(math.prod(out[2:]), 1)
    family = "Conv" if group == 1 else "grouped Conv"
    if op == "ConvTranspose":
        family = op
    return family, (places, ins, outs, group, taps, step), 2.0 * at * group * ins * outs * taps


def _product(operation: Operation, shape: Sequence[int], out: Sequence[int]) -> tuple[str, Sequence[float], float]:
    weight = operation.inputs[1]
    assert weight is not None
    columns = out[-1] if out else 1
    turned = operation.attributes.get("transA", 0)
    inner = (shape[-2] if turned and len(shape) > 1 else shape[-1]) if shape else 1
    one = len(weight.shape) <= 2 or math.prod(weight.shape[:-2]) == 1
    batch = 1 if one else math.prod(out[:-2])
    rows = math.prod(out) / max(columns * batch, 1)
    return "product", (batch, rows, columns, inner), 2.0 * batch * rows * columns * inner
