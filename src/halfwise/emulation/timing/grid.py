"""The operations that are timed of every machine: the operators that matter, at several sizes."""

from __future__ import annotations

from collections.abc import Iterator

from halfwise.emulation.timing.operation import Attribute, Operand, Operation

__all__ = ["GRID", "LAUNCH"]

Shape = tuple[int, ...]

# What a graph of the smallest kernels takes.
LAUNCH = Operation("Relu", (Operand((32,)),), ((32,),))

_FLAT = ((1, 64, 32, 32), (1, 64, 128, 128), (16, 64, 128, 128), (16, 256, 128, 128))
_POINTWISE = ("Relu", "Sigmoid", "Exp", "Erf", "Sqrt", "Clip")
_ROWS = ((64, 64), (128, 768), (2048, 768), (16384, 256), (4096, 4096))


def _one(op: str, shape: Shape, domain: str = "", **attributes: Attribute) -> Operation:
    return Operation(op, (Operand(shape),), (shape,), dict(attributes), domain)


def _pointwise() -> Iterator[Operation]:
    for shape in _FLAT:
        for op in _POINTWISE:
            if op == "Clip":
                bounds = (Operand((), fixed=True, values=(0.0,)), Operand((), fixed=True, values=(6.0,)))
                yield Operation(op, (Operand(shape), *bounds), (shape,))
            else:
                yield _one(op, shape)
        for op in ("Gelu", "QuickGelu"):
            yield _one(op, shape, "com.microsoft")
        channels = (1, shape[1], 1, 1)
        for op in ("Add", "Mul"):
            yield Operation(op, (Operand(shape), Operand(shape)), (shape,))
            yield Operation(op, (Operand(shape), Operand(channels, fixed=True)), (shape,))
            yield Operation(op, (Operand(shape), Operand((), fixed=True, values=(0.5,))), (shape,))
        for op in ("Sub", "Div"):
            yield Operation(op, (Operand(shape), Operand(shape)), (shape,))
        yield Operation("Pow", (Operand(shape), Operand((), fixed=True, values=(2.0,))), (shape,))
        yield Operation("Cast", (Operand(shape),), (shape,))
        yield Operation("Where", (Operand(shape, "bool"), Operand(shape), Operand(shape)), (shape,))


