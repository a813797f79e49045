"""In which order ONNX Runtime's kernels for x86 processors sum a product of FP32 matrices.

A sum is a chain of fused steps, which is cut after so many elements; the pieces are added in turn. How the columns are
shared among threads decides where it is cut. A single row has a kernel of its own.
"""

from __future__ import annotations

from functools import cache

__all__ = ["COLUMNS", "pieces"]

COLUMNS = 16  # that are never parted

_WIDTH, _DEPTH = 128, 128  # of the part of a table that a thread copies at a time
_WORK = 1 << 16  # multiplications that are worth a thread


@cache
def pieces(rows: int, columns: int, depth: int, threads: int) -> tuple[int, ...] | None:
    """Of each `COLUMNS` columns, after how many of `depth` elements sums are cut; None where that is not known."""
    if columns == 1 or rows < 2:
        return None
    several = min(rows * columns * depth // _WORK + 1, threads)
    blocks = -(-columns // COLUMNS)
    if columns <= rows:  # rows are shared
        alone = rows // min(several, rows) == 1
        return None if alone else (_cut(columns, depth),) * blocks
    found: list[int] = []
    for start, count in _shares(blocks, min(several, blocks)):
        found += [_cut(min(columns - start * COLUMNS, count * COLUMNS), depth)] * count
    return tuple(found)


def _shares(total: int, parts: int) -> list[tuple[int, int]]:
    """Where each part begins and how many it has; the first have one more."""
    each, more = divmod(total, parts)
    return [(part * each + min(part, more), each + (part < more)) for part in range(parts)]


def _cut(columns: int, depth: int) -> int:
    """The part that is copied is deeper for few columns, and wider for few elements."""
    wide, deep = _WIDTH, _DEPTH
    if columns >= depth:
        while deep // 2 >= depth:
            deep //= 2
    else:
        while wide > COLUMNS and wide // 2 >= columns:
            wide, deep = wide // 2, deep * 2
    return deep
