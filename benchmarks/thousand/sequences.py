"""Sequence models of many schools, written out: state spaces, linear attention, running maxima, experts."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from benchmarks.thousand.modules import Tensor

__all__ = [
    "alibi",
    "crf",
    "dense_experts",
    "diagonal_ssm",
    "linear_attention",
    "retention",
    "rwkv",
    "selective_scan",
    "softcapped",
]


def diagonal_ssm(m: Any, x: Tensor) -> Tensor:
    """A state space model whose kernel is made in the graph, and applied as a long convolution."""
    step = torch.exp(m.log_step)[:, None]
    decay = torch.exp(-torch.exp(m.log_decay) * step)[..., None] ** torch.arange(32)
    kernel = (m.c[..., None] * decay * torch.cos(m.freq[..., None] * torch.arange(32))).sum(1)
    long = F.conv1d(F.pad(x.transpose(1, 2), (31, 0)), kernel.flip(-1)[:, None], groups=32)
    return m.out(F.gelu(long.transpose(1, 2) + x * m.d))


def selective_scan(m: Any, x: Tensor) -> Tensor:
    """Of the Mamba kind, step by step."""
    u, gate = m.inner(x).chunk(2, -1)
    step, b, c = F.softplus(m.step(u)), m.b(u), m.c(u)
    state, seen = torch.zeros(1, 32, 8), []
    for t in range(x.shape[1]):
        keep = torch.exp(-torch.exp(m.log_a) * step[:, t, :, None])
        state = keep * state + step[:, t, :, None] * b[:, t, None] * u[:, t, :, None]
        seen.append((state @ c[:, t, :, None]).squeeze(-1))
    return m.out(torch.stack(seen, 1) * F.silu(gate))


def rwkv(m: Any, x: Tensor) -> Tensor:
    """Weighted key values with a running maximum, as its authors write it."""
    k, v, gate = m.k(x), m.v(x), torch.sigmoid(m.r(x))
    top, bottom, high = torch.zeros(1, 32), torch.zeros(1, 32), torch.full((1, 32), -1e38)
    seen = []
    for t in range(x.shape[1]):
        first = torch.maximum(high, m.bonus + k[:, t])
        old, new = torch.exp(high - first), torch.exp(m.bonus + k[:, t] - first)
        seen.append((old * top + new * v[:, t]) / (old * bottom + new))
        after = torch.maximum(high - 0.5, k[:, t])
        old, new = torch.exp(high - 0.5 - after), torch.exp(k[:, t] - after)
        top, bottom, high = old * top + new * v[:, t], old * bottom + new, after
    return m.out(gate * torch.stack(seen, 1))


def retention(m: Any, x: Tensor) -> Tensor:
    q, k, v = m.qkv(x).chunk(3, -1)
    apart = torch.arange(20)[:, None] - torch.arange(20)
    decay = torch.where(apart >= 0, 0.9 ** apart.clamp(min=0), 0.0)
    scores = q @ k.transpose(1, 2) * 32**-0.5 * decay
    return m.norm((scores / scores.abs().sum(-1, keepdim=True).clamp(min=1.0)) @ v)


def linear_attention(m: Any, x: Tensor) -> Tensor:
    q, k, v = m.qkv(x).chunk(3, -1)
    q, k = F.elu(q) + 1, F.elu(k) + 1
    state = torch.cumsum(k[..., None] * v[..., None, :], 1)
    return torch.einsum("btc,btcd->btd", q, state) / (torch.einsum("btc,btc->bt", q, k.cumsum(1))[..., None] + 1e-6)


def alibi(m: Any, x: Tensor) -> Tensor:
    q, k, v = (t.unflatten(-1, (4, 8)).transpose(1, 2) for t in m.qkv(x).chunk(3, -1))
    slope = 2.0 ** -torch.arange(1, 5)[:, None, None]
    scores = q @ k.transpose(-1, -2) / 8**0.5 - slope * (torch.arange(20)[:, None] - torch.arange(20)).abs()
    scores = scores.masked_fill(torch.ones(20, 20).triu(1).bool(), float("-inf"))
    return x + m.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def dense_experts(m: Any, x: Tensor) -> Tensor:
    """The best two of four experts, dispatched by one-hot products."""
    weight, chosen = m.router(x).softmax(-1).topk(2, -1)
    weight = weight / weight.sum(-1, keepdim=True)
    route = (F.one_hot(chosen, 4).to(x.dtype) * weight[..., None]).sum(-2)
    return torch.einsum("bte,btec->btc", route, torch.stack([e(x) for e in m.experts], -2))


def softcapped(m: Any, x: Tensor) -> Tensor:
    """A residual stream of large embeddings, caps on scores and on logits."""
    h = x * 60.0
    for block in m.blocks:
        q, k, v = block["qkv"](block["norm"](h)).chunk(3, -1)
        scores = 50.0 * torch.tanh(q @ k.transpose(1, 2) * 0.7 / 50.0)
        h = h + block["after"](scores.softmax(-1) @ v) * 100.0
    return 30.0 * torch.tanh(m.head(h) / 30.0)


def crf(m: Any, x: Tensor) -> Tensor:
    score, change = m.emit(x), m.change.weight
    total = score[:, 0]
    for t in range(1, x.shape[1]):
        total = torch.logsumexp(total[:, :, None] + change, 1) + score[:, t]
    return torch.cat([torch.logsumexp(total, -1, keepdim=True), total], -1)
