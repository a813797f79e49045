"""Language and vision models as Optimum exports them, with values beyond FP16: python -m benchmarks.exported.

Architectures of Transformers from their configurations, small and with random weights. One row of the first MLP's last
weight is scaled until its channel reaches 1.5e5, so that the residual stream overflows in FP16 from there on. With
--planted steady, the channel has one sign in all tokens, as in trained models; with hidden, three hidden values of that
MLP reach 3e5 instead, which its last weight takes back. With --merged, the decoders of encoder-decoders with and
without a cache, which are two branches of one If. Needs PyTorch and optimum-onnx beside halfwise.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from benchmarks.contest import machine, markdown
from halfwise.model.held_graphs import nodes_within
from halfwise.model.model import load
from halfwise.precision.sites import Sites
from halfwise.verbs.fix.fix import fix

__all__ = ["main", "parser", "sample"]

HEAD = (
    "architecture", "file", "nodes", "plain FP16", "fixed", "FP32 nodes", "of them positions and shapes", "repairs",
    "model runs", "seconds",
)  # fmt: skip
PLANTED = ("massive", "steady", "hidden")
_TOKENS, _WORDS, _SEED = 24, 1000, 3
_MASSIVE, _CHANNEL = 1.5e5, 7
_HIDDEN, _UNITS = 3e5, slice(5, 8)
_LAYERS = {  # of the first MLP, by what they make
    "gate": r"gate_proj|gate_up_proj|fc1|dense_h_to_4h|fc_in|\.wi|\.wi_0|intermediate\.dense",
    "up": r"up_proj|\.wi_1",
    "down": r"down_proj|fc2|dense_4h_to_h|fc_out|\.wo|output\.dense",
}
_SIZES = {"hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4}
_TEXT = {**_SIZES, "vocab_size": _WORDS, "intermediate_size": 352, "max_position_embeddings": 256}
_GROUPED = {**_TEXT, "num_key_value_heads": 2}
_SHORT = {"vocab_size": _WORDS, "n_embd": 128, "n_layer": 3, "n_head": 4}
_T5 = {"vocab_size": _WORDS, "d_model": 128, "d_kv": 32, "d_ff": 256, "num_layers": 3, "num_heads": 4}
_IMAGE = {**_SIZES, "intermediate_size": 256, "image_size": 64, "patch_size": 16}
_BERT = {**_TEXT, "intermediate_size": 256}
_DEBERTA = {
    **_BERT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 32, "type_vocab_size": 0,
    "max_relative_positions": 64, "norm_rel_ebd": "layer_norm", "share_att_key": True, "position_biased_input": False,
}  # fmt: skip
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
    "BERT": Architecture("BertModel", "BertConfig", _BERT, "feature-extraction"),
    "DeBERTa-v2": Architecture("DebertaV2Model", "DebertaV2Config", _DEBERTA, "feature-extraction"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    rows = []
    merged = [name for name, each in ARCHITECTURES.items() if each.task.startswith("text2text")]
    for name in options.only or (merged if options.merged else ARCHITECTURES):
        with tempfile.TemporaryDirectory() as folder:
            for model in _exported(ARCHITECTURES[name], Path(folder), options.planted, options.merged):
                rows.append((name, *_row(model)))
                print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    print(f"{machine()}\n")
    print(markdown(HEAD, rows))
    return 0


def _exported(architecture: Architecture, folder: Path, planted: str, merged: bool) -> list[Path]:
    import torch
    import transformers
    from optimum.exporters.onnx import onnx_export_from_model

    torch.manual_seed(_SEED)
    config = getattr(transformers, architecture.config)(**architecture.sizes)
    module = getattr(transformers, architecture.model)(config).eval()
    given = {name: torch.from_numpy(array) for name, array in _given(module.main_input_name).items()}
    if "decoder" in architecture.sizes or architecture.task.startswith("text2text"):
        given["decoder_input_ids"] = given["input_ids"]
    for layers in _first_mlps(module):
        _plant(planted, layers, lambda: module(**given))
    task = architecture.task + ("-with-past" if merged else "")
    onnx_export_from_model(module, folder, task=task, do_validation=False)
    return sorted(folder.glob("*_merged.onnx" if merged else "*.onnx"))


def _first_mlps(module: Any) -> list[dict[str, Any]]:
    """The layers of the first MLP of each stack."""
    stacks = dict[str, dict[str, Any]]()
    for name, each in module.named_modules():
        stack, _, rest = f".{name}".partition(".0.")
        for made, names in _LAYERS.items():
            if "attention" not in rest and re.search(f"({names})$", f".{rest}") and hasattr(each, "weight"):
                stacks.setdefault(stack, {}).setdefault(made, each)
    return [layers for layers in stacks.values() if "down" in layers]


def _plant(planted: str, layers: Mapping[str, Any], run: Callable[[], Any]) -> None:
    import torch

    gate, down = layers["gate"], layers["down"]
    with torch.no_grad():
        if planted == "hidden":
            grows = _HIDDEN / _largest(gate, run)[_UNITS]
            before = _largest(down, run, 0)[_UNITS]
            _scale(gate, _UNITS, grows)
            down.weight[:, _UNITS] *= before / _largest(down, run, 0)[_UNITS]
            return
        if planted == "steady":
            down.weight[_CHANNEL].abs_()
            if "up" in layers:  # x * f(x) has one sign
                layers["up"].weight.copy_(gate.weight)
        _scale(down, _CHANNEL, _MASSIVE / _largest(down, run)[_CHANNEL])


def _scale(layer: Any, rows: Any, factor: Any) -> None:
    layer.weight[rows] *= factor[..., None]
    if layer.bias is not None:
        layer.bias[rows] *= factor


def _largest(layer: Any, run: Callable[[], Any], given: int | None = None) -> Any:
    """The largest that each channel of a layer's result reaches, or of what it is given."""
    seen: list[Any] = []
    hook = layer.register_forward_hook(lambda _, inputs, made: seen.append(made if given is None else inputs[given]))
    run()
    hook.remove()
    return seen[0].abs().flatten(0, -2).amax(0)


