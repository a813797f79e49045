"""Control flow, sequences, functions, odd types and every opset, written by hand as ONNX text."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import onnx
import onnx.parser

from benchmarks.thousand.graph import Graph, Made

__all__ = ["graphs"]

HEAD = '<ir_version: {ir}, opset_import: ["" : {opset}{more}]>\n'

# Name: opset, and the text of the graph; "@" stands for 'agraph '. Inputs are drawn by their declared shapes.
TEXTS = {
    "if_two_branches": (17, """agraph (float[1,8] x) => (float[1,8] y) {
        s = ReduceSum <keepdims = 0> (x) zero = Constant <value_float = 0.0> () c = Greater (s, zero)
        y = If (c) <then_branch = a () => (float[1,8] p) { p = Exp (x) },
                    else_branch = b () => (float[1,8] q) { k = Constant <value_float = 3000.0> () t = Mul (x, k)
                                                           u = Mul (t, t) q = Sqrt (u) }> }"""),
    "loop_sum": (17, """agraph (float[1,8] x) => (float[1,8] y) {
        n = Constant <value_int = 6> () t = Constant <value_ints = [1]> () go = Cast <to = 9> (n)
        y = Loop (n, go, x) <body = b (int64 i, bool c, float[1,8] s) => (bool d, float[1,8] r) {
            d = Identity (c) h = Tanh (s) r = Add (h, x) }> }"""),
    "loop_scan_output": (17, """agraph (float[1,8] x) => (float[1,8] y, float[?,1,8] z) {
        n = Constant <value_int = 5> () go = Cast <to = 9> (n)
        y, z = Loop (n, go, x) <body = b (int64 i, bool c, float[1,8] s) => (bool d, float[1,8] r, float[1,8] o) {
            d = Identity (c) two = Constant <value_float = 2.0> () r = Mul (s, two) o = Sigmoid (r) }> }"""),
    "loop_until": (17, """agraph (float[1,8] x) => (float[1,8] y) {
        n = Constant <value_int = 40> () t = Cast <to = 9> (n)
        y = Loop (n, t, x) <body = b (int64 i, bool c, float[1,8] s) => (bool d, float[1,8] r) {
            half = Constant <value_float = 0.5> () r = Mul (s, half) m = ReduceMax <keepdims = 0> (r)
            e = Constant <value_float = 0.01> () d = Greater (m, e) }> }"""),
    "scan_cell": (17, """agraph (float[6,8] x, float[8] h) => (float[8] y, float[6,8] z) {
        y, z = Scan <num_scan_inputs = 1, body = b (float[8] s, float[8] v) => (float[8] r, float[8] o) {
            a = Add (s, v) r = Tanh (a) o = Identity (r) }> (h, x) }"""),
    "if_in_loop": (17, """agraph (float[1,8] x) => (float[1,8] y) {
        n = Constant <value_int = 4> () t = Cast <to = 9> (n)
        y = Loop (n, t, x) <body = b (int64 i, bool c, float[1,8] s) => (bool d, float[1,8] r) {
            d = Identity (c) m = ReduceMean <keepdims = 0> (s) z = Constant <value_float = 0.0> () g = Less (m, z)
            r = If (g) <then_branch = p () => (float[1,8] u) { u = Neg (s) },
                        else_branch = q () => (float[1,8] v) { v = Softmax <axis = -1> (s) }> }> }"""),
    "sequence_round": (17, """agraph (float[4,8] x) => (float[4,8] y) {
        s = SplitToSequence <axis = 0> (x) i = Constant <value_int = 2> () a = SequenceAt (s, i)
        e = Exp (a) t = SequenceInsert (s, e) z = ConcatFromSequence <axis = 0> (t)
        from = Constant <value_ints = [1]> () to = Constant <value_ints = [5]> () y = Slice (z, from, to) }"""),
    "optional_round": (18, """agraph (float[4,8] x) => (float[4,8] y) {
        o = Optional (x) h = OptionalHasElement (o) v = OptionalGetElement (o) y = Mul (v, v) }"""),
    "double_inside": (17, """agraph (float[4,8] x) => (float[4,8] y) {
        d = Cast <to = 11> (x) e = Exp (d) f = Cast <to = 1> (e) y = Log (f) }"""),
    "double_only": (17, """agraph (double[4,8] x) => (double[4,8] y) { y = Tanh (x) }"""),
    "integers_only": (17, """agraph (int64[4,8] x) => (int64[4,8] y) { y = Add (x, x) }"""),
    "identity": (17, """agraph (float[4,8] x) => (float[4,8] y) { y = Identity (x) }"""),
    "scalar": (17, """agraph (float x) => (float y) { y = Exp (x) }"""),
    "empty_tensor": (17, """agraph (float[0,8] x) => (float[0,8] y) { y = Exp (x) }"""),
    "symbolic": (17, """agraph (float[N,M] x) => (float[N,M] y) { a = Softmax <axis = -1> (x) y = Mul (a, x) }"""),
    "one_tensor_twice": (17, """agraph (float[4,8] x) => (float[4,8] y, float[4,8] z) { y = Exp (x)
        z = Identity (y) }"""),
    "output_is_input": (17, """agraph (float[4,8] x) => (float[4,8] x, float[4,8] y) { y = Sin (x) }"""),
    "random": (17, """agraph (float[4,8] x) => (float[4,8] y) { r = RandomNormalLike <seed = 1.0> (x)
        y = Add (x, r) }"""),
    "dropout_kept": (13, """agraph (float[4,8] x) => (float[4,8] y) { y, m = Dropout (x) }"""),
    "topk_by_float": (17, """agraph (float[1,40] x) => (float[1,?] y, int64[1,?] i) {
        s = Shape (x) f = Cast <to = 1> (s) k = Constant <value_floats = [1.0, 0.25]> () g = Mul (f, k)
        n = Cast <to = 7> (g) a = Constant <value_ints = [1]> () b = Constant <value_ints = [2]> ()
        c = Slice (n, a, b) y, i = TopK (x, c) }"""),
    "range_in_float": (17, """agraph (float[1,4100] x) => (float[1,4100] y) {
        s = Constant <value_float = 0.0> () e = Constant <value_float = 4100.0> () d = Constant <value_float = 1.0> ()
        r = Range (s, e, d) i = Cast <to = 7> (r) g = Gather <axis = 1> (x, i) y = Tanh (g) }"""),
    "resize_by_float": (13, """agraph (float[1,1,7,7] x) => (float[1,1,?,?] y) {
        s = Shape (x) f = Cast <to = 1> (s) k = Constant <value_floats = [1.0, 1.0, 2.5, 2.5]> () g = Mul (f, k)
        h = Floor (g) n = Cast <to = 7> (h) y = Resize <mode = "linear"> (x, , , n) }"""),
    "nms": (17, """agraph (float[1,20,4] b, float[1,2,20] s) => (int64[?,3] y) {
        n = Constant <value_int = 5> () t = Constant <value_float = 0.4> () u = Constant <value_float = 0.1> ()
        p = Sigmoid (s) a = Abs (b) y = NonMaxSuppression (a, p, n, t, u) }"""),
    "nonzero": (17, """agraph (float[4,8] x) => (int64[2,?] y) { z = Constant <value_float = 0.0> () m = Greater (x, z)
        f = Cast <to = 1> (m) g = Mul (f, x) y = NonZero (g) }"""),
    "scatter_add": (18, """agraph (float[4,8] x, float[2,8] u) => (float[4,8] y) {
        i = Constant <value = int64[2,1] {1, 3}> () e = Exp (u) y = ScatterND <reduction = "add"> (x, i, e) }"""),
    "mod_and_trunc": (17, """agraph (float[4,8] x) => (float[4,8] y) {
        k = Constant <value_float = 5000.0> () a = Mul (x, k) p = Constant <value_float = 6.2831853> ()
        m = Mod <fmod = 1> (a, p) y = Sin (m) }"""),
    "attention_23": (23, """agraph (float[1,2,6,8] q, float[1,2,6,8] k, float[1,2,6,8] v) => (float[1,2,6,8] y) {
        y = Attention <is_causal = 1> (q, k, v) }"""),
    "rms_23": (23, """agraph (float[2,64] x, float[64] g) => (float[2,64] y) {
        k = Constant <value_float = 2000.0> () a = Mul (x, k) y = RMSNormalization (a, g) }"""),
    "rotary_23": (23, """agraph (float[1,2,6,8] x, float[1,6,4] c, float[1,6,4] s) => (float[1,2,6,8] y) {
        y = RotaryEmbedding (x, c, s) }"""),
    "layer_norm_17": (17, """agraph (float[2,64] x, float[64] g, float[64] b) => (float[2,64] y) {
        k = Constant <value_float = 2000.0> () a = Mul (x, k) y = LayerNormalization (a, g, b) }"""),
    "quantised": (19, """agraph (float[4,8] x, float[8,8] w) => (float[4,8] y) {
        s = Constant <value_float = 0.02> () z = Constant <value = int8 {3}> () q = QuantizeLinear (x, s, z)
        d = DequantizeLinear (q, s, z) m = MatMul (d, w) e = QuantizeLinear (m, s, z)
        y = DequantizeLinear (e, s, z) }"""),
    "dynamic_quantised": (17, """agraph (float[4,8] x) => (float[4,8] y) {
        q, s, z = DynamicQuantizeLinear (x) d = DequantizeLinear (q, s, z) y = Exp (d) }"""),
    "fp8_quantised": (19, """agraph (float[4,8] x) => (float[4,8] y) {
        s = Constant <value_float = 0.05> () z = Constant <value = float8e4m3fn {0}> () q = QuantizeLinear (x, s, z)
        d = DequantizeLinear (q, s, z) y = Tanh (d) }"""),
    "trilu_mask": (17, """agraph (float[6,6] x) => (float[6,6] y) {
        k = Constant <value = float[6,6] {@masks}> () m = Trilu <upper = 1> (k) a = Add (x, m) y = Softmax (a) }"""),
    "log_of_exp": (17, """agraph (float[4,8] x) => (float[4,8] y) {
        k = Constant <value_float = 8.0> () a = Mul (x, k) e = Exp (a) f = Mul (e, e) y = Log (f) }"""),
    "square_root_of_squares": (17, """agraph (float[4,64] x) => (float[1,1] y) {
        k = Constant <value_float = 900.0> () a = Mul (x, k) b = Mul (a, a) s = ReduceSum <keepdims = 1> (b)
        y = Sqrt (s) }"""),
    "variance_by_difference": (13, """agraph (float[4,64] x) => (float[4,1] y) {
        k = Constant <value_float = 50.0> () a = Add (x, k) b = Mul (a, a) m = ReduceMean <axes = [1]> (b)
        n = ReduceMean <axes = [1]> (a) o = Mul (n, n) y = Sub (m, o) }"""),
    "unused_weights": (17, """agraph (float[4,8] x) => (float[4,8] y) <float[2] w = {1.0, 2.0}, float[2]
        v = {3.0, 4.0}> {
        y = Exp (x) }"""),
    "function_local": (17, """agraph (float[4,8] x) => (float[4,8] y) { y = mine.soft (x) }
        <domain: "mine", opset_import: ["" : 17]> soft (a) => (b) { c = Exp (a) one = Constant <value_float = 1.0> ()
        d = Add (c, one) b = Log (d) }"""),
}  # fmt: skip

# A perceptron, a convolution network and a reduction, in the form that each opset has.
OPSETS = range(7, 25)


def graphs() -> Iterator[Graph]:
    for name, (opset, text) in TEXTS.items():
        yield Graph(f"written-{name}", "by hand", partial(_make, opset, text))
    for opset in OPSETS:
        for net, text in _of_opset(opset):
            yield Graph(f"opset{opset:02}-{net}", "opsets", partial(_make, opset, text))
    for net, text in _of_opset(OPSETS[-1] - 3):
        if net in ("perceptron", "convolutions", "recurrent"):
            yield Graph(f"net-{net}", "by hand", partial(_make, OPSETS[-1] - 3, text, weights=True))


def _of_opset(opset: int) -> Iterator[tuple[str, str]]:
    yield (
        "perceptron",
        """agraph (float[4,16] x, float[16,8] w, float[8] b) => (float[4,8] y) {
        h = Gemm <alpha = 0.5> (x, w, b) r = Relu (h) s = Softmax <axis = 1> (r) y = Add (s, b) }""",
    )
    yield (
        "convolutions",
        """agraph (float[1,4,9,9] x, float[4,4,3,3] w, float[4] s, float[4] b, float[4] m, float[4] v)
        => (float[1,4,1,1] y) { c = Conv <pads = [1,1,1,1]> (x, w) a = Abs (v)
        n = BatchNormalization (c, s, b, m, a) l = LeakyRelu (n) p = MaxPool <kernel_shape = [2,2]> (l)
        y = GlobalAveragePool (p) }""",
    )
    axes = "<axes = [1], keepdims = 1> (x)" if opset < 13 else "<keepdims = 1> (x, one)"
    one = "" if opset < 13 else "one = Constant <value = int64[1] {1}> ()"
    bounds = "c = Clip <min = -1000.0, max = 1000.0> (e)" if opset < 11 else "c = Identity (e)"
    yield (
        "sums",
        f"""agraph (float[4,16] x) => (float[4,1] y) {{ {one} s = ReduceSum {axes} e = Exp (s) {bounds}
        y = Log (c) }}""",
    )
    pads = (
        "p = Pad <pads = [0,1,0,1]> (x)"
        if opset < 11
        else "n = Constant <value = int64[4] {0,1,0,1}> () p = Pad (x, n)"
    )
    yield "moves", f"""agraph (float[4,14] x) => (float[16,4] y) {{ {pads} t = Transpose (p) y = Tanh (t) }}"""
    yield (
        "recurrent",
        """agraph (float[5,1,8] x, float[1,16,8] w, float[1,16,4] r) => (float[5,1,1,4] y) {
        y, h, c = LSTM <hidden_size = 4> (x, w, r) }""",
    )


def _make(opset: int, text: str, *, weights: bool = False) -> Made:
    text = text.replace("@masks", ", ".join(["-1e9"] * 36))
    more = ', "mine" : 1' if "mine." in text else ""
    model = onnx.parser.parse_model(HEAD.format(ir=max(4, min(11, _ir(opset))), opset=opset, more=more) + text)
    rng = np.random.default_rng(len(text))
    if weights:
        _hold_weights(model.graph, rng)
    feeds = []
    for _ in range(4):
        feed = {}
        for value in model.graph.input:
            kind = value.type.tensor_type
            shape = [dim.dim_value if dim.HasField("dim_value") else 5 for dim in kind.shape.dim]
            drawn = rng.standard_normal(shape)
            feed[value.name] = np.asarray(drawn, dtype=onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
        feeds.append(feed)
    return Made(model, feeds)


def _hold_weights(graph: onnx.GraphProto, rng: np.random.Generator) -> None:
    """All inputs but the first become weights."""
    for value in graph.input[1:]:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        drawn = rng.standard_normal(shape).astype(np.float32)
        graph.initializer.append(onnx.numpy_helper.from_array(drawn, value.name))
    del graph.input[1:]


def _ir(opset: int) -> int:
    return {19: 9, 20: 9, 21: 10, 22: 10, 23: 11, 24: 11}.get(opset, 8 if opset > 14 else 7)
