"""A machine whose roundings are drawn at random: a backend that computes probes in NumPy as its draw says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from halfwise.backends import BackendFailure, BackendRecord, BackendRun
from halfwise.backends.backend import Feed, Traits
from halfwise.core.formats import Format
from halfwise.core.notes import Note
from halfwise.emulation.probes import PROBES, Form
from halfwise.emulation.profiles.hypotheses import CONVERSION, hypotheses_of
from tests.support.simulated_kernels import KERNELS, erf, layer_norm, softmax
from tests.support.simulated_products import convolved, takes_bias
from tests.support.simulated_rounding import Array, given, h, sigmoid

__all__ = ["RULES", "SimulatedGpu", "drawn", "simulated"]


def _norm_chain(form: Form, kernel: str, *, centred: bool) -> Array:
    if centred:
        x, scale, bias, _, _, epsilon = given(form)
    else:
        (x, scale, _, _, epsilon, _), bias = given(form), None
    if kernel == "wide":
        made = layer_norm(x, (-1,), epsilon if centred else 1e-5, centred=centred) * scale
        return h(made if bias is None else made + bias)
    shifted = h(x - h(x.mean(-1, keepdims=True))) if centred else x
    root = h(np.sqrt(h(h(h(shifted**2).mean(-1, keepdims=True)) + epsilon)))
    normal = h(shifted / root) if centred else h(shifted * h(1 / root))
    made = h(normal * scale)
    return made if bias is None else h(made + bias)


def _gelu(form: Form, kernel: str) -> Array:
    x, root, one, half = given(form)
    if kernel == "exact-constants":
        return h(0.5 * x * (1 + erf(x / np.sqrt(2.0))))
    if kernel == "wide":
        return h(x * (erf(x / root) + one) * half)
    return h(h(x * h(h(erf(h(x / root))) + one)) * half)


def _tanh_gelu(form: Form, kernel: str) -> Array:
    """The form's last node changes the sign."""
    x, cube, share, factor, one, half = given(form)
    if kernel == "exact-constants":
        return -h(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))
    if kernel == "wide":
        return -h(x * half * (np.tanh((x + x**cube * share) * factor) + one))
    if kernel == "steps":
        inner = h(h(0.035677408136300125) * h(x * x) + h(0.7978845608028654))
        return -h(x * h(0.5 + 0.5 * h(np.tanh(h(x * inner)))))
    bent = h(np.tanh(h(h(x + h(h(x**cube) * share)) * factor)))
    return -h(h(x * half) * h(bent + one))


def _quick_gelu(form: Form, kernel: str) -> Array:
    x, *rest = given(form)
    factor = rest[0] if rest else 1.0
    if kernel == "wide":
        return h(x * sigmoid(x * factor))
    v = h(x * factor)
    if kernel == "apart":
        return h(x * h(sigmoid(v)))
    upper = h(1 / h(1 + h(np.exp(-np.abs(v)))))
    return h(x * np.where(v > 0, upper, h(1 - upper)))


def _scaled_product(form: Form, kernel: str) -> Array:
    x, y, number = given(form)
    product = x @ y
    if kernel == "factor-stored":
        return h(product * h(1 / number))
    return h((product if kernel == "wide" else h(product)) / number)


def _masked_softmax(form: Form, kernel: str) -> Array:
    x, mask = given(form)
    return h(softmax(x + mask if kernel == "wide" else h(x + mask)))


def _added(form: Form, kernel: str) -> Array:
    x, w, other = given(form)
    product = convolved(x, w, form.attributes["Conv"]) if form.op == "Conv" else x @ w
    joins = kernel == "wide" or (kernel == "bias-by-size" and takes_bias(x.shape[0], x.shape[1], w.shape[1]))
    return h((product if joins else h(product)) + other)


def _quotient(form: Form, kernel: str) -> Array:
    x, y, one = given(form)
    return h(y / x) if kernel == "wide" else h(y * h(one / x))


