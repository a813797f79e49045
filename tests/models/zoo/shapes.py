"""The registry of small shapes: five to thirty nodes each, with a single failure (or none) each."""

from __future__ import annotations

from collections.abc import Callable

from tests.models.zoo import shapes_masks, shapes_norms, shapes_reductions, shapes_scales, shapes_structures
from tests.models.zoo.zoo_model import ZooModel

_BUILDERS: tuple[Callable[[], ZooModel], ...] = (
    shapes_norms.layer_norm_overflow,
    shapes_norms.rms_norm_overflow,
    shapes_norms.instance_norm_overflow,
    shapes_norms.group_norm_overflow,
    shapes_norms.l2_norm_of_padding,
    shapes_norms.l2_norm_of_small_vectors,
    shapes_norms.variance_by_moments,
    shapes_masks.mask_minus_1e9,
    shapes_masks.mask_float_min,
    shapes_masks.mask_where_scaled,
    shapes_masks.two_masks_added,
    shapes_reductions.sum_over_512x512,
    shapes_reductions.global_average_pool_large,
    shapes_reductions.gram_matrix,
    shapes_reductions.cumulative_sum,
    shapes_reductions.log_sum_exp_by_hand,
    shapes_reductions.softmax_by_hand,
    shapes_reductions.log_of_probability,
    shapes_reductions.top_k_selection,
    shapes_scales.inverse_sigmoid,
    shapes_scales.large_coordinates,
    shapes_scales.large_phase,
    shapes_scales.subnormal_weights,
    shapes_scales.log_of_energy,
    shapes_scales.healthy_mlp,
    shapes_structures.if_with_norms,
    shapes_structures.loop_with_float_state,
    shapes_structures.scan_with_energy,
    shapes_structures.local_function,
    shapes_structures.shared_initializers,
    shapes_structures.partly_fp16,
    shapes_structures.side_tensors,
)

SHAPES: dict[str, Callable[[], ZooModel]] = {build.__name__: build for build in _BUILDERS}
