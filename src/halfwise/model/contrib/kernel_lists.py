"""Which of ONNX Runtime's operators its CPU provider and its CUDA provider have kernels for, and for which formats.

CUDA's is the table of docs/OperatorKernels.md of ONNX Runtime (commit 001d12d2), which is generated from the kernels.
The CPU's is the list that the package of ONNX Runtime 1.32 for x86 gives: its own operators, and those of ONNX that
take a narrow format.
"""

from __future__ import annotations

from collections.abc import Mapping

from halfwise.core.formats import Format

__all__ = ["CPU", "CUDA"]

_FP32, _FP16, _BF16 = Format.FP32, Format.FP16, Format.BF16
_ALL = frozenset({_FP32, _FP16, _BF16})
_NO_BF16 = frozenset({_FP32, _FP16})
_NARROW = frozenset({_FP16, _BF16})

CUDA: Mapping[str, frozenset[Format]] = {
    **dict.fromkeys(
        """Attention BiasDropout BiasGelu BitmaskBiasDropout BitmaskDropout FastGelu FusedMatMul GatherBlockQuantized
        Gelu GemmFloat8 LayerNormalization MatMulBnb4 MatMulNBits MoE MultiHeadAttention QuickGelu RotaryEmbedding
        SimplifiedLayerNormalization SkipLayerNormalization SkipSimplifiedLayerNormalization TransposeMatMul Trilu
        UnfoldTensor""".split(),
        _ALL,
    ),
    **dict.fromkeys(
        """BiasAdd BiasSoftmax BiasSplitGelu CausalConvWithState ComplexMul ComplexMulConj DecoderAttention
        DecoderMaskedMultiHeadAttention
        DecoderMaskedSelfAttention DequantizeWithOrder EmbedLayerNormalization GatedRelativePositionBias GroupNorm
        Inverse Irfft LongformerAttention NhwcConv PackedAttention PackedMultiHeadAttention QAttention QuantizeWithOrder
        RelativePositionBias RemovePadding RestorePadding Rfft SkipGroupNorm""".split(),
        _NO_BF16,
    ),
    **dict.fromkeys(("GroupQueryAttention", "PagedAttention", "QMoE", "SparseAttention"), _NARROW),
    **dict.fromkeys(("ConvTransposeWithDynamicPads", "FusedConv", "GridSample"), frozenset({_FP32})),
    **dict.fromkeys(("DequantizeLinear", "QuantizeLinear", "GemmaRotaryEmbedding"), frozenset({_FP16})),
}

CPU: Mapping[tuple[str, str], frozenset[Format]] = {
    (domain, op): formats
    for domain, formats, ops in (
        (
            "",
            frozenset({_FP32, _BF16}),
            """Einsum OneHot Pad Unique""",
        ),
        (
            "",
            _ALL,
            """BitCast Cast Celu Compress Concat ConstantOfShape DynamicSlice Flatten Gather GatherElements
            GatherND Identity If IsInf IsNaN LayerNormalization Loop MemcpyFromHost MemcpyToHost Optional
            OptionalGetElement OptionalHasElement RandomNormalLike RandomUniformLike Reshape ReverseSequence
            Scan Scatter ScatterElements ScatterND SequenceAt SequenceConstruct Shape Shrink Sign
            SimplifiedLayerNormalization Slice Split Squeeze TensorScatter Transpose Unsqueeze""",
        ),
        (
            "",
            _NO_BF16,
            """Attention Clip DequantizeLinear Dropout Expand Max Min Mod QuantizeLinear RMSNormalization
            RotaryEmbedding Round SplitToSequence""",
        ),
        (
            "com.microsoft",
            frozenset(),
            """BifurcationDetector MatMulInteger16 NGramHashMapping NhwcMaxPool QLinearAdd QLinearAveragePool
            QLinearConcat QLinearConv QLinearGlobalAveragePool QLinearLeakyRelu QLinearMul QLinearSigmoid
            QLinearSoftmax QLinearWhere Tokenizer VarlenNGramHashMapping""",
        ),
        (
            "com.microsoft",
            _ALL,
            """BranchwiseRMSNorm ExpandDims GatedDeltaNet GatedRMSNorm GatherND GatherPacked HyperConnectionPostMix
            HyperConnectionPreMix LinearAttentionGate MoEGroupRouter QMoE ScaledSiLU SkipLayerNormalization
            SkipSimplifiedLayerNormalization UnfoldTensor VarlenCausalConvWithState""",
        ),
        (
            "com.microsoft",
            frozenset({_FP32}),
            """Attention AttnLSTM BeamSearch BiasGelu CDist CausalConvWithState ConvTransposeWithDynamicPads
            CropAndResize DecoderMaskedMultiHeadAttention DequantizeLinear DynamicQuantizeLSTM
            DynamicQuantizeMatMul DynamicTimeWarping EmbedLayerNormalization FastGelu FusedConv FusedGemm
            FusedMatMul Gelu GreedySearch GridSample LinearAttention MatMulBnb4 MatMulFpQ4 MatMulIntegerToFloat
            MaxpoolWithMask MoE MultiHeadAttention MurmurHash3 NGramRepeatBlock Pad QAttention
            QEmbedLayerNormalization QGemm QuantizeLinear QuickGelu Range SampleOp Sampling SparseToDenseMatMul
            TransposeMatMul Trilu Unique WhisperBeamSearch WordConvEmbedding""",
        ),
        (
            "com.microsoft",
            _NO_BF16,
            """EngramGate GatedAdd GatherBlockQuantized GroupQueryAttention Inverse MRotaryEmbedding MatMulNBits
            RotaryEmbedding SparseAttention""",
        ),
    )
    for op in ops.split()
}
