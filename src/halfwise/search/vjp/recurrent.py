"""Rules for GRU and LSTM: unrolled forwards once more, then backwards through time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from halfwise.search.vjp.local import Array, Local, NoRule, Rule

__all__ = ["RECURRENT"]


def _sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)), dtype=np.float32)


def _rule(local: Local, slot: int) -> Array | None:
    if slot == 4:  # lengths
        return None
    if not local.shared:
        local.shared.update(_gradients(local))
    return local.shared.get(slot)


def _gradients(local: Local) -> dict[int, Array]:
    """By slot: X, W, R, B, initial_h and, of an LSTM, initial_c."""
    odd = {"activations", "activation_alpha", "activation_beta", "clip", "input_forget"} & set(local.node.attributes)
    if odd or local.has(4) or local.has(7) or local.integer("layout", 0):
        raise NoRule
    x, weight, again = local.input(0), local.input(1), local.input(2)
    directions, hidden = again.shape[0], again.shape[2]
    length, batch = x.shape[:2]
    probes = local.probes
    cell = _Gru if local.node.op_type == "GRU" else _Lstm
    bias = local.input(3) if local.has(3) else np.zeros((directions, 2 * weight.shape[1]), np.float32)
    given = [_padded(local.gradients, i) for i in range(3)]
    found = {
        slot: np.zeros((probes, *shape), np.float32)
        for slot, shape in (
            (0, x.shape), (1, weight.shape), (2, again.shape), (3, bias.shape),
            (5, (directions, batch, hidden)), (6, (directions, batch, hidden)),
        )
    }  # fmt: skip
    for d, order in enumerate(_orders(local.text("direction", "forward"), length)):
        start = [local.input(s)[d] if local.has(s) else np.zeros((batch, hidden), np.float32) for s in (5, 6)]
        unit = cell(weight[d], again[d], bias[d], bool(local.integer("linear_before_reset", 0)))
        past: list[tuple[Array, ...]] = []
        state = tuple(start)
        for t in order:
            state, kept = unit.step(x[t], *state)
            past.append(kept)
        back_h = np.zeros((probes, batch, hidden), np.float32) if given[1] is None else given[1][:, d]
        back_c = np.zeros((probes, batch, hidden), np.float32) if given[2] is None else given[2][:, d]
        for t in reversed(order):
            if given[0] is not None:
                back_h = back_h + given[0][:, t, d]
            from_x, from_h, hidden_in, reset, back_h, back_c = unit.back(past.pop(), back_h, back_c)
            found[0][:, t] += from_x @ weight[d]
            found[1][:, d] += np.swapaxes(from_x, 1, 2) @ x[t]
            found[2][:, d] += np.swapaxes(from_h, 1, 2) @ hidden_in
            if reset is not None:  # the candidate's recurrent input was gated first
                found[2][:, d, 2 * hidden :] += np.swapaxes(from_h[..., 2 * hidden :], 1, 2) @ (reset - hidden_in)
            found[3][:, d] += np.concatenate([from_x.sum(axis=1), from_h.sum(axis=1)], axis=-1)
        found[5][:, d], found[6][:, d] = back_h, back_c
    return found


def _padded(gradients: tuple[Array | None, ...], index: int) -> Array | None:
    return gradients[index] if index < len(gradients) else None


def _orders(direction: str, length: int) -> Iterator[list[int]]:
    if direction != "reverse":
        yield list(range(length))
    if direction != "forward":
        yield list(reversed(range(length)))


@dataclass(frozen=True, eq=False)
class _Gru:
    """Gates update, reset, candidate. Each step gives its state and what is kept for the way back."""

    weight: Array
    again: Array
    bias: Array
    linear: bool

    def step(self, x: Array, h: Array, unused: Array) -> tuple[tuple[Array, Array], tuple[Array, ...]]:
        n = h.shape[1]
        bias_x, bias_h = np.split(self.bias, 2)
        by_x = x @ self.weight.T + bias_x
        by_h = h @ self.again.T + bias_h
        update, reset = _sigmoid(by_x[:, :n] + by_h[:, :n]), _sigmoid(by_x[:, n : 2 * n] + by_h[:, n : 2 * n])
        inner = by_h[:, 2 * n :]
        if self.linear:
            candidate = np.tanh(by_x[:, 2 * n :] + reset * inner)
        else:
            inner = h
            candidate = np.tanh(by_x[:, 2 * n :] + (reset * h) @ self.again[2 * n :].T + bias_h[2 * n :])
        return ((1 - update) * candidate + update * h, unused), (h, update, reset, candidate, inner)

    def back(
        self, kept: tuple[Array, ...], g: Array, unused: Array
    ) -> tuple[Array, Array, Array, Array | None, Array, Array]:
        h, update, reset, candidate, inner = kept
        n = h.shape[1]
        to_candidate = g * (1 - update) * (1 - candidate * candidate)
        to_update = g * (h - candidate) * update * (1 - update)
        if self.linear:
            to_inner = to_candidate * reset
            to_reset = to_candidate * inner * reset * (1 - reset)
            back_h = g * update + to_inner @ self.again[2 * n :]
        else:
            to_inner = to_candidate
            through = to_candidate @ self.again[2 * n :]
            to_reset = through * h * reset * (1 - reset)
            back_h = g * update + through * reset
        back_h = back_h + to_update @ self.again[:n] + to_reset @ self.again[n : 2 * n]
        from_x = np.concatenate([to_update, to_reset, to_candidate], axis=-1)
        from_h = np.concatenate([to_update, to_reset, to_inner], axis=-1)
        return from_x, from_h, h, None if self.linear else reset * h, back_h, unused


@dataclass(frozen=True, eq=False)
class _Lstm:
    """Gates input, output, forget, cell."""

    weight: Array
    again: Array
    bias: Array
    linear: bool

    def step(self, x: Array, h: Array, c: Array) -> tuple[tuple[Array, Array], tuple[Array, ...]]:
        gates = x @ self.weight.T + h @ self.again.T + np.add(*np.split(self.bias, 2))
        i, o, f, candidate = np.split(gates, 4, axis=1)
        i, o, f, candidate = _sigmoid(i), _sigmoid(o), _sigmoid(f), np.tanh(candidate)
        after = f * c + i * candidate
        bent = np.tanh(after)
        return (o * bent, after), (h, c, i, o, f, candidate, bent)

    def back(
        self, kept: tuple[Array, ...], g: Array, back_c: Array
    ) -> tuple[Array, Array, Array, Array | None, Array, Array]:
        h, c, i, o, f, candidate, bent = kept
        back_c = back_c + g * o * (1 - bent * bent)
        gates = np.concatenate(
            [
                back_c * candidate * i * (1 - i),
                g * bent * o * (1 - o),
                back_c * c * f * (1 - f),
                back_c * i * (1 - candidate * candidate),
            ],
            axis=-1,
        )
        return gates, gates, h, None, gates @ self.again, back_c * f


RECURRENT: dict[str, Rule] = {"GRU": _rule, "LSTM": _rule}