def _conv_batch_norm(form: Form, kernel: str) -> Array:
    x, w, scale, shift, mean, variance, *rest = given(form)
    bias = rest[0] if rest else 0.0
    column = (1, -1, 1, 1)
    if kernel == "weights-folded":
        factor = h(scale / h(np.sqrt(h(variance + h(1e-5)))))
        weight = h(w * factor[:, None, None, None])
        if rest:
            shift = h(h(h(bias - mean) * factor) + shift)
        else:
            shift = h(shift - h(mean * factor))
        return h(h(convolved(x, weight, {})) + shift.reshape(column))
    factor = scale / np.sqrt(variance + 1e-5)
    if kernel == "folded-once":
        weight = h(w * factor[:, None, None, None])
        return h(convolved(x, weight, {}) + h(shift - (mean - bias) * factor).reshape(column))
    made = convolved(x, w, {}) + np.broadcast_to(bias, mean.shape).reshape(column)
    made = made if kernel == "wide" else h(made)
    return h((made - mean.reshape(column)) * factor.reshape(column) + shift.reshape(column))


def _attention(form: Form, kernel: str) -> Array:
    q, k, v, share, *mask = given(form)
    store = h if kernel == "apart" else np.asarray
    scores = store(store(q @ k) * share)
    scores = store(scores + mask[0]) if mask else scores
    shares = softmax(scores)
    return h((shares if kernel == "wide" else h(shares)) @ v)


_FUSED: Mapping[str, Callable[[Form, str], Array]] = {
    "attention": _attention,
    "biased-product": _added,
    "conv-batch-norm": _conv_batch_norm,
    "fast-gelu": _tanh_gelu,
    "gelu": _gelu,
    "layer-norm": lambda form, kernel: _norm_chain(form, kernel, centred=True),
    "masked-softmax": _masked_softmax,
    "quick-gelu": _quick_gelu,
    "quotient": _quotient,
    "residual": _added,
    "rms-norm": lambda form, kernel: _norm_chain(form, kernel, centred=False),
    "scaled-product": _scaled_product,
}


def _conversion(form: Form, kernel: str) -> Array:
    (x,) = given(form)
    x = np.clip(x, -65504.0, 65504.0) if "saturated" in kernel else x
    made = h(x)
    return -np.where(np.abs(made) < 2.0**-14, 0.0, made) if "flushed" in kernel else -made


# All that a machine may do in more than one way.
RULES = tuple(dict.fromkeys(form.rule for form in PROBES if len(hypotheses_of(form.rule)) > 1))


def simulated(form: Form, hypothesis: str) -> Array | None:
    """What a kernel of this hypothesis gives; None where the form is not followed here."""
    with np.errstate(all="ignore"):
        if form.rule == CONVERSION:
            return _conversion(form, hypothesis)
        if form.fused:
            return _FUSED[form.kind](form, hypothesis)
        return KERNELS[form.op](form, hypothesis)


def drawn(seed: int) -> dict[str, str]:
    """A hypothesis for every rule."""
    rng = np.random.default_rng(seed)
    return {rule: str(rng.choice(hypotheses_of(rule))) for rule in RULES}


class SimulatedGpu:
    """Computes joined probes as `choice` says; `refuses` are forms that no model may hold."""

    name = "simulated"
    cautions: tuple[Note, ...] = ()
    traits = Traits()

    def __init__(self, choice: Mapping[str, str], forms: Sequence[Form], refuses: Sequence[str] = ()) -> None:
        self.choice, self.refuses = choice, frozenset(refuses)
        self.forms = {form.name: form for form in forms}
        self.models = 0

    def kernel(self, form: Form) -> str:
        return self.choice[form.rule]

    def run(self, model: Path, feeds: Sequence[Feed]) -> BackendRun:
        self.models += 1
        names = {each.key: each.value for each in onnx.load(str(model)).metadata_props}
        if found := self.refuses & set(names.values()):
            raise BackendFailure(f"no kernel for {min(found)}")
        outputs: dict[str, Any] = {}
        for prefix, name in names.items():
            form = self.forms[name]
            made = simulated(form, self.kernel(form))
            assert made is not None, name
            with np.errstate(over="ignore"):
                kind = np.float32 if form.io is Format.FP32 else np.float16
                outputs[f"{prefix}y0"] = made.astype(kind)
        if not names:  # the first question: is anybody there?
            outputs["y"] = np.maximum(feeds[0]["x"], 0)
        record = BackendRecord(self.name, "NumPy", np.__version__, "simulated GPU")
        return BackendRun((outputs,) * len(feeds), record)
