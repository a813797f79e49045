"""Small PyTorch modules, one a domain; imported only where PyTorch is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

__all__ = ["MODULES"]

Tensor = Any
r = torch.randn


class Function(nn.Module):  # type: ignore[misc]
    """Layers by name, and what to do with them and with x."""

    def __init__(self, body: Callable[..., Any], **layers: nn.Module) -> None:
        super().__init__()
        self.body = body
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Any:
        return self.body(self, x)


def spectrogram(m: Any, x: Tensor) -> Tensor:
    """A spectrogram as products with cosines and sines, mel bands, and a logarithm."""
    frames = x.unfold(-1, 128, 64)
    n = torch.arange(128) * torch.arange(65)[:, None] * (2 * torch.pi / 128)
    power = (frames @ n.cos().T) ** 2 + (frames @ n.sin().T) ** 2
    return m.net(torch.log(m.mel(power).abs() + 1e-10))


def rotary(m: Any, x: Tensor) -> Tensor:
    h = m.norm(x)
    q, k, v = m.qkv(h).chunk(3, -1)
    angle = torch.arange(x.shape[1])[:, None] * (10000.0 ** (-torch.arange(0, 32, 2) / 32))
    cos, sin = angle.cos().repeat(1, 2), angle.sin().repeat(1, 2)

    def turn(t: Tensor) -> Tensor:
        a, b = t.chunk(2, -1)
        return t * cos + torch.cat([-b, a], -1) * sin

    scores = turn(q) @ turn(k).transpose(-1, -2) / 32**0.5
    future = torch.full((x.shape[1], x.shape[1]), torch.finfo(torch.float32).min).triu(1)
    return x + m.out(F.softmax(scores + future, -1) @ v)


def graph_convolution(m: Any, x: Tensor) -> Tensor:
    """Messages along fixed edges, summed where they arrive."""
    source, target = torch.arange(20) % 10, (torch.arange(20) * 7 + 3) % 10
    for layer in (m.one, m.two):
        sent = layer(x)[:, source]
        x = F.relu(torch.zeros(1, 10, sent.shape[-1]).index_add(1, target, sent) + layer(x))
    return x


def graph_attention(m: Any, x: Tensor) -> Tensor:
    h = m.one(x)
    edges = (torch.arange(10)[:, None] * 3 + torch.arange(10)) % 4 == 0
    e = F.leaky_relu(m.a(h) + m.b(h).transpose(1, 2), 0.2).masked_fill(~edges, -1e9)
    return F.elu(F.softmax(e, -1) @ h)


def keypoints(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    heat = m.heat(F.relu(m.conv(x)))
    peak = F.max_pool2d(heat, 3, 1, 1)
    score, place = torch.where(heat == peak, heat, torch.zeros(())).flatten(1).topk(8)
    return score, torch.stack([place % x.shape[-1], place // x.shape[-1]], -1).float()


def detector(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    h = F.silu(m.stem(x))
    raw = m.head(h).flatten(2).transpose(1, 2)
    grid = torch.stack(torch.meshgrid(torch.arange(16), torch.arange(16), indexing="ij"), -1).reshape(1, -1, 2)
    boxes = torch.cat([(raw[..., :2].sigmoid() * 2 - 0.5 + grid) * 32, (raw[..., 2:4].sigmoid() * 2) ** 2 * 64], -1)
    return boxes, raw[..., 4:].sigmoid()


def ode(m: Any, x: Tensor) -> Tensor:
    for _ in range(8):
        k = torch.tanh(m.one(x))
        x = x + 0.1 * m.two(torch.tanh(m.one(x + 0.05 * k)))
    return x


def gate(m: Any, x: Tensor) -> Tensor:
    weight, chosen = F.softmax(m.router(x), -1).topk(2, -1)
    experts = torch.stack([m.one(x), m.two(x), m.three(x)], -2)
    return (experts.gather(-2, chosen[..., None].expand(*chosen.shape, experts.shape[-1])) * weight[..., None]).sum(-2)


def style(m: Any, x: Tensor) -> Tensor:
    mean, std = x.mean((2, 3), keepdim=True), x.std((2, 3), keepdim=True) + 1e-5
    return m.conv((x - mean) / std * m.scale(mean[..., 0, 0])[..., None, None])


def phase(m: Any, x: Tensor) -> Tensor:
    """A voice as a sum of sines of a running phase."""
    pitch = F.softplus(m.pitch(x)) * 200
    turns = torch.cumsum(pitch.expand(-1, -1, 64).flatten(1) / 16000, 1)
    return m.out(torch.sin(2 * torch.pi * turns[..., None] * torch.arange(1, 9)))


def vae(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    mean, logvar = m.enc(x).chunk(2, -1)
    return m.dec(mean + torch.exp(0.5 * logvar)), -0.5 * (1 + logvar - mean**2 - logvar.exp()).sum(-1)


def unet(m: Any, x: Tensor) -> Tensor:
    a = F.relu(m.down(x))
    b = F.relu(m.middle(a))
    up = F.interpolate(b, scale_factor=2, mode=m.mode)
    return m.last(torch.cat([up, x], 1))


def nbeats(m: Any, x: Tensor) -> Tensor:
    forecast = torch.zeros(1, 12)
    for block in (m.one, m.two, m.three):
        back, ahead = block(x).split([48, 12], -1)
        x, forecast = x - back, forecast + ahead
    return forecast


def capsule(m: Any, x: Tensor) -> Tensor:
    votes = m.votes(x).reshape(1, 10, 4, 8)
    b = torch.zeros(1, 10, 4)
    for _ in range(3):
        s = (F.softmax(b, -1)[..., None] * votes).sum(1)
        n = (s**2).sum(-1, keepdim=True)
        v = n / (1 + n) * s / torch.sqrt(n + 1e-8)
        b = b + (votes * v[:, None]).sum(-1)
    return v


def sampler(m: Any, x: Tensor) -> Tensor:
    grid = torch.tanh(m.flow(x)).permute(0, 2, 3, 1)
    return F.grid_sample(x, grid, align_corners=False)


def positions(m: Any, x: Tensor) -> Tensor:
    """Rows picked at positions that are computed in floating point."""
    length = x.shape[1]
    at = torch.clamp(torch.arange(length).float() * 1.7 - 3.0, 0, length - 1).long()
    return m.out(x[:, at])


def wave(m: Any, x: Tensor) -> Tensor:
    skip = torch.zeros(())
    for layer in m.layers:
        a, b = layer(F.pad(x, (layer.dilation[0], 0))).chunk(2, 1)
        h = torch.tanh(a) * torch.sigmoid(b)
        x, skip = x + h, skip + h
    return m.out(skip)


def _seq(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(*layers)


def _lin(a: int, b: int) -> nn.Module:
    return nn.Linear(a, b)


def _steps(*shape: int) -> Callable[[], list[tuple[str, Any]]]:
    return lambda: [("x", r(*shape))]


SEQ, PIC = _steps(1, 20, 32), _steps(1, 3, 32, 32)
MODULES: dict[str, tuple[Callable[[], nn.Module], Callable[[], list[tuple[str, Any]]]]] = {
    "lstm": (lambda: Function(lambda m, x: m.net(x)[0], net=nn.LSTM(32, 24, 2, batch_first=True)), SEQ),
    "bilstm": (lambda: Function(lambda m, x: m.net(x)[0], net=nn.LSTM(32, 24, bidirectional=True)), SEQ),
    "gru": (lambda: Function(lambda m, x: m.net(x)[0], net=nn.GRU(32, 24, 2, batch_first=True)), SEQ),
    "rnn": (lambda: Function(lambda m, x: m.net(x)[0], net=nn.RNN(32, 24)), SEQ),
    "lstm_linear": (
        lambda: Function(lambda m, x: m.out(m.net(x)[0]), net=nn.LSTM(32, 24, batch_first=True), out=_lin(24, 5)), SEQ,
    ),
    "tcn": (
        lambda: _seq(nn.Conv1d(16, 32, 3, padding=2, dilation=2), nn.BatchNorm1d(32), nn.PReLU(), nn.Conv1d(32, 8, 1)),
        lambda: [("input", r(1, 16, 100))],
    ),
    "wavenet": (
        lambda: Function(
            wave, layers=nn.ModuleList(nn.Conv1d(16, 32, 2, dilation=2**i) for i in range(4)), out=nn.Conv1d(16, 4, 1)
        ),
        _steps(1, 16, 80),
    ),
    "spectrogram_net": (
        lambda: Function(spectrogram, mel=nn.Linear(65, 20, bias=False), net=nn.GRU(20, 16, batch_first=True)),
        lambda: [("x", r(1, 4000) * 0.1)],
    ),
    "mel_log": (
        lambda: Function(spectrogram, mel=nn.Linear(65, 20, bias=False), net=_seq(nn.LayerNorm(20), _lin(20, 4))),
        lambda: [("x", r(1, 4000) * 3000)],
    ),
    "graph_convolution": (lambda: Function(graph_convolution, one=_lin(8, 16), two=_lin(16, 16)), _steps(1, 10, 8)),
    "graph_attention": (
        lambda: Function(graph_attention, one=_lin(8, 16), a=_lin(16, 1), b=_lin(16, 1)), _steps(1, 10, 8),
    ),
    "nbeats": (
        lambda: Function(nbeats, **{k: _seq(_lin(48, 64), nn.ReLU(), _lin(64, 60)) for k in ("one", "two", "three")}),
        lambda: [("x", r(1, 48) * 50 + 900)],
    ),
    "autoencoder": (
        lambda: Function(lambda m, x: m.net(x), net=_seq(
            nn.Conv2d(3, 16, 4, 2, 1), nn.GELU(), nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Sigmoid())), PIC,
    ),
    "vae": (lambda: Function(vae, enc=_lin(32, 32), dec=_lin(16, 32)), SEQ),
    "unet_small": (lambda: _unet("nearest"), PIC),
    "unet_1d": (
        lambda: Function(lambda m, x: m.up(F.relu(m.down(x))), down=nn.Conv1d(4, 8, 4, 2, 1),
                         up=nn.ConvTranspose1d(8, 4, 4, 2, 1)), _steps(1, 4, 64),
    ),
    "mlp_norms": (
        lambda: Function(lambda m, x: m.net(x), net=_seq(_lin(32, 64), nn.LayerNorm(64), nn.SiLU(), nn.RMSNorm(64),
                                                         nn.Dropout(), _lin(64, 8), nn.Softmax(-1))), SEQ,
    ),
    "mixer": (
        lambda: Function(lambda m, x: m.a(x) + m.b(x.transpose(1, 2)).transpose(1, 2), a=_lin(32, 32), b=_lin(20, 20)),
        SEQ,
    ),
    "positions_net": (lambda: Function(positions, out=_lin(32, 8)), _steps(1, 6000, 32)),
    "soft_sort": (
        lambda: Function(lambda m, x: F.softmax(-(m.s(x) - m.s(x).sort(1)[0].transpose(1, 2)).abs() * 50, -1) @ x,
                         s=_lin(32, 1)), SEQ,
    ),
    "capsule": (lambda: Function(capsule, votes=_lin(16, 32)), _steps(1, 10, 16)),
    "keypoints": (lambda: Function(keypoints, conv=nn.Conv2d(3, 8, 3, padding=1), heat=nn.Conv2d(8, 1, 1)), PIC),
    "detector": (lambda: Function(detector, stem=nn.Conv2d(3, 16, 3, 2, 1), head=nn.Conv2d(16, 9, 1)), PIC),
    "segmenter": (
        lambda: Function(lambda m, x: F.interpolate(m.net(x), size=(32, 32), mode="bilinear").argmax(1),
                         net=_seq(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.Hardswish(), nn.Conv2d(16, 5, 1))),
        PIC,
    ),
    "siamese": (
        lambda: Function(lambda m, x: F.cosine_similarity(m.net(x[:, :10]), m.net(x[:, 10:]), dim=-1),
                         net=_lin(32, 16)),
        SEQ,
    ),
    "memory_net": (
        lambda: Function(lambda m, x: F.softmax(m.key(x) @ m.mem.weight.T, -1) @ m.mem.weight, key=_lin(32, 16),
                         mem=nn.Embedding(50, 16)), SEQ,
    ),
    "highway": (
        lambda: Function(lambda m, x: torch.sigmoid(m.t(x)) * F.relu(m.h(x)) + (1 - torch.sigmoid(m.t(x))) * x,
                         t=_lin(32, 32), h=_lin(32, 32)), SEQ,
    ),
    "film": (
        lambda: Function(lambda m, x: (m.conv(x).permute(2, 3, 0, 1) * m.g(x.mean((2, 3))) + m.b(x.mean((2, 3)))),
                         conv=nn.Conv2d(3, 8, 3), g=_lin(3, 8), b=_lin(3, 8)), PIC,
    ),
    "pixel_shuffle": (
        lambda: Function(lambda m, x: m.net(x).clamp(0, 1),
                         net=_seq(nn.Conv2d(3, 12, 3, padding=1), nn.PixelShuffle(2))),
        PIC,
    ),
    "deep_sets": (
        lambda: Function(lambda m, x: m.rho(F.relu(m.phi(x)).sum(1)), phi=_lin(32, 64), rho=_lin(64, 4)), SEQ,
    ),
    "neural_ode": (lambda: Function(ode, one=_lin(32, 32), two=_lin(32, 32)), SEQ),
    "rotary_decoder": (lambda: Function(rotary, norm=nn.RMSNorm(32), qkv=_lin(32, 96), out=_lin(32, 32)), SEQ),
    "moe_gate": (
        lambda: Function(gate, router=_lin(32, 3), one=_lin(32, 16), two=_lin(32, 16), three=_lin(32, 16)), SEQ,
    ),
    "group_norm_net": (
        lambda: Function(lambda m, x: m.net(x), net=_seq(nn.Conv2d(3, 16, 3), nn.GroupNorm(4, 16), nn.Mish(),
                                                         nn.AdaptiveAvgPool2d(1))), PIC,
    ),
    "instance_style": (lambda: Function(style, conv=nn.Conv2d(3, 8, 3), scale=_lin(3, 3)), PIC),
    "weight_norm": (
        lambda: Function(lambda m, x: m.net(x), net=nn.utils.parametrizations.weight_norm(nn.Conv1d(20, 8, 3))), SEQ,
    ),
    "cumsum_phase": (lambda: Function(phase, pitch=_lin(32, 1), out=_lin(8, 1)), SEQ),
    "attention_pool": (
        lambda: Function(lambda m, x: m.net(m.q.weight[None], x, x)[0], q=nn.Embedding(4, 32),
                         net=nn.MultiheadAttention(32, 4, batch_first=True)), SEQ,
    ),
    "einsum_net": (
        lambda: Function(lambda m, x: torch.einsum("btc,buc,bud->btd", x, m.k(x), m.v(x)), k=_lin(32, 32),
                         v=_lin(32, 8)),
        SEQ,
    ),
    "grid_sampler": (lambda: Function(sampler, flow=nn.Conv2d(3, 2, 3, padding=1)), PIC),
}  # fmt: skip


def _unet(mode: str) -> nn.Module:
    made = Function(unet, down=nn.Conv2d(3, 16, 3, 2, 1), middle=nn.Conv2d(16, 16, 3, 1, 1), last=nn.Conv2d(19, 3, 1))
    made.mode = mode
    return made
