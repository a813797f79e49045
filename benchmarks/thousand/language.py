"""Transformers of every family, tiny and with random weights, from their configurations alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.thousand.export import EXPORTERS, export
from benchmarks.thousand.graph import Graph, Made

__all__ = ["graphs", "text_model"]

DECODERS = """apertus arcee aria_text biogpt bitnet bloom cohere cohere2 ctrl cwm diffllama doge ernie4_5 exaone4 falcon
gemma gemma2 gemma3_text glm glm4 gpt-sw3 gpt2 gpt_bigcode gpt_neox gpt_oss granite granitemoe helium hunyuan_v1_dense
internlm3 jais2 jetmoe lfm2 llama llama4_text minimax ministral mistral mixtral modernbert-decoder moshi mpt nanochat
nemotron olmo olmo2 olmo3 olmoe openai-gpt opt persimmon phi phi3 phimoe qwen2 qwen2_moe qwen3 qwen3_moe recurrent_gemma
seed_oss smollm3 stablelm starcoder2 xglm""".split()
ENCODERS = """albert beam bert bert-generation big_bird camembert canine clip_text_model convbert data2vec-text deberta
deberta-v2 distilbert dpr electra ernie esm eurobert fnet gte ibert jina_embeddings_v3 layoutlm longformer markuplm
megatron-bert mobilebert modernbert mpnet mra nomic_bert nystromformer rembert roberta roberta-prelayernorm roc_bert
roformer splinter squeezebert xlm xlm-roberta xlnet xmod yoso""".split()
PAIRS = """bart bigbird_pegasus blenderbot blenderbot-small led longt5 m2m_100 marian mbart mt5 mvp pegasus pegasus_x
plbart prophetnet switch_transformers t5 umt5""".split()
PICTURES = """aimv2_vision_model beit clip_vision_model data2vec-vision deit dinov2 dinov2_with_registers dinov3_vit dpt
ijepa imagegpt internvl_vision mlcd mobilenet_v1 mobilenet_v2 pixtral poolformer pvt regnet resnet segformer
siglip_vision_model swiftformer swin swinv2 vit vit_mae vit_msn yolos""".split()
SOUNDS = """data2vec-audio hubert sew sew-d unispeech unispeech-sat wav2vec2 wav2vec2-conformer wavlm""".split()

# What a configuration has of these becomes this small.
TINY: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads", "num_experts", "num_local_experts"), 4),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim", "hidden_dim"), 128),
    **dict.fromkeys(("n_inner", "max_position_embeddings", "n_positions"), 128),
    **dict.fromkeys(("max_source_positions", "max_target_positions", "embedding_size", "moe_intermediate_size"), 64),
    **dict.fromkeys(("num_key_value_heads", "num_experts_per_tok", "type_vocab_size", "num_decoder_layers"), 2),
    **dict.fromkeys(("head_dim", "d_kv", "patch_size", "num_mel_bins"), 16),
    "embed_dim": 32, "vocab_size": 512, "image_size": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "relative_attention_num_buckets": 8, "num_feat_extract_layers": 3, "attention_window": 8,
    "conv_dim": (32, 32, 32), "conv_kernel": (10, 3, 3), "conv_stride": (5, 2, 2),
}  # fmt: skip
WORDS, TOKENS, PADDED = 500, 12, 4


def graphs() -> Iterator[Graph]:
    kinds = [("decoder", DECODERS), ("encoder", ENCODERS), ("pair", PAIRS), ("picture", PICTURES), ("sound", SOUNDS)]
    for kind, families in kinds:
        for index, family in enumerate(families):
            for exporter in (index % 2, 2 + index // 2 % 2):
                name = f"transformers-{family}-{EXPORTERS[exporter][0]}"
                make = partial(_make, name, family, kind, exporter)
                yield Graph(name, f"transformers {kind}", make, ("torch", "transformers"))


def text_model(family: str) -> Any:
    """The bare network of a family, as small as its configuration allows."""
    from transformers import AutoConfig, AutoModel

    known = AutoConfig.for_model(family).to_dict()
    tiny = {key: value for key, value in TINY.items() if key in known and _same_kind(known[key], value)}
    config = AutoConfig.for_model(family, **tiny)
    config.use_cache = False
    factory: Any = AutoModel
    return factory.from_config(config, attn_implementation="eager").float()


def _same_kind(one: Any, other: Any) -> bool:
    return one is None or isinstance(one, list | tuple) == isinstance(other, tuple)


def _make(name: str, family: str, kind: str, exporter: int) -> Made:
    seed = Graph(name, kind, lambda: Made(None, ())).seed  # type: ignore[arg-type]
    return export(partial(text_model, family), partial(_sample, kind), exporter, seed)


def _sample(kind: str) -> list[tuple[str, Any]]:
    import torch

    if kind == "picture":
        return [("pixel_values", torch.randn(1, 3, 64, 64))]
    if kind == "sound":
        return [("input_values", torch.randn(1, 2000))]
    mask = torch.ones(2, TOKENS, dtype=torch.int64)
    mask[1, :PADDED] = 0  # one row padded on the left
    given = [("input_ids", torch.randint(3, WORDS, (2, TOKENS))), ("attention_mask", mask)]
    return [*given, ("decoder_input_ids", torch.randint(3, WORDS, (2, 6)))] if kind == "pair" else given
