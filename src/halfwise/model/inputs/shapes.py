"""Shapes for open dimensions, as a user states them: one an input, or the smallest, usual and largest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from halfwise.core.errors import InputError
from halfwise.core.nearest import nearest
from halfwise.model.input_spec import InputSpec

__all__ = ["Shapes"]

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Shapes:
    """Stands among the inputs of a verb. `sizes`: of an input its shape, or several, of which each sample takes one.

    Alone, it makes inputs up in these shapes; beside files, it gives raw values their shape.
    """

    sizes: Mapping[str, Sequence[int] | Sequence[Sequence[int]]]

    def of(self, name: str) -> tuple[Shape, ...]:
        """Every shape stated for an input; none where nothing is."""
        stated: Any = self.sizes.get(name, ())
        if not stated:
            return ()
        several = stated if isinstance(stated[0], Sequence) else [stated]
        return tuple(tuple(int(size) for size in shape) for shape in several)

    def check(self, specs: Sequence[InputSpec]) -> None:
        """Refuse what is not the model's."""
        by_name = {spec.name: spec for spec in specs}
        for name in self.sizes:
            if name not in by_name:
                raise InputError(f"--shapes {name}: the model has no such input{nearest(name, by_name)}")
            for shape in self.of(name):
                _check(name, shape, by_name[name].shape)

    def choices(self, specs: Sequence[InputSpec]) -> Iterator[tuple[tuple[InputSpec, ...], dict[str, int]]]:
        """The inputs with each of the shapes in turn, and what that makes of the symbols in other inputs."""
        for index in range(max([len(self.of(name)) for name in self.sizes], default=0)):
            chosen, symbols = [], {}
            for spec in specs:
                stated = self.of(spec.name)
                if stated:
                    shape = stated[index % len(stated)]
                    declared = spec.shape or (None,) * len(shape)
                    pairs = zip(declared, shape, strict=True)
                    symbols.update({dim: size for dim, size in pairs if isinstance(dim, str)})
                    spec = replace(spec, shape=shape)
                chosen.append(spec)
            left = {dim for spec in chosen for dim in spec.shape or () if isinstance(dim, str)}
            yield tuple(chosen), {dim: size for dim, size in symbols.items() if dim in left}


def _check(name: str, shape: Shape, declared: tuple[int | str | None, ...] | None) -> None:
    fits = declared is None or (
        len(declared) == len(shape)
        and all(not isinstance(dim, int) or dim == size for dim, size in zip(declared, shape, strict=True))
    )
    if not fits or any(size < 1 for size in shape):
        told = "x".join(map(str, shape))
        takes = "x".join("?" if dim is None else str(dim) for dim in declared or ()) or "any shape, of sizes from 1 on"
        raise InputError(f"--shapes {name}:{told}: the model takes {takes}")
