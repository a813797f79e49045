"""Types and shapes of what ONNX Runtime's own operators give, so that inference does not stop at one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx
from onnx import helper

from halfwise.model.contrib.schemas import RuntimeSchema

__all__ = ["infer"]

Dim = int | str | None
Dims = tuple[Dim, ...]

_TYPES = {
    "tensor(float)": onnx.TensorProto.FLOAT,
    "tensor(int32)": onnx.TensorProto.INT32,
    "tensor(int64)": onnx.TensorProto.INT64,
    "tensor(bool)": onnx.TensorProto.BOOL,
    "tensor(uint8)": onnx.TensorProto.UINT8,
}


class Place:
    """One node in inference: what is known of its inputs and attributes, by slot and name."""

    def __init__(self, context: Any) -> None:
        self.context = context
        self.inputs = context.get_num_inputs()

    def type(self, slot: int) -> int:
        """The element type of an input; 0 where it is absent or not known."""
        given = self._given(slot)
        return given.tensor_type.elem_type if given is not None and given.HasField("tensor_type") else 0

    def dims(self, slot: int) -> Dims | None:
        given = self._given(slot)
        if given is None or not given.tensor_type.HasField("shape"):
            return None
        return tuple(_dim(d) for d in given.tensor_type.shape.dim)

    def integer(self, name: str, default: int = 0) -> int:
        found = self._attribute(name)
        return default if found is None else int(found)

    def integers(self, name: str) -> tuple[int, ...]:
        return tuple(self._attribute(name) or ())

    def _attribute(self, name: str) -> Any:
        found = self.context.get_attribute(name)
        return None if found is None or not found.name else helper.get_attribute_value(found)

    def _given(self, slot: int) -> onnx.TypeProto | None:
        if slot >= self.inputs:
            return None
        found: onnx.TypeProto | None = self.context.get_input_type(slot)
        return found


def infer(schema: RuntimeSchema, context: Any) -> None:
    """Set the types of a node's outputs, and the shapes where they follow from those of its inputs."""
    place = Place(context)
    shape = _SHAPES.get(schema.op)
    shapes: Shapes = () if shape is None else shape(place)
    for slot in range(context.get_num_outputs()):
        element = _element(schema, place, slot)
        if element:
            dims = shapes[slot] if slot < len(shapes) else None
            context.set_output_type(slot, helper.make_tensor_type_proto(element, dims))


def _dim(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    if dim.HasField("dim_value"):
        return int(dim.dim_value)
    return str(dim.dim_param) if dim.dim_param else None


def _element(schema: RuntimeSchema, place: Place, slot: int) -> int:
    formal = schema.outputs[min(slot, len(schema.outputs) - 1)]
    for index, taken in enumerate(schema.inputs):
        if taken.type_str == formal.type_str and place.type(index):
            return place.type(index)
    for index, taken in enumerate(schema.inputs):  # a quantised result has the type of its zero point
        if taken.name == f"{formal.name.lower()}_zero_point" and place.type(index):
            return place.type(index)
    allowed = schema.takes(formal)
    if len(allowed) == 1:
        return _TYPES.get(allowed[0], 0)
    floats = (place.type(index) for index, taken in enumerate(schema.inputs) if place.type(index) in _FLOATS)
    return next(floats, 0) if "tensor(float)" in allowed else 0


_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE)

Shapes = Sequence[Dims | None]


def _like_first(place: Place) -> Shapes:
    return (place.dims(0),)


def _skip_norm(place: Place) -> Shapes:
    x = place.dims(0)
    statistics = None if x is None else (*x[:-1], 1)
    return x, statistics, statistics, x


def _embedding(place: Place) -> Shapes:
    ids, table = place.dims(0), place.dims(2)
    if ids is None or table is None:
        return ()
    whole = (*ids, table[-1])
    return whole, (ids[0],), whole


