"""GRU, LSTM and RNN as cuDNN runs them in FP16 for ONNX Runtime's CUDA provider, step by step.

Nothing is wide in them: products of matrices keep their sums in FP16, sixteen terms to a step; both products, the
biases, the gates and the states are stored; tanh is made of a sigmoid, so that it has no values between 0 and 2^-11.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from halfwise.emulation.profiles.profile import Kernel
from halfwise.emulation.profiles.steps import Steps, attribute

__all__ = ["RECURRENT", "is_beyond", "terms_per_step"]

_GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
_DEFAULT = {"GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"], "RNN": ["Tanh"]}
_TERMS = 16
_DOUBLE = onnx.TensorProto.DOUBLE


def is_beyond(node: ir.Node) -> bool:
    """A form that cuDNN runs and that is not followed: sequences of different lengths, weights of unknown size."""
    return on_cudnn(node) and not _followed(node)


def on_cudnn(node: ir.Node) -> bool:
    """Whether the provider runs this form; the CPU runs the others, in FP32 between Casts."""
    wanted = _DEFAULT.get(node.op_type)
    if wanted is None or node.domain:
        return False
    stated = {name: each.value for name, each in node.attributes.items()}
    activations = [str(each).capitalize() for each in stated.get("activations") or wanted]
    plain = not any(stated.get(name) for name in ("layout", "clip", "input_forget", "activation_alpha"))
    if node.op_type == "GRU" and not stated.get("linear_before_reset", 0):
        plain = False
    peephole = len(node.inputs) > 7 and node.inputs[7] is not None
    return plain and not peephole and activations == wanted * (len(activations) // len(wanted))


def _followed(node: ir.Node) -> bool:
    sizes = [
        size for value in node.inputs[1:3] for size in (value.shape if value is not None and value.shape else [None])
    ]
    return all(isinstance(size, int) for size in sizes) and (len(node.inputs) < 5 or node.inputs[4] is None)


def terms_per_step(length: int, columns: int | None) -> list[tuple[int, int]]:
    """Which terms of a product are added before the sum is stored, one after the other.

    A kernel reads tiles of terms and begins with what is left over; `columns` (results side by side, None where that
    is not known) choose the kernel.
    """
    few = columns is not None and (1 < columns <= 16 or (columns == 1 and length % 8 > 0))
    tile = (32 if few else 128) if length <= 64 else 64 if columns == 1 and length < 128 else 128
    first = length % tile
    return [(start, min(start + _TERMS, end)) for begin, end in ((0, first), (first, length))
            for start in range(begin, end, _TERMS)]  # fmt: skip


def _kernel(proto: onnx.NodeProto, steps: Steps) -> str | None:
    if not on_cudnn(steps.node) or not _followed(steps.node) or steps.opset < 9:
        return None
    layer = _Layer(proto, steps)
    directions = attribute(proto, "direction", b"forward").decode()
    backward = {"forward": [0], "reverse": [1], "bidirectional": [0, 1]}[directions]
    made = [layer.direction(index, turned) for index, turned in enumerate(backward)]
    for slot, (axis, parts) in enumerate(zip((1, 0, 0), zip(*made, strict=True), strict=False)):
        joined = [layer.unsqueeze(part, axis) for part in parts]
        steps.results[slot] = joined[0] if len(joined) == 1 else steps.op("Concat", *joined, axis=axis)
    return steps.results[0]


def _input(proto: onnx.NodeProto, slot: int) -> str:
    return proto.input[slot] if len(proto.input) > slot else ""


class _Layer:
    """One node; every direction of it runs by itself."""

    def __init__(self, proto: onnx.NodeProto, steps: Steps) -> None:
        self.proto, self.steps, self.op = proto, steps, proto.op_type
        self.gates, data = _GATES[proto.op_type], steps.dims(0)
        self.inputs, self.hidden = (steps.size(slot, 2) or 0 for slot in (1, 2))
        self.batch = data[1] if data is not None else steps.size(0, 1)
        self.length = data[0] if data is not None else None

    def direction(self, index: int, turned: int) -> tuple[str, ...]:
        """All states, the last one, and an LSTM's last cell."""
        steps, wide = self.steps, self.gates * self.hidden
        weights = [self._of(slot, index) for slot in (1, 2)]
        inward, inner = (steps.op("Transpose", weight, perm=[1, 0]) for weight in weights)
        biases = self._biases(index, wide)
        columns = self.batch * self.length if self.batch is not None and self.length is not None else None
        rows = steps.op("Reshape", self.proto.input[0], steps.constant([-1, self.inputs], np.int64))
        products = _stored_product(steps, rows, _parts(steps, inward, terms_per_step(self.inputs, columns)))
        products = steps.op("Reshape", products, self._sizes((0, 1), wide))
        states = [self._start(5, index)] + ([self._start(6, index)] if self.op == "LSTM" else [])
        inner_parts = _parts(steps, inner, terms_per_step(self.hidden, self.batch))
        return self._scan(products, states, inner_parts, biases, turned)

    def unsqueeze(self, x: str, axis: int) -> str:
        if self.steps.opset < 13:
            return self.steps.op("Unsqueeze", x, axes=[axis])
        return self.steps.op("Unsqueeze", x, self.steps.constant([axis], np.int64))

    def _of(self, slot: int, index: int) -> str:
        return self.steps.op("Gather", self.proto.input[slot], self.steps.constant(index, np.int64), axis=0)

    def _biases(self, index: int, wide: int) -> tuple[str, str] | None:
        """Of the inputs and of the state."""
        if not _input(self.proto, 3):
            return None
        both = self._of(3, index)
        first, second = (self.steps.constant(np.arange(start, start + wide), np.int64) for start in (0, wide))
        return self.steps.op("Gather", both, first, axis=0), self.steps.op("Gather", both, second, axis=0)

    def _start(self, slot: int, index: int) -> str:
        if _input(self.proto, slot):
            return self._of(slot, index)
        return self.steps.op("ConstantOfShape", self._sizes((1,), self.hidden))

    def _sizes(self, axes: Sequence[int], last: int) -> str:
        """A shape: some dimensions of the input, and a last one."""
        steps = self.steps
        first = steps.op("Gather", steps.op("Shape", self.proto.input[0]), steps.constant(axes, np.int64), axis=0)
        return steps.op("Concat", first, steps.constant([last], np.int64), axis=0)

    def _scan(
        self,
        products: str,
        states: Sequence[str],
        parts: Sequence[tuple[str, str]],
        biases: tuple[str, str] | None,
        turned: int,
    ) -> tuple[str, ...]:
        steps = self.steps
        body = Steps(steps.node, steps.fmt, steps.names, steps.opset, steps.base)
        names = ("product", "state", "cell")[: 1 + len(states)]
        inside = [steps.names.value(f"{steps.base}__{name}") for name in names]
        product, state, *cell = inside
        recurrent = _stored_product(body, state, parts)
        if self.op == "GRU":
            new = [_gru_step(body, product, recurrent, state, biases, self.hidden)]
        else:
            joined = body.rop("Add", product, recurrent)
            for bias in biases or ():
                joined = body.rop("Add", joined, bias)
            new = [_tanh(body, joined)] if self.op == "RNN" else _lstm_step(body, joined, cell[0], self.hidden)
        every = body.op("Identity", new[0])
        given = [*((name, self.hidden) for name in inside[1:]), (product, self.gates * self.hidden)]
        made = [(name, self.hidden) for name in (*new, every)]
        graph = helper.make_graph(body.nodes, "step", [_rows(*each) for each in given], [_rows(*each) for each in made])
        results = [steps.names.value(f"{steps.base}__{name}") for name in ("last", "last_cell")[: len(states)]]
        results.append(steps.names.value(f"{steps.base}__states"))
        steps.nodes.append(
            helper.make_node(
                "Scan", [*states, products], results, body=graph, num_scan_inputs=1,
                scan_input_directions=[turned], scan_output_directions=[turned],
            )
        )  # fmt: skip
        return (results[-1], *results[:-1])


