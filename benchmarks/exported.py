"""Language and vision models as Optimum exports them, one channel made massive: python -m benchmarks.exported.

Architectures of Transformers from their configurations, small and with random weights. One row of the first MLP's last
weight is scaled until its channel reaches 1.5e5, so that the residual stream overflows in FP16 from there on. With
--merged, the decoders of encoder-decoders with and without a cache, which are two branches of one If. Needs PyTorch and
optimum-onnx beside halfwise.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from benchmarks.contest import machine, markdown
from halfwise.model.held_graphs import nodes_within
from halfwise.verbs.fix.fix import fix

__all__ = ["main", "parser"]

HEAD = ("architecture", "file", "nodes", "plain FP16", "fixed", "FP32 nodes", "repairs", "model runs", "seconds")
_TOKENS, _WORDS, _SEED = 24, 1000, 3
_MASSIVE, _CHANNEL = 1.5e5, 7
_MLP = re.compile(r"\.0\..*(down_proj|fc2|dense_4h_to_h|mlp\.c_proj|fc_out|\.wo|output\.dense)$")
_SIZES = {"hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4}
_TEXT = {**_SIZES, "vocab_size": _WORDS, "intermediate_size": 352, "max_position_embeddings": 256}
_GROUPED = {**_TEXT, "num_key_value_heads": 2}
_SHORT = {"vocab_size": _WORDS, "n_embd": 128, "n_layer": 3, "n_head": 4}
_T5 = {"vocab_size": _WORDS, "d_model": 128, "d_kv": 32, "d_ff": 256, "num_layers": 3, "num_heads": 4}
_IMAGE = {**_SIZES, "intermediate_size": 256, "image_size": 64, "patch_size": 16}
_BOTH = {
    "vocab_size": _WORDS, "d_model": 128, "max_position_embeddings": 256, "pad_token_id": 0,
    **{f"{side}_{what}": size for side in ("encoder", "decoder") for what, size in (("layers", 2), ("ffn_dim", 256))},
    **{f"{side}_attention_heads": 4 for side in ("encoder", "decoder")},
}  # fmt: skip


@dataclass(frozen=True)
class Architecture:
    """A class of Transformers, its configuration and the task that it is exported for."""

    model: str
    config: str
    sizes: Mapping[str, Any] = field(default_factory=dict)
    task: str = "text-generation-with-past"


def _decoder(name: str, **sizes: Any) -> Architecture:
    return Architecture(f"{name}ForCausalLM", f"{name}Config", sizes)


def _both(name: str, **sizes: Any) -> Architecture:
    return Architecture(f"{name}ForConditionalGeneration", f"{name}Config", sizes, "text2text-generation")


ARCHITECTURES = {
    "Llama": _decoder("Llama", **_GROUPED),
    "Qwen2": _decoder("Qwen2", **_GROUPED, tie_word_embeddings=True),
    "Qwen3": _decoder("Qwen3", **_GROUPED, head_dim=32),
    "Mistral": _decoder("Mistral", **_GROUPED, sliding_window=16),
    "Gemma": _decoder("Gemma", **_GROUPED, head_dim=32),
    "Gemma 2": _decoder("Gemma2", **_GROUPED, head_dim=32),
    "Phi": _decoder("Phi", **_TEXT),
    "Phi-3": _decoder("Phi3", **_GROUPED, pad_token_id=0),
    "OLMo": _decoder("Olmo", **_GROUPED),
    "OLMo 2": _decoder("Olmo2", **_GROUPED),
    "Granite": _decoder("Granite", **_GROUPED),
    "SmolLM3": _decoder("SmolLM3", **_GROUPED, pad_token_id=0),
    "StableLM": _decoder("StableLm", **_GROUPED),
    "GPT-NeoX": _decoder("GPTNeoX", **_TEXT),
    "GPT-J": _decoder("GPTJ", **_SHORT, rotary_dim=16, n_positions=256),
    "CodeGen": _decoder("CodeGen", **_SHORT, rotary_dim=16, n_positions=256),
    "Falcon": _decoder("Falcon", vocab_size=_WORDS, **_SIZES),
    "BLOOM": _decoder("Bloom", vocab_size=_WORDS, hidden_size=128, n_layer=3, n_head=4),
    "OPT": _decoder("OPT", **_TEXT, ffn_dim=352, word_embed_proj_dim=128),
    "T5": _both("T5", **_T5),
    "mT5": _both("MT5", **_T5),
    "M2M-100": _both("M2M100", **_BOTH),
    "Pegasus": _both("Pegasus", **_BOTH),
    "ViT": Architecture("ViTModel", "ViTConfig", _IMAGE, "feature-extraction"),
    "DeiT": Architecture("DeiTModel", "DeiTConfig", _IMAGE, "feature-extraction"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    rows = []
    merged = [name for name, each in ARCHITECTURES.items() if each.task.startswith("text2text")]
    for name in options.only or (merged if options.merged else ARCHITECTURES):
        with tempfile.TemporaryDirectory() as folder:
            for model in _exported(ARCHITECTURES[name], Path(folder), options.merged):
                rows.append((name, *_row(model)))
                print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    print(f"{machine()}\n")
    print(markdown(HEAD, rows))
    return 0


def _exported(architecture: Architecture, folder: Path, merged: bool) -> list[Path]:
    import torch
    import transformers
    from optimum.exporters.onnx import onnx_export_from_model

    torch.manual_seed(_SEED)
    config = getattr(transformers, architecture.config)(**architecture.sizes)
    module = getattr(transformers, architecture.model)(config).eval()
    given = {name: torch.from_numpy(array) for name, array in _given(module.main_input_name).items()}
    if "decoder" in architecture.sizes or architecture.task.startswith("text2text"):
        given["decoder_input_ids"] = given["input_ids"]
    parts = [
        (name, each) for name, each in module.named_modules() if _MLP.search(f".{name}") and hasattr(each, "weight")
    ]
    stacks = dict[str, Any]()
    for name, each in parts:
        stacks.setdefault("decoder" if "decoder" in name else "encoder", each)
    for each in stacks.values():
        _make_massive(module, each, given)
    task = architecture.task + ("-with-past" if merged else "")
    onnx_export_from_model(module, folder, task=task, do_validation=False)
    return sorted(folder.glob("*_merged.onnx" if merged else "*.onnx"))


def _make_massive(module: Any, layer: Any, given: Mapping[str, Any]) -> None:
    import torch

    seen: list[float] = []
    hook = layer.register_forward_hook(lambda *each: seen.append(float(each[2][..., _CHANNEL].abs().max())))
    with torch.no_grad():
        module(**given)
        hook.remove()
        turned = not isinstance(layer, torch.nn.Linear)  # GPT-2's
        row = layer.weight[:, _CHANNEL] if turned else layer.weight[_CHANNEL]
        row *= _MASSIVE / max(seen)
        if getattr(layer, "bias", None) is not None:
            layer.bias[_CHANNEL] *= _MASSIVE / max(seen)


def _given(name: str) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(0)
    if name == "pixel_values":
        return {name: rng.standard_normal((1, 3, 64, 64)).astype(np.float32)}
    return {name: rng.integers(3, _WORDS, (1, _TOKENS))}


def _row(model: Path) -> tuple[str, ...]:
    proto = onnx.load(model, load_external_data=False)
    started = time.perf_counter()
    metric = "logits" if any(output.name == "logits" for output in proto.graph.output) else None
    found = fix(model, [_sample(proto, seed) for seed in range(6)], metric=metric)
    errors = [max((metrics.rel_l2 for metrics in each.values()), default=0.0) for each in (found.fp16, found.fixed)]
    return (
        model.name,
        str(sum(1 for _ in nodes_within(proto.graph.node))),
        *(f"{error:.2e}" for error in errors),
        f"{len(found.fp32_nodes)}{'' if found.met else ', missed'}",
        str(len(found.plan.repairs)),
        f"{found.cost.model_runs:.1f}",
        f"{time.perf_counter() - started:.1f}",
    )


def _sample(proto: onnx.ModelProto, seed: int) -> dict[str, NDArray[Any]]:
    """Every second one is padded at its end, and takes one step with a cache where a branch of the model does."""
    rng, made = np.random.default_rng(seed), dict[str, NDArray[Any]]()
    steps = seed % 2 == 1 and any(value.name == "use_cache_branch" for value in proto.graph.input)
    for value in proto.graph.input:
        sizes = [each.dim_value for each in value.type.tensor_type.shape.dim]
        if value.name.endswith("input_ids"):
            made[value.name] = rng.integers(3, _WORDS, (1, 1 if steps else _TOKENS))
        elif value.name == "use_cache_branch":
            made[value.name] = np.array([steps])
        elif value.name.endswith("attention_mask"):
            made[value.name] = np.ones((1, _TOKENS), np.int64)
            made[value.name][0, _TOKENS - 3 * (seed % 2) :] = 0
        elif value.name == "position_ids":
            made[value.name] = np.arange(_TOKENS)[None]
        elif value.name.startswith("past"):
            held = [1, sizes[1], _TOKENS if steps else 0, sizes[3]]
            made[value.name] = rng.standard_normal(held).astype(np.float32)
        elif value.name == "encoder_hidden_states":
            made[value.name] = rng.standard_normal((1, _TOKENS, sizes[2])).astype(np.float32)
        else:
            made[value.name] = rng.standard_normal((1, 3, 64, 64)).astype(np.float32)
    return made


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.exported", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--only", nargs="*", choices=ARCHITECTURES, default=(), metavar="NAME")
    made.add_argument("--merged", action="store_true", help="decoders of encoder-decoders, merged with their cache")
    return made


if __name__ == "__main__":
    sys.exit(main())
