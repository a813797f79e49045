"""GRU, LSTM, RNN and Resize in NumPy, each as a hypothesis says."""

from __future__ import annotations

from typing import Any

import numpy as np

from halfwise.emulation.probes import Form
from halfwise.emulation.profiles.recurrent import terms_per_step
from tests.support.simulated_rounding import Array, given, h, sigmoid

__all__ = ["recurrent", "resized"]


def recurrent(form: Form, hypothesis: str) -> Array:
    x, w, r, b, *rest = given(form)
    states = [each for each in rest if each is not None]
    size = form.attributes["hidden_size"]
    on_cpu = form.op == "GRU" and not form.attributes.get("linear_before_reset")
    step = _wide_step if hypothesis == "wide" or on_cpu else _stored_step
    made = np.zeros((x.shape[0], w.shape[0], x.shape[1], size))
    for side in range(w.shape[0]):
        state = states[0][side] if states else np.zeros((x.shape[1], size))
        cell = states[1][side] if len(states) > 1 else np.zeros((x.shape[1], size))
        order = range(x.shape[0])[::-1] if side else range(x.shape[0])
        for place in order:
            state, cell = step(form, x[place], state, cell, w[side], r[side], b[side], x.shape[0])
            made[place, side] = state
    return h(made)


def _wide_step(form: Form, x: Array, state: Array, cell: Array, w: Array, r: Array, b: Array, _: int) -> Any:
    size = state.shape[1]
    bias = b.reshape(2, -1)
    ins, inner = x @ w.T + bias[0], state @ r.T
    if form.op == "RNN":
        return np.tanh(ins + inner + bias[1]), cell
    if form.op == "LSTM":
        i, o, f, c = np.split(ins + inner + bias[1], 4, axis=1)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(c)
        return sigmoid(o) * np.tanh(cell), cell
    inner_z, inner_r, inner_h = np.split(inner, 3, axis=1)
    z_in, r_in, h_in = np.split(ins, 3, axis=1)
    bias_z, bias_r, bias_h = np.split(bias[1], 3)
    update, reset = sigmoid(z_in + inner_z + bias_z), sigmoid(r_in + inner_r + bias_r)
    if form.attributes.get("linear_before_reset"):
        offered = np.tanh(h_in + reset * (inner_h + bias_h))
    else:
        offered = np.tanh(h_in + (reset * state) @ r[2 * size :].T + bias_h)
    return (1 - update) * offered + update * state, cell


def _stored_product(x: Array, w: Array, columns: int) -> Array:
    total = np.zeros(())
    for start, end in terms_per_step(x.shape[1], columns):
        total = h(total + x[:, start:end] @ w[:, start:end].T)
    return total


def _gate(x: Array) -> Array:
    return h(1 / h(1 + h(np.exp(-x))))


def _bend(x: Array) -> Array:
    return h(2 * _gate(2 * x) - 1)


def _stored_step(form: Form, x: Array, state: Array, cell: Array, w: Array, r: Array, b: Array, steps: int) -> Any:
    bias = b.reshape(2, -1)
    ins = _stored_product(x, w, x.shape[0] * steps)
    inner = _stored_product(state, r, x.shape[0])
    if form.op == "GRU":
        z_in, r_in, h_in = np.split(ins, 3, axis=1)
        z_inner, r_inner, h_inner = np.split(inner, 3, axis=1)
        gates = []
        for one, other, place in ((z_in, z_inner, 0), (r_in, r_inner, 1)):
            total = h(one + other)
            for each in bias:
                total = h(total + np.split(each, 3)[place])
            gates.append(_gate(total))
        update, reset = gates
        offered, kept = h(h_in + np.split(bias[0], 3)[2]), h(h_inner + np.split(bias[1], 3)[2])
        offered = _bend(h(reset * kept + offered))
        return h(h(1 - update) * offered + h(update * state)), cell
    joined = h(ins + inner)
    for each in bias:
        joined = h(joined + each)
    if form.op == "RNN":
        return _bend(joined), cell
    i, o, f, c = np.split(joined, 4, axis=1)
    cell = h(_gate(f) * cell + h(_gate(i) * _bend(c)))
    return h(_gate(o) * _bend(cell)), cell


def resized(form: Form, hypothesis: str) -> Array | None:
    x, _, _, sizes = given(form)
    mode = form.attributes.get("coordinate_transformation_mode", "half_pixel")
    if form.attributes["mode"] != "linear":
        return None
    rows, columns = (_places(x.shape[axis], int(sizes[axis]), mode) for axis in (2, 3))
    total: Any = None
    for a, b in ((1, 0), (0, 0), (0, 1), (1, 1)):
        share = rows[1][a][:, None] * columns[1][b][None, :]
        picked = x[:, :, rows[0][a]][:, :, :, columns[0][b]]
        if hypothesis == "steps":
            total = picked * h(share) if total is None else h(total) + picked * h(share)
        else:
            total = picked * share if total is None else total + picked * share
    return h(total)


def _places(size: int, made: int, mode: str) -> tuple[list[Any], list[Array]]:
    place = np.arange(made, dtype=np.float32)
    if mode == "align_corners":
        source = place * np.float32(size - 1) / np.float32(made - 1)
    elif mode == "pytorch_half_pixel" and made == 1:
        source = place * 0
    else:
        source = (place + np.float32(0.5)) / (np.float32(made) / np.float32(size)) - np.float32(0.5)
    source = np.clip(source, 0, size - 1).astype(np.float32)
    low = np.floor(source).astype(int)
    share = (source - low).astype(np.float32)
    return [low, np.minimum(low + 1, size - 1)], [(np.float32(1) - share).astype(float), share.astype(float)]