def _rows(name: str, width: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None, width])


def _parts(steps: Steps, weight: str, terms: Sequence[tuple[int, int]]) -> list[tuple[str, str]]:
    """By step of a sum: which terms of the other factor (none stated where there is one step), and their weights."""
    weight = steps.op("Cast", weight, to=_DOUBLE)
    if len(terms) == 1:
        return [("", weight)]
    indices = [steps.constant(np.arange(start, end), np.int64) for start, end in terms]
    return [(index, steps.op("Gather", weight, index, axis=0)) for index in indices]


def _stored_product(steps: Steps, x: str, parts: Sequence[tuple[str, str]]) -> str:
    """A product of matrices whose sum is stored after every part. Within a part it is exact, as on the GPU."""
    x, total = steps.op("Cast", x, to=_DOUBLE), ""
    for index, weight in parts:
        part = steps.op("MatMul", steps.op("Gather", x, index, axis=1) if index else x, weight)
        total = steps.op("Add", steps.op("Cast", total, to=_DOUBLE), part) if total else part
        total = steps.op("Cast", total, to=steps.fmt.onnx_type)
    return steps.op("Cast", total, to=onnx.TensorProto.FLOAT)


def _sigmoid(steps: Steps, x: str) -> str:
    one = steps.constant(1.0)
    return steps.rop("Div", one, steps.rop("Add", one, steps.rop("Exp", steps.op("Neg", x))))


