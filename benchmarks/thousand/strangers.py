"""More PyTorch modules, written as people write them in their domains: with the ranges of their sensors and tricks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from benchmarks.thousand.modules import Function, Tensor, r
from benchmarks.thousand.sequences import (
    alibi,
    crf,
    dense_experts,
    diagonal_ssm,
    linear_attention,
    retention,
    rwkv,
    selective_scan,
    softcapped,
)

__all__ = ["STRANGERS"]

Sample = Callable[[], list[tuple[str, Any]]]
Body = Callable[..., Any]


def lin(a: int, b: int) -> nn.Module:
    return nn.Linear(a, b)


# -- sound ------------------------------------------------------------------------------------------------------------


def bands(x: Tensor, m: Any) -> Tensor:
    """Power of 16-bit samples in mel bands."""
    frames = torch.stack([x[:, i : i + 256] for i in range(0, 2700, 128)], 1) * (
        0.5 - 0.5 * torch.cos(torch.arange(256) * (torch.pi / 128))
    )
    n = torch.arange(256) * torch.arange(129)[:, None] * (2 * torch.pi / 256)
    return ((frames @ n.cos().T) ** 2 + (frames @ n.sin().T) ** 2) @ m.mel.weight.T.abs()


def whisper_front(m: Any, x: Tensor) -> Tensor:
    log = torch.log10(bands(x, m).clamp(min=1e-10))
    log = torch.maximum(log, log.amax((1, 2), keepdim=True) - 8.0)
    return m.net((log + 4.0) / 4.0)


def pcen(m: Any, x: Tensor) -> Tensor:
    power = bands(x, m)
    smooth = [power[:, 0]]
    for t in range(1, power.shape[1]):
        smooth.append(0.975 * smooth[-1] + 0.025 * power[:, t])
    gain = (1e-6 + torch.stack(smooth, 1)) ** -0.98
    return m.net((power * gain + 2.0) ** 0.5 - 2.0**0.5)


def wake_word(m: Any, x: Tensor) -> Tensor:
    h = torch.log(bands(x, m) + 1e-6)
    h = (h - h.mean(1, keepdim=True)) / (h.std(1, keepdim=True) + 1e-5)
    return torch.sigmoid(m.head(m.net(h.transpose(1, 2)).mean(-1)))


def tasnet(m: Any, x: Tensor) -> Tensor:
    h = F.relu(m.encoder(x[:, None]))
    mean, var = h.mean((1, 2), keepdim=True), h.var((1, 2), keepdim=True, unbiased=False)
    mask = torch.sigmoid(m.separator((h - mean) / (var + 1e-8).sqrt()))
    return m.decoder((h[:, None] * mask.unflatten(1, (2, 16))).flatten(0, 1))


def compressed_spectrum(m: Any, x: Tensor) -> Tensor:
    power = bands(x, m)
    small = (power + 1e-12) ** 0.15
    return small * torch.tanh(m.net(small)[0])


def snake_vocoder(m: Any, x: Tensor) -> Tensor:
    h = m.up(x)
    return torch.tanh(m.out(h + torch.sin(h * m.alpha.weight.T) ** 2 / (m.alpha.weight.T + 1e-9)))


def inverse_stft(m: Any, x: Tensor) -> Tensor:
    size, phase = m.net(x).chunk(2, 1)
    size, phase = torch.exp(size).clamp(max=1e2), torch.pi * torch.tanh(phase)
    return m.back(torch.cat([size * phase.cos(), size * phase.sin()], 1))


# -- the earth, the body, the market ----------------------------------------------------------------------------------


def seismic(m: Any, x: Tensor) -> Tensor:
    """Counts of a seismometer, standardised, through a small U-Net to probabilities of P, S and noise."""
    x = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-10)
    a = F.relu(m.down(x))
    b = F.relu(m.middle(a))
    up = F.interpolate(b, scale_factor=4.0)
    return F.softmax(m.last(torch.cat([up, x], 1)), 1)


def picker(m: Any, x: Tensor) -> Tensor:
    """Convolutions, a recurrent net over both directions, additive attention."""
    h = F.relu(m.conv(x / x.abs().amax(-1, keepdim=True)))
    h = m.rnn(h.transpose(1, 2))[0]
    score = m.v(torch.tanh(m.q(h)[:, :, None] + m.k(h)[:, None])).squeeze(-1)
    weight = torch.exp(score - score.amax(-1, keepdim=True))
    return torch.sigmoid(m.out(weight / (weight.sum(-1, keepdim=True) + 1e-5) @ h))


def ecg(m: Any, x: Tensor) -> Tensor:
    h = m.net(x)
    return m.head(torch.cat([h.mean(-1), h.amax(-1), h.var(-1).sqrt()], -1))


def reversible_norm(m: Any, x: Tensor) -> Tensor:
    """Prices, normalised by the window and scaled back after the forecast."""
    mean, std = x.mean(1, keepdim=True).detach(), (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
    patches = ((x - mean) / std).transpose(1, 2).unfold(-1, 16, 8)
    h = m.layer(m.embed(patches).flatten(0, 1))
    return m.head(h.flatten(1)).unflatten(0, (1, 3)).transpose(1, 2) * std + mean


def moving_average(m: Any, x: Tensor) -> Tensor:
    trend = F.avg_pool1d(F.pad(x, (12, 12), mode="replicate"), 25, 1)
    return m.season(x - trend) + m.trend(trend)


def gated_residual(m: Any, x: Tensor) -> Tensor:
    """A fusion transformer's variable selection."""
    parts = torch.stack([m.embed(x[..., i : i + 1]) for i in range(8)], -2)
    weight = F.softmax(m.select(parts.flatten(-2)), -1)[..., None]
    h = F.elu(m.one((parts * weight).sum(-2)))
    return m.norm(x @ m.skip.weight.T + F.glu(m.two(h), -1))


