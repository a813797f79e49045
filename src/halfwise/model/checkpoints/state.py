"""Finds a network's state_dict in what a training script saved, among optimisers, averages and counters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from halfwise.core.notes import Note, NoteKind

__all__ = ["State", "find_state"]

# What training scripts call it, the most telling first.
_USUAL = ("state_dict", "model_state_dict", "model_state", "model", "module", "net", "network", "generator", "weights")
_NEVER = ("optimizer", "optimizers", "optim", "optimizer_states", "lr_scheduler", "scheduler", "scaler", "rng_state")
_DEEPEST = 16


@dataclass(frozen=True)
class State:
    """Tensors by name, in the order of the file; the notes say what was chosen among several."""

    tensors: Mapping[str, Any]
    notes: tuple[Note, ...] = ()


def find_state(document: Any, is_tensor: Callable[[Any], bool]) -> State:
    """The document itself where it holds tensors; else its most usual part; else the part with most tensors."""
    if is_tensor(document):
        return State({"tensor": document})
    if not isinstance(document, Mapping):
        return State(dict(_tensors(document, "", is_tensor, 0)))
    if any(is_tensor(value) for value in document.values()):
        nested = {key: value for key, value in document.items() if str(key).lower() not in _NEVER}
        return State(dict(_tensors(nested, "", is_tensor, 0)))
    parts = {
        str(key): dict(_tensors(value, "", is_tensor, 0))
        for key, value in document.items()
        if str(key).lower() not in _NEVER
    }
    parts = {key: tensors for key, tensors in parts.items() if tensors}
    if not parts:
        return State({})
    chosen = next((key for usual in _USUAL for key in parts if key.lower() == usual), None)
    chosen = chosen or max(parts, key=lambda key: len(parts[key]))
    value = next(value for key, value in document.items() if str(key) == chosen)
    inner = find_state(value, is_tensor) if isinstance(value, Mapping) else State(parts[chosen])
    others = [key for key in parts if key != chosen]
    among = Note.of(NoteKind.STATE_CHOSEN_AMONG, chosen, others=others)
    note = among if others else Note.of(NoteKind.STATE_CHOSEN, chosen)
    return State(inner.tensors, (note, *inner.notes))


def _tensors(value: Any, name: str, is_tensor: Callable[[Any], bool], depth: int) -> Iterator[tuple[str, Any]]:
    if is_tensor(value):
        yield name, value
    elif depth < _DEEPEST:
        inner = value.items() if isinstance(value, Mapping) else enumerate(value) if _is_list(value) else ()
        for key, each in inner:
            yield from _tensors(each, f"{name}.{key}" if name else str(key), is_tensor, depth + 1)


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))
