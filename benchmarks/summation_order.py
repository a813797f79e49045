"""How far one emulation differs from itself where sums add up in another order: python -m benchmarks.summation_order.

A decoder's channels are put in random orders, all weights alike: the same function, the same rounding, other sums. FP32
sums differ in their last bits then, as those of a GPU do from a CPU's, and roundings to FP16 of values halfway fall
the other way. Printed: the error of the logits with every node in FP16, by the worst input as verdicts take it, and
over all values of all inputs. With `--sums fp64` products and means are added up in FP64, as both sides of a comparison
would have to.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from benchmarks.contest import markdown
from benchmarks.zoo.decoder import Sizes, feeds, write_decoder
from benchmarks.zoo.weight_file import Array
from halfwise.emulation.emulate import emulate
from halfwise.emulation.ort import Session
from halfwise.emulation.profiles import profile_named
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites

__all__ = ["in_order", "main", "parser"]

_WRITES, _READS = ("o", "down"), ("q", "k", "v", "gate", "up")


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    sizes = Sizes.of(options.billions, options.vocabulary)
    sizes = replace(sizes, layers=options.layers or sizes.layers)
    with tempfile.TemporaryDirectory() as folder:
        model = onnx.load(write_decoder(Path(folder), sizes))
    given = feeds(sizes, count=options.inputs, tokens=options.tokens)
    found: list[tuple[float, float]] = []
    for order in range(options.orders):
        sites = Sites(load(in_order(model, sizes, order) if order else model))
        profile = profile_named(options.profile)
        exact, rounded = (
            [session.run(feed, ["logits"])["logits"].astype(np.float64) for feed in given]
            for session in (
                Session(_with_sums(emulate(each, profile), options.sums))
                for each in (Assignment(sites, {}), Assignment.all_narrow(sites))
            )
        )
        found.append((max(map(_error, rounded, exact)), _error(np.stack(rounded), np.stack(exact))))
        print(found[-1], file=sys.stderr, flush=True)
    rows = []
    for number, what in enumerate(("worst input", "all inputs")):
        column = np.array([each[number] for each in found])
        apart = (column.max() - column.min()) / column.mean()
        rows.append((what, f"{column.mean():.6f}", f"{100 * column.std() / column.mean():.1f}%", f"{100 * apart:.1f}%"))
    size = f"{sizes.parameters / 1e9:.2f} billion, {options.orders} orders, sums in {options.sums}"
    head = (size, "error", "spread", "largest less smallest")
    print(markdown(head, rows))
    return 0


def in_order(model: onnx.ModelProto, sizes: Sizes, seed: int) -> onnx.ModelProto:
    """The same function; the channels of the residual stream and inside of each MLP are in a random order."""
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


def _with_sums(proto: onnx.ModelProto, format_: str) -> onnx.ModelProto:
    """The same model, whose products and means are added up in that format."""
    if format_ == "fp32":
        return proto
    nodes = list(proto.graph.node)
    del proto.graph.node[:]
    for number, node in enumerate(nodes):
        wide = {"MatMul": 2, "ReduceMean": 1}.get(node.op_type, 0)  # inputs that are summed
        casts = [(name, f"{number}.{slot}.wide") for slot, name in enumerate(node.input[:wide])]
        proto.graph.node.extend(helper.make_node("Cast", [a], [b], to=onnx.TensorProto.DOUBLE) for a, b in casts)
        made = proto.graph.node.add()
        made.CopyFrom(node)
        if casts:
            made.input[:wide] = [name for _, name in casts]
            made.output[0] = f"{number}.summed"
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
    made.add_argument("--tokens", type=int, default=8)
    made.add_argument("--inputs", type=int, default=4)
    made.add_argument("--orders", type=int, default=6)
    made.add_argument("--sums", choices=("fp32", "fp64"), default="fp32", help="in which products are added up")
    made.add_argument("--profile", default="strict")
    return made


if __name__ == "__main__":
    sys.exit(main())
