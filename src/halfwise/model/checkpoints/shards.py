"""Reads a checkpoint that is spread over several files, by the index that names them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from halfwise.core.errors import InputError
from halfwise.core.json_text import read_json
from halfwise.model.checkpoints.checkpoint import Checkpoint

__all__ = ["INDEX", "read_index"]

INDEX = ".index.json"


def read_index(path: Path, read: Callable[[Path], Checkpoint]) -> Checkpoint:
    """All shards that an index names; each must hold the tensors that the index says it holds."""
    places = _weight_map(path)
    shards = list(dict.fromkeys(places.values()))
    for shard in shards:
        if shard in ("", ".", "..") or Path(shard).name != shard or "\\" in shard or ":" in shard:
            raise InputError(f"{path} names a shard outside its own folder ({shard!r}); such files are never read")
        if not (path.parent / shard).is_file():
            raise InputError(f"{path} names the shard {shard!r}, which is not beside it; put all shards in one folder")
    parts = [read(path.parent / shard) for shard in shards]
    for shard, part in zip(shards, parts, strict=True):
        held = {name for tensor in part.tensors for name in (tensor.name, *tensor.aliases)} | set(part.other_names)
        missing = next((name for name, place in places.items() if place == shard and name not in held), None)
        if missing is not None:
            raise InputError(
                f"{path} says that {shard} holds the tensor {missing!r}, and it does not; "
                "the files are of different checkpoints: copy them again"
            )
    owner: dict[str, str] = {}
    for shard, part in zip(shards, parts, strict=True):
        for tensor in part.tensors:
            if owner.setdefault(tensor.name, shard) != shard:
                raise InputError(
                    f"{path}: the shards {owner[tensor.name]} and {shard} both hold the tensor {tensor.name!r}; "
                    "copy the checkpoint again"
                )
    return Checkpoint.joined(path, parts)


def _weight_map(path: Path) -> dict[str, str]:
    try:
        document = read_json(path)
    except ValueError:
        raise InputError(f"{path} is no index of shards: it is not valid JSON; copy it again") from None
    found = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(found, dict) or not found or not all(isinstance(shard, str) for shard in found.values()):
        raise InputError(f"{path} is no index of shards: it has no 'weight_map' from tensor names to files")
    return found