def kalman(m: Any, x: Tensor) -> Tensor:
    state, spread = torch.zeros(1, 2, 1), torch.eye(2)[None] * 1e4
    step, noise = torch.tensor([[1.0, 0.1], [0.0, 1.0]]), torch.eye(2) * 1e-4
    seen = []
    for t in range(12):
        state, spread = step @ state, step @ spread @ step.T + noise
        gain = spread[:, :, :1] / (spread[:, :1, :1] + 0.5)
        state = state + gain * (m.sense(x[:, t])[..., None] - state[:, :1])
        spread = spread - gain @ spread[:, :1]
        seen.append(state)
    return torch.cat(seen, -1)


def fourier_layer(m: Any, x: Tensor) -> Tensor:
    """A neural operator: a few modes of a discrete Fourier transform, mixed and put back."""
    n = torch.arange(64)[:, None] * torch.arange(12) * (2 * torch.pi / 64)
    h = m.lift(x)
    real, imag = h.transpose(1, 2) @ n.cos(), -(h.transpose(1, 2) @ n.sin())
    mixed = torch.einsum("bck,cok->bok", real, m.a) + torch.einsum("bck,cok->bok", imag, m.b)
    return m.drop(F.gelu((mixed @ n.cos().T).transpose(1, 2) / 32 + h))


# -- graphs, points, molecules ----------------------------------------------------------------------------------------


def edge_softmax(m: Any, x: Tensor) -> Tensor:
    source, target = torch.arange(24) % 10, (torch.arange(24) * 7 + 3) % 10
    h = m.lift(x)
    score = F.leaky_relu(m.a(h[source]) + m.b(h[target]), 0.2)
    high = torch.full((10, 1), -1e30).scatter_reduce(0, target[:, None], score, "amax")
    weight = torch.exp(score - high[target])
    total = torch.zeros(10, 1).index_add(0, target, weight)
    return torch.zeros(10, 16).index_add(0, target, h[source] * weight / (total[target] + 1e-16))


def schnet(m: Any, x: Tensor) -> Tensor:
    """Distances in a Gaussian basis, a cosine cutoff, energies in electron volts."""
    apart = x[:, :, None] - x[:, None]
    far = ((apart**2).sum(-1) + 1e-12).sqrt()
    basis = torch.exp(-10.0 * (far[..., None] - torch.linspace(0, 5, 20)) ** 2)
    cut = 0.5 * (torch.cos(far * torch.pi / 5.0) + 1.0) * (far < 5.0)
    message = (F.softplus(m.filter(basis)) - 0.6931) * cut[..., None]
    return m.energy((message * m.atom.weight[None, None, :]).sum(2)).sum((1, 2)) * 27.2114 - 11000.0


