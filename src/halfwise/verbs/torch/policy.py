"""What PyTorch's CUDA autocast does to each operator: the operators kept in FP32, and those put into FP16.

The lists of `torch.autocast("cuda")`, not those of the CPU: on a CPU, autocast to FP16 leaves softmax, norms, exp, log,
pow and sums in the type that they are given, so it says nothing of how a model was trained. Names are those of the
operators that reach a kernel (`_softmax` for `softmax`), and, where one is made up of others, of the function called.
"""

from __future__ import annotations

__all__ = [
    "FP16_FUNCTIONS",
    "FP16_OPERATORS",
    "FP32_FUNCTIONS",
    "FP32_OPERATORS",
    "WIDEST_FUNCTIONS",
    "family_of",
    "public_name",
]

_FAMILIES = {
    "softmax": "_softmax _log_softmax logsumexp",
    "norms": "native_layer_norm native_group_norm _fused_rms_norm linalg_vector_norm norm renorm dist _cdist_forward "
    "_pdist_forward",
    "exp": "exp expm1 cosh sinh softplus",
    "log": "log log2 log10 log1p",
    "pow": "pow reciprocal rsqrt",
    "sums": "sum cumsum prod cumprod",
    "losses": "nll_loss_forward nll_loss2d_forward mse_loss smooth_l1_loss huber_loss soft_margin_loss "
    "multi_margin_loss multilabel_margin_loss_forward binary_cross_entropy_with_logits",
    "inverses": "acos asin tan erfinv",
    "interpolation": "upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d "
    "upsample_trilinear3d upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa _upsample_nearest_exact1d "
    "_upsample_nearest_exact2d _upsample_nearest_exact3d",
}
FP32_OPERATORS = {name: family for family, names in _FAMILIES.items() for name in names.split()}

# Functions that autocast widens as a whole; inside them nothing is cast any more.
FP32_FUNCTIONS = {
    **dict.fromkeys(
        "layer_norm group_norm rms_norm cosine_similarity cdist pdist dist renorm nuclear_norm frobenius_norm".split(),
        "norms",
    ),
    **dict.fromkeys(
        "kl_div l1_loss smooth_l1_loss huber_loss mse_loss cosine_embedding_loss hinge_embedding_loss "
        "margin_ranking_loss multi_margin_loss poisson_nll_loss triplet_margin_loss soft_margin_loss "
        "binary_cross_entropy_with_logits".split(),
        "losses",
    ),
}
FP16_OPERATORS = frozenset(
    "convolution _convolution addmm mm bmm baddbmm addbmm addmv mv addr linear matmul _prelu_kernel linalg_vecdot "
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention "
    "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention _scaled_dot_product_attention_math "
    "_thnn_fused_lstm_cell _thnn_fused_gru_cell mkldnn_rnn_layer _cudnn_rnn".split()
)
# Many refuse two types of tensors before any operator is reached, so they are cast where they are called.
FP16_FUNCTIONS = frozenset(
    "conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d linear matmul __matmul__ "
    "__rmatmul__ mm bmm mv addmm addmv addbmm baddbmm addr prelu vecdot einsum scaled_dot_product_attention lstm "
    "gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell chain_matmul multi_dot".split()
)
# Functions that autocast gives the widest of their inputs' types.
WIDEST_FUNCTIONS = frozenset(
    "addcdiv addcmul atan2 bilinear cross dot vdot grid_sample grid_sampler index_put scatter_add tensordot".split()
)
# Kernels that take and give FP16 and compute their softmax in FP32; exported, they fall into MatMul, Softmax, MatMul.
ATTENTION_PREFIX = "_scaled_dot_product_"

_PUBLIC = {
    "_softmax": "softmax",
    "_log_softmax": "log_softmax",
    "native_layer_norm": "layer_norm",
    "native_group_norm": "group_norm",
    "_fused_rms_norm": "rms_norm",
    "linalg_vector_norm": "norm",
    "_cdist_forward": "cdist",
    "_pdist_forward": "pdist",
    "nll_loss_forward": "nll_loss",
    "nll_loss2d_forward": "nll_loss",
    "multilabel_margin_loss_forward": "multilabel_margin_loss",
}


def public_name(operator: str) -> str:
    """The name that users write."""
    return "scaled_dot_product_attention" if operator.startswith(ATTENTION_PREFIX) else _PUBLIC.get(operator, operator)


def family_of(name: str) -> str:
    """What kind of operator autocast keeps in FP32."""
    if name == "scaled_dot_product_attention":
        return "softmax"
    for operator, family in {**FP32_OPERATORS, **FP32_FUNCTIONS}.items():
        if public_name(operator) == name:
            return family
    return ""
