"""Ways to damage an ONNX model that a parser still reads: one small change each, told by a name and a number.

A mutation changes the model in place, by what the random numbers say, and leaves alone what it does not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import onnx

from tools.fuzz import body_mutations, construct_mutations, nest_mutations, tensor_mutations
from tools.fuzz.attribute_mutations import (
    attribute_gone,
    attribute_kind,
    attribute_kind_said,
    attribute_more,
    attribute_refers,
    attribute_value,
    axes_odd,
)
from tools.fuzz.frame_mutations import ends_changed, ir_version_other, metadata_odd, opset_entries, opset_other
from tools.fuzz.node_mutations import (
    domain_other,
    edge_moved,
    input_gone,
    input_more,
    name_odd,
    node_gone,
    node_in_body,
    node_in_function,
    node_twice,
    nodes_shuffled,
    operator_other,
    operator_swapped,
    output_changed,
    tensor_renamed,
)
from tools.fuzz.type_mutations import dimension_odd, element_type_other, information_false, rank_other, type_other
from tools.fuzz.weight_mutations import (
    weight_bytes,
    weight_dims,
    weight_gone,
    weight_is_input,
    weight_outside,
    weight_sparse,
    weight_twice,
    weight_type,
    weight_typed_data,
)

__all__ = ["MODEL_MUTATIONS"]

Mutation = Callable[[onnx.ModelProto, Random], None]

_ADDING = (construct_mutations, tensor_mutations, body_mutations, nest_mutations)
_ALL: tuple[Mutation, ...] = (
    attribute_value, attribute_kind, attribute_kind_said, attribute_refers, attribute_gone, attribute_more, axes_odd,
    operator_other, operator_swapped, domain_other, edge_moved, input_gone, input_more, output_changed,
    node_gone, node_twice, nodes_shuffled, name_odd, tensor_renamed,
    dimension_odd, rank_other, element_type_other, type_other, information_false,
    weight_dims, weight_type, weight_bytes, weight_typed_data, weight_gone, weight_twice, weight_is_input,
    weight_sparse, weight_outside,
    opset_other, opset_entries, ir_version_other, ends_changed, metadata_odd, node_in_body, node_in_function,
    *(getattr(module, name) for module in _ADDING for name in module.__all__),
)  # fmt: skip
MODEL_MUTATIONS = {mutation.__name__: mutation for mutation in _ALL}
