"""PyTorch modules of domains that no collection covers: sound, speech, graphs, time series, diffusion, detection."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from benchmarks.thousand.export import EXPORTERS, Inputs, export
from benchmarks.thousand.graph import Graph, Made

__all__ = ["graphs"]


def graphs() -> Iterator[Graph]:
    for kind, needs, found in (
        ("torch", ("torch",), _modules),
        ("strangers", ("torch",), _strangers),
        ("diffusers", ("torch", "diffusers"), _diffusers),
    ):
        for index, name in enumerate(NAMES[kind]):
            for exporter in (index % 2, 2 + index // 2 % 2):
                full = f"{kind}-{name}-{EXPORTERS[exporter][0]}"
                yield Graph(full, kind, partial(_make, full, found, name, exporter), needs)


def _make(full: str, found: Callable[[], Mapping[str, Any]], name: str, exporter: int) -> Made:
    build, sample = found()[name]
    return export(build, sample, exporter, Graph(full, "", lambda: Made(None, ())).seed)  # type: ignore[arg-type]


NAMES = {
    "torch": """lstm bilstm gru rnn lstm_linear tcn wavenet spectrogram_net mel_log graph_convolution graph_attention
    nbeats autoencoder vae unet_small unet_1d mlp_norms mixer positions_net soft_sort capsule keypoints detector
    segmenter siamese memory_net highway film pixel_shuffle deep_sets neural_ode rotary_decoder moe_gate group_norm_net
    instance_style weight_norm cumsum_phase attention_pool einsum_net grid_sampler""".split(),
    "strangers": """whisper_front pcen wake_word tasnet compressed_spectrum snake_vocoder inverse_stft seismic picker
    ecg reversible_norm moving_average gated_residual kalman fourier_layer diagonal_ssm selective_scan rwkv retention
    linear_attention alibi dense_experts softcapped crf edge_softmax schnet points sinkhorn time_unet radiance
    sine_field coupling_flow mixture stereo distributed_boxes correlation_tracker cross_features""".split(),
    "diffusers": """unet2d unet2d_condition vae_kl vq dit pixart transformer2d controlnet sd3 flux""".split(),
}


def _diffusers() -> Mapping[str, tuple[Callable[[], Any], Callable[[], Inputs]]]:
    import diffusers as library
    import torch

    diffusers: Any = library

    r = torch.randn
    unet = {"sample_size": 16, "layers_per_block": 1, "block_out_channels": (32, 64), "norm_num_groups": 8}
    cond = {
        "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
        "cross_attention_dim": 32,
        "attention_head_dim": 8,
    }

    def t() -> Any:
        return torch.randint(1, 1000, (1,))

    def latent(channels: int, **more: Callable[[], Any]) -> Callable[[], Inputs]:
        return lambda: [("sample", r(1, channels, 16, 16)), ("timestep", t()), *((k, v()) for k, v in more.items())]

    blocks = {"down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}
    auto = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2,
            "block_out_channels": (32, 32), "norm_num_groups": 8}  # fmt: skip
    return {
        "unet2d": (lambda: diffusers.UNet2DModel(**unet, **blocks, attention_head_dim=8), latent(3)),
        "unet2d_condition": (
            lambda: diffusers.UNet2DConditionModel(**unet, **cond),
            latent(4, encoder_hidden_states=lambda: r(1, 7, 32)),
        ),
        "vae_kl": (lambda: diffusers.AutoencoderKL(**auto), lambda: [("sample", r(1, 3, 32, 32))]),
        "vq": (lambda: diffusers.VQModel(**auto, num_vq_embeddings=32), lambda: [("sample", r(1, 3, 32, 32))]),
        "dit": (
            lambda: diffusers.DiTTransformer2DModel(
                num_attention_heads=2, attention_head_dim=16, in_channels=4, num_layers=2, sample_size=16,
                num_embeds_ada_norm=10,
            ),
            lambda: [("hidden_states", r(1, 4, 16, 16)), ("timestep", t()),
                     ("class_labels", torch.randint(0, 9, (1,)))],
        ),
        "pixart": (
            lambda: diffusers.PixArtTransformer2DModel(
                num_attention_heads=2, attention_head_dim=16, num_layers=2, sample_size=16, cross_attention_dim=32,
                caption_channels=32, use_additional_conditions=False,
            ),
            lambda: [("hidden_states", r(1, 4, 16, 16)), ("encoder_hidden_states", r(1, 7, 32)), ("timestep", t())],
        ),
        "transformer2d": (
            lambda: diffusers.Transformer2DModel(
                num_attention_heads=2, attention_head_dim=16, in_channels=32, norm_num_groups=8, cross_attention_dim=32
            ),
            lambda: [("hidden_states", r(1, 32, 8, 8)), ("encoder_hidden_states", r(1, 7, 32))],
        ),
        "controlnet": (
            lambda: diffusers.ControlNetModel(
                block_out_channels=(32, 64), layers_per_block=1, norm_num_groups=8, cross_attention_dim=32,
                down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), attention_head_dim=8,
                conditioning_embedding_out_channels=(16, 32),
            ),
            lambda: [("sample", r(1, 4, 16, 16)), ("timestep", t()), ("encoder_hidden_states", r(1, 7, 32)),
                     ("controlnet_cond", r(1, 3, 32, 32))],
        ),
        "sd3": (
            lambda: diffusers.SD3Transformer2DModel(
                sample_size=16, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=16, num_attention_heads=2,
                joint_attention_dim=32, caption_projection_dim=32, pooled_projection_dim=32, out_channels=4,
            ),
            lambda: [("hidden_states", r(1, 4, 16, 16)), ("encoder_hidden_states", r(1, 7, 32)),
                     ("pooled_projections", r(1, 32)), ("timestep", t())],
        ),
        "flux": (
            lambda: diffusers.FluxTransformer2DModel(
                in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
                joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=(4, 4, 8),
            ),
            lambda: [("hidden_states", r(1, 16, 4)), ("encoder_hidden_states", r(1, 7, 32)),
                     ("pooled_projections", r(1, 32)), ("timestep", torch.rand(1)), ("img_ids", r(16, 3)),
                     ("txt_ids", torch.zeros(7, 3))],
        ),
    }  # fmt: skip


def _modules() -> Mapping[str, tuple[Callable[[], Any], Callable[[], Inputs]]]:
    from benchmarks.thousand import modules

    return modules.MODULES


def _strangers() -> Mapping[str, tuple[Callable[[], Any], Callable[[], Inputs]]]:
    from benchmarks.thousand import strangers

    return strangers.STRANGERS