def points(m: Any, x: Tensor) -> Tensor:
    """Metres from a lidar: nearest neighbours by squared distances, features of the offsets, the largest kept."""
    square = (x**2).sum(-1)
    apart = square[:, :, None] + square[:, None] - 2 * x @ x.transpose(1, 2)
    near = apart.topk(8, -1, largest=False)[1]
    around = x[torch.zeros(1, 1, 1, dtype=torch.long), near] - x[:, :, None]
    return m.head(F.relu(m.local(around)).amax(2))


def sinkhorn(m: Any, x: Tensor) -> Tensor:
    a, b = m.a(x[:, :10]), m.a(x[:, 10:])
    scores = a @ b.transpose(1, 2) / 0.1
    u, v = torch.zeros(1, 10), torch.zeros(1, 10)
    for _ in range(8):
        u = -2.3026 - torch.logsumexp(scores + v[:, None], 2)
        v = -2.3026 - torch.logsumexp(scores + u[..., None], 1)
    return scores + u[..., None] + v[:, None] + 2.3026


# -- pictures and fields ----------------------------------------------------------------------------------------------


def time_unet(m: Any, x: Tensor, t: Tensor) -> Tensor:
    """A diffusion U-Net with preconditioning by the noise level."""
    sigma = t[:, None, None, None]
    freq = torch.exp(-9.21 * torch.arange(16) / 16)
    angle = (sigma.log() / 4 * 1000).flatten()[:, None] * freq
    time = m.time(torch.cat([angle.cos(), angle.sin()], -1))
    h = m.inward(x / (sigma**2 + 0.25).sqrt())
    scale, shift = time[..., None, None].chunk(2, 1)
    h = m.outward(F.silu(m.norm(h) * (1 + scale) + shift))
    return x * 0.25 / (sigma**2 + 0.25) + h * sigma * 0.5 / (sigma**2 + 0.25).sqrt()


def radiance(m: Any, x: Tensor) -> Tensor:
    """Rays: frequencies up to 512, densities, transmittance as a running product."""
    encoded = torch.cat([f(x * 2.0**i * torch.pi) for i in range(10) for f in (torch.sin, torch.cos)], -1)
    out = m.net(encoded)
    alpha = 1 - torch.exp(-F.relu(out[..., 3]) * 0.05)
    through = torch.exp(torch.cumsum(torch.log(1 - alpha + 1e-10), -1))
    return ((alpha * through)[..., None] * torch.sigmoid(out[..., :3])).sum(-2)


def sine_field(m: Any, x: Tensor) -> Tensor:
    return m.out(torch.sin(30.0 * m.two(torch.sin(30.0 * m.one(x)))))


