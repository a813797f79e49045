"""How far one emulation differs from itself where sums add up in another order: python -m benchmarks.summation_order.

A decoder's channels are put in random orders, all weights alike: the same function, the same rounding, other sums. FP32
sums differ in their last bits then, as those of a GPU do from a CPU's, and roundings to FP16 of values halfway fall
the other way. Printed: the error of the logits with every node in FP16, by the worst input as verdicts take it, and
over all values of all inputs. `--arithmetic`: "sums" adds products and means up in FP64, "all" computes exponentials,
roots and angles in FP64, too, as both sides of a comparison would have to. With `--device cuda` a GPU runs the same
orders: by how much its errors differ, and how many of the logits are the CPU's to the bit. With `--planted massive`
`fix` repairs the model in each order first; printed is the error over the error allowed by profile, as `fix` tells it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

import halfwise
from benchmarks.contest import markdown
from benchmarks.zoo.decoder import PLANTED, Sizes, feeds, write_decoder
from benchmarks.zoo.weight_file import Array
from halfwise.emulation.emulate import emulate
from halfwise.emulation.ort import MANY, Device, Session, check_casts
from halfwise.emulation.profiles import profile_named
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites

__all__ = ["IN_FP64", "Told", "in_order", "main", "parser", "repaired", "told"]

Feed = Mapping[str, Array]

_SUMS = {"MatMul": 2, "ReduceMean": 1}  # how many inputs are summed
_OTHERS = {"Softmax": 1, "Sigmoid": 1, "Pow": 2, "Sqrt": 1, "Reciprocal": 1, "Cos": 1, "Sin": 1}
IN_FP64: Mapping[str, Mapping[str, int]] = {"fp32": {}, "sums": _SUMS, "all": {**_SUMS, **_OTHERS}}
_WRITES, _READS = ("o", "down"), ("q", "k", "v", "gate", "up")


@dataclass(frozen=True)
class Told:
    """One order of sums on one device."""

    worst: float
    all: float
    seconds: float
    logits: Array


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    sizes = Sizes.of(options.billions, options.vocabulary)
    sizes = replace(sizes, layers=options.layers or sizes.layers)
    if options.planted:
        head = ("tokens", "profile", "error over allowed, by order", "largest over smallest")
        print(markdown(head, _repaired(options)))
        return 0
    check_casts(options.device)
    with tempfile.TemporaryDirectory() as folder:
        model = onnx.load(write_decoder(Path(folder), sizes))
    rows = []
    for tokens, wide in product(options.tokens, options.arithmetic):
        given = feeds(sizes, count=options.inputs, tokens=tokens)
        orders = [in_order(model, sizes, seed) for seed in range(options.orders)]
        found: dict[Device, list[Told]] = {}
        for device in dict.fromkeys(("cpu", options.device)):
            found[device] = [told(each, given, IN_FP64[wide], device) for each in orders]
            rows += [(str(tokens), wide, device, *cells) for cells in _cells(found[device])]
        if options.device != "cpu":
            rows += [(str(tokens), wide, "both", *cells) for cells in _apart(found["cpu"], found[options.device])]
        print(rows[-2:], file=sys.stderr, flush=True)
    size = f"{sizes.parameters / 1e9:.2f} billion, {options.inputs} inputs, {options.orders} orders"
    columns = ("tokens", "FP64", "device", size, "error", "spread", "largest less smallest", "CPU s a run")
    print(markdown(columns, rows))
    return 0


def _repaired(options: argparse.Namespace) -> list[tuple[str, ...]]:
    """A line for each count of tokens and each profile."""
    sizes = Sizes.of(options.billions, options.vocabulary)
    rows: list[tuple[str, ...]] = []
    for tokens in options.tokens:
        with tempfile.TemporaryDirectory() as folder:
            model = onnx.load(write_decoder(Path(folder), sizes, planted=options.planted))
        given = feeds(sizes, count=options.inputs, tokens=tokens)
        orders = [in_order(model, sizes, seed) for seed in range(options.orders)]
        found = [repaired(each, given, options.device) for each in orders]
        for profile in found[0]:
            ratios = [each[profile] for each in found]
            apart = f"{max(ratios) / min(ratios) - 1:+.1%}"
            rows.append((str(tokens), profile, ", ".join(f"{each:.4f}" for each in ratios), apart))
    return rows


def repaired(model: onnx.ModelProto, given: Sequence[Feed], device: Device = "cpu") -> Mapping[str, float]:
    """The error over the error allowed by profile of what `fix` makes of a model; nothing is written."""
    return halfwise.fix(model, given, device=device).by_profile


def _cells(found: Sequence[Told]) -> list[tuple[str, ...]]:
    """The errors on one device: their mean, and how far they lie apart."""
    seconds = f"{np.median([each.seconds for each in found]):.2f}"
    rows: list[tuple[str, ...]] = []
    for what in ("worst", "all"):
        errors = np.array([getattr(each, what) for each in found])
        mean, apart = errors.mean(), errors.max() - errors.min()
        spread = (f"{errors.std() / mean:.2%}", f"{apart / mean:.2%}")
        rows.append((f"{what} of the inputs", f"{mean:.6f}", *spread, seconds))
    return rows


def _apart(left: Sequence[Told], right: Sequence[Told]) -> list[tuple[str, ...]]:
    """The same orders on two devices."""
    equal = np.mean([(one.logits == other.logits).mean() for one, other in zip(left, right, strict=True)])
    rows: list[tuple[str, ...]] = []
    for what in ("worst", "all"):
        apart = [abs(getattr(b, what) / getattr(a, what) - 1) for a, b in zip(left, right, strict=True)]
        remark = f"{equal:.2%} of the logits are equal"
        rows.append((f"{what}: by how much errors differ", "", f"{np.mean(apart):.2%}", f"{max(apart):.2%}", remark))
    return rows


def told(model: onnx.ModelProto, given: Sequence[Feed], wide: Mapping[str, int], device: Device = "cpu") -> Told:
    """The error of all nodes in FP16; `wide` operators compute in FP64, from so many inputs."""
    sites, profile = Sites(load(model)), profile_named("strict")
    exact, rounded = (
        Session(_with_fp64(emulate(each, profile), wide), threads=MANY, device=device)
        for each in (Assignment(sites, {}), Assignment.all_narrow(sites))
    )
    right = [_logits(exact, feed) for feed in given]
    started = time.process_time()
    got = [_logits(rounded, feed) for feed in given]
    seconds = (time.process_time() - started) / len(given)
    return Told(max(map(_error, got, right)), _error(np.stack(got), np.stack(right)), seconds, np.stack(got))


def _logits(session: Session, feed: Feed) -> Array:
    return session.run(feed, ["logits"])["logits"].astype(np.float64)


def in_order(model: onnx.ModelProto, sizes: Sizes, seed: int) -> onnx.ModelProto:
    """The same function; the channels of the residual stream and inside of each MLP are in a random order.

    Seed 0 leaves them as they are.
    """
    if not seed:
        return model
    rng = np.random.default_rng(seed)
    outside, inside = rng.permutation(sizes.width), rng.permutation(sizes.inner)
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for tensor in made.graph.initializer:
        array, part = onnx.numpy_helper.to_array(tensor), tensor.name.rpartition(".")[2]
        if tensor.name == "embedding":
            tensor.raw_data = np.ascontiguousarray(array[:, outside]).tobytes()
        elif part in _READS + _WRITES:
            tensor.raw_data = np.ascontiguousarray(_moved(array, part, outside, inside)).tobytes()
    return made


def _moved(array: Array, part: str, outside: Array, inside: Array) -> Array:
    rows, columns = (slice(None), outside) if part in _WRITES else (outside, slice(None))
    moved = array[rows][:, columns]
    if part == "down":
        return moved[inside]
    return moved[:, inside] if part in ("gate", "up") else moved


def _with_fp64(proto: onnx.ModelProto, operators: Mapping[str, int]) -> onnx.ModelProto:
    """The same model; these operators compute in FP64, and give FP32."""
    nodes = list(proto.graph.node)
    del proto.graph.node[:]
    for number, node in enumerate(nodes):
        taken = node.input[: operators.get(node.op_type, 0)]
        casts = [(name, f"{number}.{slot}.wide") for slot, name in enumerate(taken)]
        proto.graph.node.extend(helper.make_node("Cast", [a], [b], to=onnx.TensorProto.DOUBLE) for a, b in casts)
        made = proto.graph.node.add()
        made.CopyFrom(node)
        if casts:
            made.input[: len(casts)] = [name for _, name in casts]
            made.output[0] = f"{number}.made"
            back = helper.make_node("Cast", [made.output[0]], [node.output[0]], to=onnx.TensorProto.FLOAT)
            proto.graph.node.append(back)
    return proto


def _error(got: Array, exact: Array) -> float:
    return float(np.linalg.norm(got - exact) / np.linalg.norm(exact))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.summation_order", description="Error by order of sums.")
    made.add_argument("--billions", type=float, default=0.03, help="parameters")
    made.add_argument("--layers", type=int, default=0, help="instead of those of this size")
    made.add_argument("--vocabulary", type=int, default=4000)
    made.add_argument("--tokens", type=int, nargs="+", default=(8, 32))
    made.add_argument("--inputs", type=int, default=4)
    made.add_argument("--orders", type=int, default=6)
    made.add_argument("--arithmetic", choices=IN_FP64, nargs="+", default=tuple(IN_FP64), help="in FP64")
    made.add_argument("--planted", nargs="*", choices=PLANTED, default=(), help="what goes wrong, and is repaired")
    made.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="beside the CPU")
    return made


if __name__ == "__main__":
    sys.exit(main())
