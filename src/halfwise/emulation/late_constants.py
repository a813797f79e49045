"""The order in which what is made of weights alone is made just before it is read: exporters put it first, all of it.

Such are weights that are dequantised, in FP32 eight times what lies in the file.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence

__all__ = ["constants_late"]


def constants_late(
    reads: Sequence[Collection[Hashable]], makes: Sequence[Collection[Hashable]], constant: Collection[Hashable]
) -> list[int]:
    """Of nodes in a sound order, by what each reads and makes, the numbers in another one."""
    maker: dict[Hashable, int] = {}
    fixed = set(constant)
    for number, (read, made) in enumerate(zip(reads, makes, strict=True)):
        if read and fixed.issuperset(read):
            fixed.update(made)
            maker.update(dict.fromkeys(made, number))
    late = set(maker.values())
    order: dict[int, None] = {}
    for number in (*(n for n in range(len(reads)) if n not in late), *sorted(late)):  # nobody may read the last ones
        waiting = [number]
        while waiting:
            before = [maker[each] for each in reads[waiting[-1]] if each in maker and maker[each] not in order]
            if before:
                waiting += reversed(before)
            else:
                order.setdefault(waiting.pop())
    return list(order)
