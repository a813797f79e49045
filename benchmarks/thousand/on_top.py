"""What other tools make of a model: optimisers, quantisers and converters to FP16, on top of models of the corpus."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import onnx

from benchmarks.thousand.graph import Feed, Graph, Made

__all__ = ["graphs"]

# Of these families the first graph is taken; the second word is what the transformer optimiser calls it.
FAMILIES = (
    ("transformers-bert", "bert"), ("transformers-gpt2", "gpt2"), ("transformers-t5", "t5"),
    ("transformers-llama", "gpt2"),
    ("transformers-vit", "vit"), ("transformers-distilbert", "bert"), ("transformers-bart", "bart"),
    ("transformers-gemma", "gpt2"), ("transformers-qwen2", "gpt2"), ("transformers-roberta", "bert"),
    ("transformers-electra", "bert"), ("transformers-gpt_neox", "gpt_neox"), ("transformers-wav2vec2", "bert"),
    ("transformers-clip_vision_model", "clip"), ("diffusers-unet2d_condition", "unet"), ("diffusers-vae_kl", "vae"),
    ("timm-test_vit", "vit"), ("timm-test_resnet", ""), ("timm-mobilenetv3_small_050", ""), ("timm-test_convnext", ""),
    ("timm-efficientvit_b0", ""), ("timm-mobilevit_xxs", ""), ("torch-lstm", ""), ("torch-gru", ""), ("torch-tcn", ""),
    ("torch-unet_small", ""), ("torch-detector", ""), ("torch-keypoints", ""), ("torch-rotary_decoder", ""),
    ("net-perceptron", ""), ("net-convolutions", ""), ("net-recurrent", ""),
    ("strangers-selective_scan", ""), ("strangers-time_unet", ""), ("strangers-seismic", ""), ("strangers-stereo", ""),
    ("strangers-gated_residual", ""), ("strangers-distributed_boxes", ""), ("strangers-picker", ""),
    ("torch-mlp_norms", ""), ("torch-wavenet", ""), ("torch-segmenter", ""), ("torch-autoencoder", ""),
)  # fmt: skip


def graphs(below: Iterable[Graph]) -> Iterator[Graph]:
    found = list(below)
    for family, model_type in FAMILIES:
        base = next((graph for graph in found if f"{graph.name}-".startswith(f"{family}-")), None)
        if base is None:
            continue
        for name, kind, change in _changes(model_type):
            yield Graph(f"{name}-{base.name}", kind, partial(_make, base, change), base.needs)


def _changes(model_type: str) -> Iterator[tuple[str, str, Callable[[Made], onnx.ModelProto]]]:
    if model_type:
        yield "optimizer", "onnxruntime.transformers", partial(_optimized, model_type, False)
        yield "optimizer_gpu", "onnxruntime.transformers", partial(_optimized, model_type, True)
    yield "extended", "optimised on disk", partial(_saved, "ORT_ENABLE_EXTENDED")
    yield "basic", "optimised on disk", partial(_saved, "ORT_ENABLE_BASIC")
    yield "qdq", "quantised", partial(_static, "QDQ")
    yield "qoperator", "quantised", partial(_static, "QOperator")
    yield "dynamic", "quantised", _dynamic
    yield "nbits", "quantised", _four_bits
    yield "half", "typed FP16", partial(_half, False)
    yield "half_io", "typed FP16", partial(_half, True)


def _make(base: Graph, change: Callable[[Made], onnx.ModelProto]) -> Made:
    made = base.make()
    plain = onnx.ModelProto()
    plain.CopyFrom(made.model)
    changed = change(made)
    narrow = {
        value.name for value in changed.graph.input if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16
    }
    feeds: list[Feed] = [
        {name: _narrowed(array) if name in narrow else array for name, array in feed.items()} for feed in made.feeds
    ]
    return Made(changed, feeds, plain)


def _narrowed(array: Any) -> Any:
    if abs(array).max(initial=0.0) > 65504.0:
        raise ValueError("its inputs are beyond FP16's range: nobody hands them over so")
    return array.astype("float16")


def _on_disk(model: onnx.ModelProto, work: Callable[[Path, Path], None]) -> onnx.ModelProto:
    with tempfile.TemporaryDirectory() as folder:
        given, changed = Path(folder) / "given.onnx", Path(folder) / "changed.onnx"
        onnx.save(model, given)
        work(given, changed)
        return onnx.load(changed)


def _optimized(model_type: str, gpu: bool, made: Made) -> onnx.ModelProto:
    from onnxruntime.transformers import optimizer

    def work(given: Path, changed: Path) -> None:
        found = optimizer.optimize_model(
            str(given), model_type=model_type, num_heads=4, hidden_size=64, opt_level=0, use_gpu=gpu
        )
        found.save_model_to_file(str(changed))

    return _on_disk(made.model, work)


def _saved(level: str, made: Made) -> onnx.ModelProto:
    import onnxruntime

    def work(given: Path, changed: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        options.optimized_model_filepath = str(changed)
        options.log_severity_level = 4
        onnxruntime.InferenceSession(str(given), options, providers=["CPUExecutionProvider"])

    return _on_disk(made.model, work)


def _static(form: str, made: Made) -> onnx.ModelProto:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.feeds = iter(made.feeds)

        def get_next(self) -> Any:
            return next(self.feeds, None)

    def work(given: Path, changed: Path) -> None:
        quantize_static(given, changed, Reader(), quant_format=QuantFormat[form], per_channel=True)

    return _on_disk(made.model, work)


def _dynamic(made: Made) -> onnx.ModelProto:
    from onnxruntime.quantization import quantize_dynamic

    return _on_disk(made.model, lambda given, changed: quantize_dynamic(given, changed))


def _four_bits(made: Made) -> onnx.ModelProto:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(made.model, block_size=16, is_symmetric=True)
    quantizer.process()
    found: onnx.ModelProto = quantizer.model.model
    return found


def _half(keep_io: bool, made: Made) -> onnx.ModelProto:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    found: onnx.ModelProto = convert_float_to_float16(made.model, keep_io_types=keep_io)
    return found
