"""Rules for GRU and LSTM: unrolled forwards once more, then backwards through time."""

from __future__ import annotations

from collections.abc import Iterator

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
        unit = cell(weight[d], again[d], bias[d], start, bool(local.integer("linear_before_reset", 0)))
        for t in order:
            unit.step(x[t])
        back_h = np.zeros((probes, batch, hidden), np.float32) if given[1] is None else given[1][:, d]
        back_c = np.zeros((probes, batch, hidden), np.float32) if given[2] is None else given[2][:, d]
        for t in reversed(order):
            if given[0] is not None:
                back_h = back_h + given[0][:, t, d]
            from_x, from_h, hidden_in, reset, back_h, back_c = unit.back(back_h, back_c)
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


class _Gru:
    """Gates update, reset, candidate. Each step's values are kept for the way back."""

    def __init__(self, weight: Array, again: Array, bias: Array, start: list[Array], linear: bool) -> None:
        self.weight, self.again, self.linear = weight, again, linear
        self.bias_x, self.bias_h = np.split(bias, 2)
        self.h = start[0]
        self.past: list[tuple[Array, ...]] = []

    def step(self, x: Array) -> None:
        n = self.h.shape[1]
        by_x = x @ self.weight.T + self.bias_x
        by_h = self.h @ self.again.T + self.bias_h
        update, reset = _sigmoid(by_x[:, :n] + by_h[:, :n]), _sigmoid(by_x[:, n : 2 * n] + by_h[:, n : 2 * n])
        inner = by_h[:, 2 * n :]
        if self.linear:
            candidate = np.tanh(by_x[:, 2 * n :] + reset * inner)
        else:
            inner = self.h
            candidate = np.tanh(by_x[:, 2 * n :] + (reset * self.h) @ self.again[2 * n :].T + self.bias_h[2 * n :])
        self.past.append((self.h, update, reset, candidate, inner))
        self.h = (1 - update) * candidate + update * self.h

    def back(self, g: Array, unused: Array) -> tuple[Array, Array, Array, Array | None, Array, Array]:
        h, update, reset, candidate, inner = self.past.pop()
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


class _Lstm:
    """Gates input, output, forget, cell."""

    def __init__(self, weight: Array, again: Array, bias: Array, start: list[Array], linear: bool) -> None:
        self.weight, self.again = weight, again
        self.bias = np.add(*np.split(bias, 2))
        self.h, self.c = start
        self.past: list[tuple[Array, ...]] = []

    def step(self, x: Array) -> None:
        gates = x @ self.weight.T + self.h @ self.again.T + self.bias
        i, o, f, candidate = np.split(gates, 4, axis=1)
        i, o, f, candidate = _sigmoid(i), _sigmoid(o), _sigmoid(f), np.tanh(candidate)
        c = f * self.c + i * candidate
        bent = np.tanh(c)
        self.past.append((self.h, self.c, i, o, f, candidate, bent))
        self.h, self.c = o * bent, c

    def back(self, g: Array, back_c: Array) -> tuple[Array, Array, Array, Array | None, Array, Array]:
        h, c, i, o, f, candidate, bent = self.past.pop()
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
