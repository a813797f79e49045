"""Files in the making: each kind knows its own mutations, and those of bytes come last."""

from __future__ import annotations

import io
import json
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random
from typing import Any, ClassVar

import numpy as np
import onnx

from halfwise.emulation.profiles.machine import digest as machine_digest
from halfwise.search.journal import digest
from tools.fuzz.file_mutations import ARRAY_MUTATIONS, BYTE_MUTATIONS, JSON_MUTATIONS, LINE_MUTATIONS, json_text
from tools.fuzz.model_mutations import MODEL_MUTATIONS

__all__ = [
    "Archive",
    "Artifact",
    "Bytes",
    "Document",
    "Journal",
    "KeptDocument",
    "Lines",
    "OnnxFile",
    "Safetensors",
    "Signed",
]


class Artifact(ABC):
    """What a file is to hold."""

    mutations: ClassVar[Mapping[str, Callable[[Any, Random], None]]]

    def __init__(self, held: Any) -> None:
        self._held = held
        self._later: list[tuple[str, int]] = []

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Of all mutations that suit; those of bytes a few times in a hundred."""
        return (*tuple(cls.mutations) * max(1, 200 // len(cls.mutations)), *tuple(BYTE_MUTATIONS) * 3)

    def change(self, name: str, number: int) -> None:
        if name in BYTE_MUTATIONS:
            self._later.append((name, number))
        else:
            self.mutations[name](self._held, Random(number))

    def content(self) -> bytes:
        content = self._written()
        for name, number in self._later:
            content = BYTE_MUTATIONS[name](content, Random(number))
        return content

    @abstractmethod
    def _written(self) -> bytes: ...


class OnnxFile(Artifact):
    """A ModelProto."""

    mutations = MODEL_MUTATIONS

    def _written(self) -> bytes:
        assert isinstance(self._held, onnx.ModelProto)
        return bytes(self._held.SerializeToString())


class Document(Artifact):
    """JSON; the value stands under a key of its own, so that the whole may be another."""

    mutations = JSON_MUTATIONS

    def __init__(self, document: Any) -> None:
        super().__init__([json.loads(json.dumps(document))])

    def _written(self) -> bytes:
        return (json_text(self._held[0]) if self._held else "").encode("utf-8", "surrogatepass")


class Signed(Document):
    """JSON that tells its own hash: without it a reader would go no further."""

    def _written(self) -> bytes:
        text = super()._written()
        with suppress(ValueError, RecursionError):  # what is no JSON has no hash
            document = json.loads(text)
            if isinstance(document, dict):
                return json.dumps(document | {"sha256": machine_digest(document)}).encode()
        return text


class Journal(Artifact):
    """A line that tells what was asked, and entries that each tell their sum, whatever they say."""

    mutations = JSON_MUTATIONS

    def __init__(self, identity: str, entries: Mapping[str, Any]) -> None:
        super().__init__([[key, json.loads(json.dumps(value))] for key, value in entries.items()])
        self._identity = identity

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Not those of bytes: an entry is as it was written, or does not count."""
        return tuple(cls.mutations)

    def _written(self) -> bytes:
        lines = [json.dumps({"identity": self._identity})]
        for entry in self._held:
            with suppress(ValueError, RecursionError, TypeError):  # what is no JSON has no sum
                key, value = json.loads(json_text(entry))
                lines.append(json.dumps({"key": key, "value": value, "sum": digest(key, json.dumps(value))}))
        return "\n".join(lines).encode("utf-8", "surrogatepass")


class Archive(Artifact):
    """Arrays by name, as .npz; bytes stand for an .npy file as they are."""

    mutations = ARRAY_MUTATIONS

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        super().__init__(dict(arrays))

    def _written(self) -> bytes:
        whole = io.BytesIO()
        with zipfile.ZipFile(whole, "w") as archive:
            for name, array in self._held.items():
                entry = zipfile.ZipInfo(f"{name}.npy")  # of no date: the same bytes again
                archive.writestr(entry, array if isinstance(array, bytes) else _npy(array))
        return whole.getvalue()


class KeptDocument(Document):
    """JSON as an array of bytes in an .npz file that tells its key, whatever it says."""

    def __init__(self, document: Any, key: str) -> None:
        super().__init__(document)
        self._key = key

    def _written(self) -> bytes:
        text = np.frombuffer(super()._written(), np.uint8)
        told = {"names": ["document"], "key": self._key}
        return Archive({"document": np.frombuffer(json.dumps(told).encode(), np.uint8), "a0": text}).content()


class Lines(Artifact):
    """Text, line by line."""

    mutations = LINE_MUTATIONS

    def __init__(self, text: str) -> None:
        super().__init__(text.split("\n"))

    def _written(self) -> bytes:
        return "\n".join(self._held).encode("utf-8", "surrogatepass")


class Bytes(Artifact):
    """Of a format that is another program's."""

    mutations: ClassVar[Mapping[str, Callable[[Any, Random], None]]] = {}

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(BYTE_MUTATIONS)

    def _written(self) -> bytes:
        return bytes(self._held)


class Safetensors(Artifact):
    """A header of JSON, and what it speaks of."""

    mutations = JSON_MUTATIONS

    def __init__(self, header: Mapping[str, Any], body: bytes) -> None:
        super().__init__(json.loads(json.dumps(header)))
        self._body = body

    def _written(self) -> bytes:
        header = json_text(self._held).encode("utf-8", "surrogatepass")
        return len(header).to_bytes(8, "little") + header + self._body


def _npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asanyarray(array), allow_pickle=True)
    return stream.getvalue()
