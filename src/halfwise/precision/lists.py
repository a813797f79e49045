"""Which operators others keep in FP32, as data, each list with its source, spelled in ONNX's operators and patterns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from halfwise.core.errors import InputError
from halfwise.core.nearest import nearest

__all__ = ["POLICIES", "Policy", "policy_named"]


@dataclass(frozen=True)
class Policy:
    """A tool's list. `patterns` are kinds of node groups: the tool sees one operator where exporters write many.

    `magnitude` is its rule by range, where it has one: nodes that touch larger values stay in FP32, too.
    """

    name: str
    title: str
    ops: frozenset[str]
    source: str
    patterns: frozenset[str] = frozenset()
    magnitude: float | None = None


_AUTOCAST = Policy(
    "torch-autocast",
    "PyTorch's autocast",
    frozenset(
        """Pow Reciprocal Acos Asin Cosh Sinh Tan Exp Log Softplus Softmax LogSoftmax CumSum CumProd
        LayerNormalization RMSNormalization GroupNormalization LpNormalization
        ReduceSum ReduceProd ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum ReduceLogSumExp Resize Upsample
        NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss""".split()
    ),
    "AT_FORALL_FP32 in pytorch/pytorch, aten/src/ATen/autocast_mode.h (2.13)",
    frozenset({"layernorm", "rmsnorm", "groupnorm", "softmax", "logsumexp", "l2norm"}),
)
_ONNXRUNTIME = Policy(
    "onnxruntime",
    "ONNX Runtime's float16 converter",
    frozenset(
        """ArrayFeatureExtractor Binarizer CastMap CategoryMapper DictVectorizer FeatureVectorizer Imputer LabelEncoder
        LinearClassifier LinearRegressor Normalizer OneHotEncoder RandomUniformLike SVMClassifier SVMRegressor Scaler
        TreeEnsembleClassifier TreeEnsembleRegressor TreeEnsemble ZipMap NonMaxSuppression TopK RoiAlign Range CumSum
        Min Max Upsample""".split()
    ),
    "DEFAULT_OP_BLOCK_LIST in microsoft/onnxruntime, onnxruntime/python/tools/transformers/float16.py (1.31)",
)
_MODELOPT = Policy(
    "modelopt",
    "NVIDIA ModelOpt's AutoCast",
    frozenset({"Upsample", "NonMaxSuppression", "Celu"}),
    "OP_TYPES_NOT_SUPPORTED_IN_LOW_PRECISION and data_max in NVIDIA/Model-Optimizer, modelopt/onnx/autocast (0.47)",
    magnitude=512.0,
)

POLICIES: Mapping[str, Policy] = {policy.name: policy for policy in (_AUTOCAST, _ONNXRUNTIME, _MODELOPT)}


def policy_named(name: str) -> Policy:
    if name not in POLICIES:
        raise InputError(f"there is no policy {name!r}{nearest(name, POLICIES)}; there are {', '.join(POLICIES)}")
    return POLICIES[name]
