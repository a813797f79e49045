"""What ONNX Runtime's own operators, and some of ONNX's, are in simple operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from halfwise.model.contrib.kernels import cpu_runs
from halfwise.model.contrib.schemas import DOMAIN, IN_DEFAULT_DOMAIN, runtime_schema
from halfwise.model.contrib.steps_attention import ATTENTION
from halfwise.model.contrib.steps_experts import EXPERTS
from halfwise.model.contrib.steps_grouped import GROUPED, norms_heads
from halfwise.model.contrib.steps_images import IMAGES
from halfwise.model.contrib.steps_norms import ACTIVATIONS, NORMS, Inputs, Results
from halfwise.model.contrib.steps_products import PRODUCTS
from halfwise.model.contrib.steps_reductions import REDUCTIONS
from halfwise.model.contrib.steps_standard import STANDARD
from halfwise.model.contrib.steps_states import STATES
from halfwise.model.contrib.steps_traditional import TRADITIONAL, TRADITIONAL_DOMAIN
from halfwise.model.contrib.steps_transforms import TRANSFORMS
from halfwise.model.contrib.writer import StepWriter, dims_of

__all__ = ["WRITTEN", "decompose", "has_steps", "is_own", "runs_on_cpu"]

OLDEST = 11  # before it, stretches had no steps and ranges were not to be had

Decomposition = Callable[[StepWriter, Sequence[str]], Mapping[int, str] | None]
_ALL: Mapping[str, Decomposition] = {**NORMS, **ACTIVATIONS, **PRODUCTS, **ATTENTION, **GROUPED, **EXPERTS, **STATES}
# For what does not read them, or overflows in them, and emulated as they are.
WRITTEN: Mapping[str, Decomposition] = {**TRANSFORMS, **IMAGES, **REDUCTIONS}


def decompose(write: StepWriter, inputs: Inputs) -> Results | None:
    """Write the node of `write`, which reads `inputs`; the names of its results by slot, None where it is not known."""
    node = write.node
    found = _known(node).get(node.op_type) if write.opset >= OLDEST else None
    results = None if found is None or not _as_declared(node, write.opset) else found(write, inputs)
    missing = [slot for slot, value in enumerate(node.outputs) if value.name and slot not in (results or {})]
    return None if results is None or missing else results


def _known(node: ir.Node) -> Mapping[str, Decomposition]:
    if node.domain == TRADITIONAL_DOMAIN:
        return TRADITIONAL
    return _ALL if is_own(node) else {} if node.domain else {**STANDARD, **WRITTEN}


def _as_declared(node: ir.Node, opset: int) -> bool:
    """Whether each attribute is of the type that the operator declares: in a damaged file it may be of any."""
    schema = runtime_schema(node.op_type, node.domain, opset)
    declared = schema.attributes if schema is not None else {}
    return all(declared.get(name, held.type.name) == held.type.name for name, held in node.attributes.items())


def has_steps(node: ir.Node) -> bool:
    """Whether it is emulated by its steps, as far as they are known."""
    return is_own(node) or (not node.domain and node.op_type in STANDARD)


def is_own(node: ir.Node) -> bool:
    """Whether it is an operator of ONNX Runtime's own."""
    return node.domain == DOMAIN or (not node.domain and node.op_type in IN_DEFAULT_DOMAIN)


def runs_on_cpu(node: ir.Node) -> bool:
    """Whether the CPU provider computes the node in FP32; packed operands of attention and norms in it it does not, nor
    a mask of one row for all queries."""
    if node.op_type == "Attention" and not node.domain:
        query, mask = dims_of(node, 0) or (None, None), dims_of(node, 3)
        return mask is None or (len(mask) > 1 and (mask[-2] != 1 or query[-2] == 1))
    if node.op_type == "MultiHeadAttention" and node.domain == DOMAIN:
        return all(len(dims_of(node, slot) or ()) != 5 for slot in (0, 1))
    if node.op_type == "GroupQueryAttention" and node.domain == DOMAIN and norms_heads(node):
        return False
    return node.domain != DOMAIN or cpu_runs(node.op_type, node.domain)
