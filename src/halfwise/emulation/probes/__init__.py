"""The probes of a machine: operator forms whose results tell how its kernels round."""

from __future__ import annotations

from halfwise.emulation.probes.exact import exact_forms
from halfwise.emulation.probes.form import Draw, Form
from halfwise.emulation.probes.fused import fusing
from halfwise.emulation.probes.layers import moves, pointwise, recurrent
from halfwise.emulation.probes.norms import norms, softmaxes
from halfwise.emulation.probes.products import convolutions, products
from halfwise.emulation.probes.sums import poolings, reductions, resizes

__all__ = ["FORMS", "PROBES", "Draw", "Form"]

# Those that benchmarks/data/operators.json holds measurements of, in its order.
FORMS: tuple[Form, ...] = (
    *fusing(),
    *convolutions(),
    *products(),
    *softmaxes(),
    *norms(),
    *reductions(),
    *poolings(),
    *resizes(),
    *recurrent(),
    *pointwise(),
    *moves(),
)


def _asks(form: Form) -> bool:
    """Not of a Gelu that is the model's own result, whose nodes ONNX Runtime keeps for that reason alone; nor of a
    state that 64 steps handed on, in which a last bit grows."""
    return form.name != "fused Gelu by tanh" and ", 64 steps" not in form.name


# What `halfwise prove` runs; forms that fuse come last, because they are judged by what the others taught.
PROBES: tuple[Form, ...] = tuple(
    sorted((form for form in (*exact_forms(), *FORMS) if _asks(form)), key=lambda form: form.fused)
)