def _given(name: str) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(0)
    if name == "pixel_values":
        return {name: rng.standard_normal((1, 3, 64, 64)).astype(np.float32)}
    return {name: rng.integers(3, _WORDS, (1, _TOKENS))}


def _row(model: Path) -> tuple[str, ...]:
    proto = onnx.load(model, load_external_data=False)
    started = time.perf_counter()
    metric = "logits" if any(output.name == "logits" for output in proto.graph.output) else None
    found = fix(model, [sample(proto, seed) for seed in range(6)], metric=metric)
    errors = [max((metrics.rel_l2 for metrics in each.values()), default=0.0) for each in (found.fp16, found.fixed)]
    return (
        model.name,
        str(sum(1 for _ in nodes_within(proto.graph.node))),
        *(f"{error:.2e}" for error in errors),
        f"{len(found.fp32_nodes)}{'' if found.met else ', missed'}",
        str(len(Sites(load(model)).pinned)),
        str(len(found.plan.repairs)),
        f"{found.cost.model_runs:.1f}",
        f"{time.perf_counter() - started:.1f}",
    )


def sample(proto: onnx.ModelProto, seed: int) -> dict[str, NDArray[Any]]:
    """An input. Every second is padded at its end, and takes one step with a cache where a branch does."""
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
        elif value.name == "token_type_ids":
            made[value.name] = np.zeros((1, _TOKENS), np.int64)
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
    made.add_argument("--planted", choices=PLANTED, default="massive", help="what is beyond FP16")
    made.add_argument("--merged", action="store_true", help="decoders of encoder-decoders, merged with their cache")
    return made


if __name__ == "__main__":
    sys.exit(main())