def _tanh(steps: Steps, x: str) -> str:
    two = steps.constant(2.0)
    return steps.rop("Sub", steps.op("Mul", two, _sigmoid(steps, steps.op("Mul", two, x))), steps.constant(1.0))


def _cut(steps: Steps, x: str, hidden: int, gate: int, count: int = 1) -> str:
    """So many gates of rows that hold all of them, from one on."""
    places = steps.constant(np.arange(gate * hidden, (gate + count) * hidden), np.int64)
    return steps.op("Gather", x, places, axis=-1)


def _lstm_step(steps: Steps, joined: str, cell: str, hidden: int) -> list[str]:
    """The new state and the new cell. The gates are input, output, forget, cell."""
    gates = _sigmoid(steps, _cut(steps, joined, hidden, 0, 3))
    let_in, let_out, keep = (_cut(steps, gates, hidden, gate) for gate in range(3))
    offered = steps.rop("Mul", let_in, _tanh(steps, _cut(steps, joined, hidden, 3)))
    cell = steps.rop("Add", steps.op("Mul", keep, cell), offered)
    return [steps.rop("Mul", let_out, _tanh(steps, cell)), cell]


def _gru_step(
    steps: Steps, product: str, recurrent: str, state: str, biases: tuple[str, str] | None, hidden: int
) -> str:
    """The new state. The gates are update, reset, hidden."""
    joined = steps.rop("Add", _cut(steps, product, hidden, 0, 2), _cut(steps, recurrent, hidden, 0, 2))
    offered, kept = _cut(steps, product, hidden, 2), _cut(steps, recurrent, hidden, 2)
    for index, bias in enumerate(biases or ()):
        joined = steps.rop("Add", joined, _cut(steps, bias, hidden, 0, 2))
        last = _cut(steps, bias, hidden, 2)
        if index:
            kept = steps.rop("Add", kept, last)
        else:
            offered = steps.rop("Add", offered, last)
    gates = _sigmoid(steps, joined)
    update, reset = _cut(steps, gates, hidden, 0), _cut(steps, gates, hidden, 1)
    offered = _tanh(steps, steps.rop("Add", steps.op("Mul", reset, kept), offered))
    taken = steps.op("Mul", steps.rop("Sub", steps.constant(1.0), update), offered)
    return steps.rop("Add", taken, steps.rop("Mul", update, state))


RECURRENT: Mapping[str, Kernel] = dict.fromkeys(_GATES, _kernel)