def coupling_flow(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    a, b = x.chunk(2, -1)
    log_scale, shift = m.net(a).chunk(2, -1)
    z = torch.cat([a, b * torch.exp(log_scale) + shift], -1)
    return z, -0.5 * (z**2 + 1.8379).sum(-1) + log_scale.sum(-1)


def mixture(m: Any, x: Tensor) -> Tensor:
    weight, mean, log_std = m.net(x).chunk(3, -1)
    log = weight.log_softmax(-1) - log_std - 0.5 * ((x[..., :1] - mean) * torch.exp(-log_std)) ** 2
    return torch.logsumexp(log, -1)


def stereo(m: Any, x: Tensor) -> Tensor:
    left, right = m.net(x[:, :3]), m.net(x[:, 3:])
    cost = torch.stack([(left * right.roll(d, -1)).sum(1) for d in range(16)], 1)
    return (F.softmax(cost * 4.0, 1) * torch.arange(16)[:, None, None]).sum(1)


def distributed_boxes(m: Any, x: Tensor) -> Tensor:
    """A detector's head: distances as expectations over bins, around cell centres, in pixels."""
    raw = m.head(m.stem(x)).flatten(2)
    far = (raw[:, :64].unflatten(1, (4, 16)).softmax(2) * torch.arange(16)[:, None]).sum(2)
    y, z = torch.meshgrid(torch.arange(16), torch.arange(16), indexing="ij")
    centre = torch.stack([z, y]).flatten(1) + 0.5
    corners = torch.cat([centre - far[:, :2], centre + far[:, 2:]], 1) * 40.0
    return torch.cat([corners, raw[:, 64:].sigmoid()], 1)


def correlation_tracker(m: Any, x: Tensor) -> Tensor:
    a, b = m.net(x[..., :16, :16]), m.net(x)
    return m.head(F.conv2d(b, a.transpose(0, 1), groups=16))


def cross_features(m: Any, x: Tensor) -> Tensor:
    """Counts up to millions, as click models take them, crossed with themselves."""
    first = torch.log1p(x)
    h = first
    for layer in (m.one, m.two):
        h = first * layer(h) + h
    return torch.sigmoid(m.out(torch.cat([h, 0.5 * (h.sum(-1, keepdim=True) ** 2 - (h**2).sum(-1, keepdim=True))], -1)))


class Weights(nn.Module):  # type: ignore[misc]
    """A body with bare parameters beside its layers."""

    def __init__(self, body: Body, parameters: dict[str, Tensor], **layers: nn.Module) -> None:
        super().__init__()
        self.body = body
        for name, value in parameters.items():
            self.register_parameter(name, nn.Parameter(value))
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Any:
        return self.body(self, x)


class Timed(Function):
    def forward(self, x: Tensor, t: Tensor) -> Any:  # type: ignore[override]
        return self.body(self, x, t)


def _one(*shape: int, times: float = 1.0, plus: float = 0.0) -> Sample:
    return lambda: [("x", r(*shape) * times + plus)]


def _sound() -> dict[str, nn.Module]:
    return {"mel": nn.Linear(129, 24, bias=False)}


VOICE, SEQ, PIC = _one(1, 3000, times=3000.0), _one(1, 20, 32), _one(1, 3, 32, 32)
conv1, conv2, seq = nn.Conv1d, nn.Conv2d, nn.Sequential
STRANGERS: dict[str, tuple[Callable[[], nn.Module], Sample]] = {
    "whisper_front": (lambda: Function(whisper_front, **_sound(), net=lin(24, 16)), VOICE),
    "pcen": (lambda: Function(pcen, **_sound(), net=lin(24, 8)), VOICE),
    "wake_word": (lambda: Function(wake_word, **_sound(), net=seq(conv1(24, 32, 5), nn.BatchNorm1d(32), nn.ReLU()),
                                   head=lin(32, 4)), VOICE),
    "tasnet": (lambda: Function(tasnet, encoder=conv1(1, 16, 16, 8), separator=conv1(16, 32, 1),
                                decoder=nn.ConvTranspose1d(16, 1, 16, 8)), _one(1, 800, times=0.05)),
    "compressed_spectrum": (lambda: Function(compressed_spectrum, **_sound(), net=nn.GRU(24, 24, batch_first=True)),
                            VOICE),
    "snake_vocoder": (lambda: Function(snake_vocoder, up=nn.ConvTranspose1d(16, 8, 8, 4), out=conv1(8, 1, 7),
                                       alpha=nn.Embedding(1, 8)), _one(1, 16, 40)),
    "inverse_stft": (lambda: Function(inverse_stft, net=conv1(16, 66, 3), back=nn.ConvTranspose1d(66, 1, 64, 16)),
                     _one(1, 16, 40)),
    "seismic": (lambda: Function(seismic, down=conv1(3, 16, 7, 4, 3), middle=conv1(16, 16, 7, 1, 3),
                                 last=conv1(19, 3, 1)), _one(1, 3, 400, times=2e5, plus=1e5)),
    "picker": (lambda: Function(picker, conv=conv1(3, 16, 5, 4), rnn=nn.LSTM(16, 12, bidirectional=True,
               batch_first=True), q=lin(24, 8), k=lin(24, 8), v=lin(8, 1), out=lin(24, 1)), _one(1, 3, 160, times=1e4)),
    "ecg": (lambda: Function(ecg, net=seq(conv1(12, 32, 15, 4), nn.BatchNorm1d(32), nn.LeakyReLU(), conv1(32, 32, 7)),
                             head=lin(96, 5)), _one(1, 12, 300)),
    "reversible_norm": (lambda: Function(reversible_norm, embed=lin(16, 32), layer=nn.TransformerEncoderLayer(
        32, 4, 64, batch_first=True), head=lin(160, 12)), _one(1, 48, 3, times=300.0, plus=41000.0)),
    "moving_average": (lambda: Function(moving_average, season=lin(64, 16), trend=lin(64, 16)),
                       _one(1, 7, 64, times=20.0, plus=500.0)),
    "gated_residual": (lambda: Function(gated_residual, embed=lin(1, 16), select=lin(128, 8), one=lin(16, 16),
                                        two=lin(16, 32), norm=nn.LayerNorm(16), skip=lin(8, 16)), _one(1, 24, 8)),
    "kalman": (lambda: Function(kalman, sense=lin(4, 1)), _one(1, 12, 4, times=10.0)),
    "fourier_layer": (lambda: Weights(fourier_layer, {"a": r(16, 16, 12) / 16, "b": r(16, 16, 12) / 16},
                                      lift=lin(3, 16), drop=lin(16, 1)), _one(1, 64, 3)),
    "diagonal_ssm": (lambda: Weights(diagonal_ssm, {"log_step": r(32) - 4, "log_decay": r(32, 8), "c": r(32, 8),
                     "freq": torch.rand(32, 8) * 3, "d": r(32)}, out=lin(32, 8)), SEQ),
    "selective_scan": (lambda: Weights(selective_scan, {"log_a": torch.log(torch.arange(1.0, 9.0)).repeat(32, 1)},
                       inner=lin(32, 64), step=lin(32, 32), b=lin(32, 8), c=lin(32, 8), out=lin(32, 32)), SEQ),
    "rwkv": (lambda: Weights(rwkv, {"bonus": r(32)}, k=lin(32, 32), v=lin(32, 32), r=lin(32, 32), out=lin(32, 32)),
             SEQ),
    "retention": (lambda: Function(retention, qkv=lin(32, 96), norm=nn.GroupNorm(4, 20)), SEQ),
    "linear_attention": (lambda: Function(linear_attention, qkv=lin(32, 96)), SEQ),
    "alibi": (lambda: Function(alibi, qkv=lin(32, 96), out=lin(32, 32)), SEQ),
    "dense_experts": (lambda: Function(dense_experts, router=lin(32, 4), experts=nn.ModuleList(
        seq(lin(32, 64), nn.SiLU(), lin(64, 32)) for _ in range(4))), SEQ),
    "softcapped": (lambda: Function(softcapped, head=lin(32, 50), blocks=nn.ModuleList(nn.ModuleDict(
        {"norm": nn.RMSNorm(32), "qkv": lin(32, 96), "after": nn.RMSNorm(32)}) for _ in range(2))), SEQ),
    "crf": (lambda: Function(crf, emit=lin(32, 6), change=nn.Embedding(6, 6)), SEQ),
    "edge_softmax": (lambda: Function(edge_softmax, lift=lin(8, 16), a=lin(16, 1), b=lin(16, 1)), _one(10, 8)),
    "schnet": (lambda: Function(schnet, filter=lin(20, 16), atom=nn.Embedding(9, 16), energy=lin(16, 1)),
               _one(1, 9, 3, times=2.0)),
    "points": (lambda: Function(points, local=lin(3, 16), head=lin(16, 8)), _one(1, 64, 3, times=40.0)),
    "sinkhorn": (lambda: Function(sinkhorn, a=lin(32, 32)), SEQ),
    "time_unet": (lambda: Timed(time_unet, time=seq(lin(32, 64), nn.SiLU(), lin(64, 32)), inward=conv2(3, 16, 3, 1, 1),
                                norm=nn.GroupNorm(4, 16), outward=conv2(16, 3, 3, 1, 1)),
                  lambda: [("x", r(1, 3, 16, 16) * 80), ("t", torch.rand(1) * 80 + 0.002)]),
    "radiance": (lambda: Function(radiance, net=seq(lin(60, 64), nn.ReLU(), lin(64, 4))), _one(32, 24, 3, times=0.5)),
    "sine_field": (lambda: Function(sine_field, one=lin(2, 32), two=lin(32, 32), out=lin(32, 3)), _one(64, 2)),
    "coupling_flow": (lambda: Function(coupling_flow, net=lin(16, 32)), SEQ),
    "mixture": (lambda: Function(mixture, net=lin(32, 15)), SEQ),
    "stereo": (lambda: Function(stereo, net=conv2(3, 16, 3, 1, 1)), _one(1, 6, 24, 32)),
    "distributed_boxes": (lambda: Function(distributed_boxes, stem=seq(conv2(3, 16, 3, 2, 1), nn.BatchNorm2d(16),
                                           nn.SiLU()), head=conv2(16, 67, 1)), PIC),
    "correlation_tracker": (lambda: Function(correlation_tracker, net=seq(conv2(3, 16, 3), nn.ReLU()),
                                             head=conv2(16, 2, 1)), PIC),
    "cross_features": (lambda: Function(cross_features, one=lin(12, 12), two=lin(12, 12), out=lin(13, 1)),
                       lambda: [("x", torch.exp(torch.rand(4, 12) * 14))]),
}  # fmt: skip