def _attention(place: Place) -> Shapes:
    x, weight, past, heads = place.dims(0), place.dims(1), place.dims(4), place.integer("num_heads")
    if x is None or weight is None or len(x) != 3 or not isinstance(weight[1], int) or not heads:
        return ()
    sizes = place.integers("qkv_hidden_sizes") or (weight[1] // 3,) * 3
    length = x[1] if past is None and place.inputs < 5 else None
    return (x[0], x[1], sizes[2]), (2, x[0], heads, length, sizes[0] // heads)


def _multi_head(place: Place) -> Shapes:
    q, k, v, heads = place.dims(0), place.dims(1), place.dims(2), place.integer("num_heads")
    if q is None or not heads:
        return ()
    if len(q) == 5:
        out, head, kept = _times(q[2], q[4]), q[4], q[1]
        head_v = head
    elif k is not None and len(k) == 5:
        out, head, head_v, kept = q[2], k[4], k[4], k[1]
    elif v is not None and len(v) == 4:
        out, head, head_v, kept = _times(v[1], v[3]), v[3], v[3], v[2]
    elif v is not None:
        out, head, head_v, kept = v[2], _share(q[2], heads), _share(v[2], heads), v[1]
    else:
        return ()
    length = None if place.dims(6) is not None else kept
    return (q[0], q[1], out), (q[0], heads, length, head), (q[0], heads, length, head_v)


def _group_query(place: Place) -> Shapes:
    q, k, heads, kept = place.dims(0), place.dims(1), place.integer("num_heads"), place.integer("kv_num_heads")
    if q is None or not heads or not kept:
        return ()
    head = _share(q[2], heads if place.type(1) else heads + 2 * kept)
    past = place.dims(3)
    length = None if past is not None or k is None else k[1]
    cache = (q[0], kept, length, head)
    return (q[0], q[1], _times(head, heads)), cache, cache


def _product(place: Place) -> Shapes:
    a, b = _factor(place, 0, "A"), _factor(place, 1, "B")
    if a is None or b is None or len(a) < 2 or len(b) < 2:
        return ()
    longer = a if len(a) >= len(b) else b
    same = min(len(a), len(b)) == 2 or a[:-2] == b[:-2]
    return ((*(longer[:-2] if same else (None,) * (len(longer) - 2)), a[-2], b[-1]),)


def _factor(place: Place, slot: int, letter: str) -> Dims | None:
    """The dimensions of a factor as it is multiplied."""
    dims = place.dims(slot)
    if dims is None or len(dims) < 2:
        return None
    if place.integer(f"transBatch{letter}"):
        dims = (*dims[1:-1], dims[0], dims[-1])
    return (*dims[:-2], dims[-1], dims[-2]) if place.integer(f"trans{letter}") else dims


def _gemm(place: Place) -> Shapes:
    a, b = place.dims(0), place.dims(1)
    if a is None or b is None:
        return ()
    return ((a[1] if place.integer("transA") else a[0], b[0] if place.integer("transB") else b[1]),)


def _packed_product(place: Place) -> Shapes:
    a = place.dims(0)
    return ((*a[:-1], place.integer("N")),) if a is not None else ()


def _split_gelu(place: Place) -> Shapes:
    x = place.dims(0)
    return ((*x[:-1], x[-1] // 2),) if x is not None and isinstance(x[-1], int) else ()


def _group_norm(place: Place) -> Shapes:
    return place.dims(0), place.dims(0)


def _rank_of_first(place: Place) -> Shapes:
    x = place.dims(0)
    return ((None,) * len(x),) if x is not None else ()


def _conv(place: Place) -> Shapes:
    x, w = place.dims(0), place.dims(1)
    return ((x[0], w[0], *(None,) * (len(x) - 2)),) if x is not None and w is not None else ()


def _quantised_attention(place: Place) -> Shapes:
    x, w = place.dims(0), place.dims(1)
    return ((*x[:2], _share(w[1], 3)),) if x is not None and w is not None and len(x) == 3 and len(w) == 2 else ()


def _decoder_masked(place: Place) -> Shapes:
    """The query's; and the caches', which have one place more where they are not filled in place."""
    kept = tuple(place.dims(slot) for slot in (5, 6))
    if not place.integer("past_present_share_buffer"):
        kept = tuple(past and (*past[:2], None, *past[3:]) for past in kept)
    return (place.dims(0), *kept)


def _words(place: Place) -> Shapes:
    """Rows of a table whose numbers may be packed, several in a byte."""
    table, chosen, axis = place.dims(0), place.dims(1), place.integer("gather_axis")
    if table is None or chosen is None:
        return ()
    if place.type(0) == onnx.TensorProto.UINT8:
        table = (*table[:-1], _times(table[-1], 8 // max(place.integer("bits", 4), 1)))
    axis %= max(len(table), 1)
    return ((*table[:axis], *chosen, *table[axis + 1 :]),)


def _with_state(place: Place) -> Shapes:
    x, kernel, past = place.dims(0), place.dims(1), place.dims(3)
    if past is None and x is not None and kernel is not None and isinstance(kernel[-1], int):
        past = (*x[:-1], (kernel[-1] - 1) * place.integer("dilation", 1))
    return x, past


def _share(size: Dim, parts: int) -> Dim:
    return size // parts if isinstance(size, int) else None


def _times(size: Dim, count: Dim) -> Dim:
    return size * count if isinstance(size, int) and isinstance(count, int) else None


_SHAPES: Mapping[str, Callable[[Place], Shapes]] = {
    **dict.fromkeys(
        """BiasAdd BiasGelu BiasSoftmax FastGelu Gelu LayerNormalization MoE QMoE QuickGelu RotaryEmbedding
        SimplifiedLayerNormalization""".split(),
        _like_first,
    ),
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), _skip_norm),
    "Attention": _attention,
    "BiasSplitGelu": _split_gelu,
    "CausalConvWithState": _with_state,
    "DecoderMaskedMultiHeadAttention": _decoder_masked,
    "EmbedLayerNormalization": _embedding,
    "FusedConv": _conv,
    "FusedGemm": _gemm,
    "FusedMatMul": _product,
    "GatherBlockQuantized": _words,
    "GroupNorm": _group_norm,
    "GroupQueryAttention": _group_query,
    "MatMulNBits": _packed_product,
    "MultiHeadAttention": _multi_head,
    "NhwcConv": _rank_of_first,
    "QAttention": _quantised_attention,
    "SkipGroupNorm": _group_norm,
    "TransposeMatMul": _product,
}