def _moves() -> Iterator[Operation]:
    for apart in ((1, 128, 8, 64), (16, 128, 12, 64), (16, 256, 16, 128)):
        for perm in ((0.0, 2.0, 1.0, 3.0), (0.0, 2.0, 3.0, 1.0)):
            turned = tuple(apart[int(axis)] for axis in perm)
            yield Operation("Transpose", (Operand(apart),), (turned,), {"perm": perm})
    for batch, ins, side in ((1, 64, 32), (1, 64, 128), (16, 64, 128)):
        shape = batch, ins, side, side
        swapped = (batch, side, side, ins)
        yield Operation("Transpose", (Operand(shape),), (swapped,), {"perm": (0.0, 2.0, 3.0, 1.0)})
        yield Operation("Concat", (Operand(shape), Operand(shape)), ((batch, 2 * ins, side, side),), {"axis": 1})
        halves = Operand((2,), "int", True, (ins / 2, ins / 2))
        half = (batch, ins // 2, side, side)
        yield Operation("Split", (Operand(shape), halves), (half, half), {"axis": 1})
        cut = tuple(Operand((1,), "int", True, (each,)) for each in (0.0, ins / 2, 1.0))
        yield Operation("Slice", (Operand(shape), *cut), (half,))
        pads = Operand((8,), "int", True, (0, 0, 1, 1, 0, 0, 1, 1))
        yield Operation("Pad", (Operand(shape), pads), ((batch, ins, side + 2, side + 2),))
        sizes = (Operand((4,), "int", True, (batch, ins, 2 * side, 2 * side)),)
        for mode in ("nearest", "linear"):
            yield Operation("Resize", (Operand(shape), None, None, *sizes), ((batch, ins, 2 * side, 2 * side),),
                            {"mode": mode})  # fmt: skip
    for rows, width in ((64, 256), (2048, 768)):
        yield Operation("Gather", (Operand((8192, width), fixed=True), Operand((rows,), "int")), ((rows, width),),
                        {"axis": 0})  # fmt: skip


def _reductions() -> Iterator[Operation]:
    for rows, length in _ROWS:
        shape, last = (1, rows, length), (length,)
        scale = (Operand(last, fixed=True), Operand(last, fixed=True))
        yield Operation("LayerNormalization", (Operand(shape), *scale), (shape,), {"axis": -1})
        yield Operation("SimplifiedLayerNormalization", (Operand(shape), scale[0]), (shape,), {"axis": -1})
        yield Operation("SkipLayerNormalization", (Operand(shape), Operand(shape), *scale), (shape,), {},
                        "com.microsoft")  # fmt: skip
        yield _one("Softmax", shape, axis=-1)
        axes = Operand((1,), "int", True, (2.0,))
        for op in ("ReduceMean", "ReduceSum", "ReduceMax"):
            yield Operation(op, (Operand(shape), axes), ((1, rows, 1),))
    for batch, channels, side in ((1, 64, 32), (1, 256, 32), (16, 128, 64)):
        image = (batch, channels, side, side)
        each = Operand((channels,), fixed=True)
        yield Operation("InstanceNormalization", (Operand(image), each, each), (image,))
        yield Operation("BatchNormalization", (Operand(image), each, each, each, each), (image,))
        yield Operation("GlobalAveragePool", (Operand(image),), ((batch, channels, 1, 1),))
        pooled = (batch, channels, side // 2, side // 2)
        for op in ("MaxPool", "AveragePool"):
            yield Operation(op, (Operand(image),), (pooled,), {"kernel_shape": (2.0, 2.0), "strides": (2.0, 2.0)})


def _products() -> Iterator[Operation]:
    for rows, inner, columns in ((1, 256, 256), (1, 1024, 4096), (16, 512, 512), (64, 256, 256), (128, 768, 768),
                                 (128, 768, 3072), (128, 3072, 768), (512, 512, 512), (2048, 768, 768),
                                 (2048, 768, 3072), (2048, 1024, 1024), (4096, 256, 64), (8192, 256, 1024),
                                 (4096, 2048, 2048)):  # fmt: skip
        operands = (Operand((rows, inner)), Operand((inner, columns), fixed=True))
        yield Operation("MatMul", operands, ((rows, columns),))
        yield Operation("Gemm", (*operands, Operand((columns,), fixed=True)), ((rows, columns),))
    for batch, rows, inner, columns in ((8, 64, 64, 64), (8, 256, 64, 256), (12, 128, 64, 128), (12, 128, 128, 64),
                                        (192, 128, 64, 128), (192, 128, 128, 64), (128, 256, 32, 256),
                                        (64, 1024, 64, 1024)):  # fmt: skip
        operands = (Operand((1, batch, rows, inner)), Operand((1, batch, inner, columns)))
        yield Operation("MatMul", operands, ((1, batch, rows, columns),))
        yield Operation("FusedMatMul", operands, ((1, batch, rows, columns),), {}, "com.microsoft")


def _convolutions() -> Iterator[Operation]:
    for batch in (1, 16):
        for ins, outs, side, taps, stride, group in (
            (3, 32, 224, 3, 2, 1), (3, 64, 224, 7, 2, 1), (3, 192, 224, 16, 16, 1), (16, 16, 112, 3, 1, 1),
            (32, 16, 112, 1, 1, 1), (64, 64, 56, 3, 1, 1), (64, 256, 56, 1, 1, 1), (128, 128, 28, 3, 1, 1),
            (128, 128, 56, 3, 2, 1), (512, 128, 28, 1, 1, 1), (256, 256, 14, 3, 1, 1), (256, 1024, 14, 1, 1, 1),
            (512, 512, 7, 3, 1, 1), (320, 1280, 7, 1, 1, 1), (32, 32, 112, 3, 1, 32), (96, 96, 56, 3, 2, 96),
            (192, 192, 28, 5, 1, 192), (480, 480, 14, 5, 1, 480), (96, 96, 56, 7, 1, 96), (960, 960, 7, 3, 1, 960),
            (128, 128, 28, 3, 1, 32), (960, 240, 1, 1, 1, 1), (24, 96, 1, 1, 1, 1),
        ):  # fmt: skip
            pad, out = (taps // 2 if stride != taps else 0), -(-side // stride)
            shape, made = (batch, ins, side, side), (batch, outs, out, out)
            operands = (
                Operand(shape),
                Operand((outs, ins // group, taps, taps), fixed=True),
                Operand((outs,), fixed=True),
            )
            given: dict[str, Attribute] = {
                "kernel_shape": (float(taps),) * 2,
                "strides": (float(stride),) * 2,
                "pads": (float(pad),) * 4,
                "group": group,
            }
            yield Operation("Conv", operands, (made,), given)
        for ins, outs, side in ((256, 128, 14), (64, 32, 56)):
            operands = (Operand((batch, ins, side, side)), Operand((ins, outs, 2, 2), fixed=True),
                        Operand((outs,), fixed=True))  # fmt: skip
            yield Operation("ConvTranspose", operands, ((batch, outs, 2 * side, 2 * side),),
                            {"kernel_shape": (2.0, 2.0), "strides": (2.0, 2.0)})  # fmt: skip


def _recurrent() -> Iterator[Operation]:
    for op, gates in (("LSTM", 4), ("GRU", 3)):
        for steps, batch, width, hidden in ((1, 1, 128, 128), (48, 1, 128, 128), (64, 16, 256, 256)):
            operands = (
                Operand((steps, batch, width)),
                Operand((1, gates * hidden, width), fixed=True),
                Operand((1, gates * hidden, hidden), fixed=True),
                Operand((1, 2 * gates * hidden), fixed=True),
            )
            told: dict[str, Attribute] = {"hidden_size": hidden}
            if op == "GRU":
                told["linear_before_reset"] = 1
            yield Operation(op, operands, ((steps, 1, batch, hidden),), told)


GRID = (LAUNCH, *_pointwise(), *_moves(), *_reductions(), *_products(), *_convolutions(), *_recurrent())
