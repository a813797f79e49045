"""Ways to damage what is no model: JSON documents, arrays, lines of text, bytes of any file."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from tools.fuzz.odd_values import ODD_LEAVES, ODD_SIZES, ODD_TEXTS

__all__ = ["ARRAY_MUTATIONS", "BYTE_MUTATIONS", "JSON_MUTATIONS", "LINE_MUTATIONS", "RawJson", "json_text"]

Arrays = dict[str, Any]


class RawJson:
    """JSON that is written as it stands."""

    def __init__(self, text: str) -> None:
        self.text = text


# -- JSON documents ---------------------------------------------------------------------------------------------------


def json_text(document: Any) -> str:
    raw: list[str] = []

    def told(value: Any) -> str:
        if not isinstance(value, RawJson):
            raise TypeError(type(value).__name__)
        raw.append(value.text)
        return f"@@{len(raw) - 1}@@"

    text = json.dumps(document, default=told)
    for index, each in enumerate(raw):
        text = text.replace(f'"@@{index}@@"', each)
    return text


def _places(document: Any) -> list[tuple[Any, Any]]:
    """Every container with a key in it."""
    found: list[tuple[Any, Any]] = []
    stack = [document]
    while stack:
        at = stack.pop()
        keys = list(at) if isinstance(at, dict) else range(len(at)) if isinstance(at, list) else ()
        for key in keys:
            found.append((at, key))
            stack.append(at[key])
    return found


def _place(document: Any, random: Random) -> tuple[Any, Any] | None:
    """Any place; half of the time one near the root, which the many leaves of a list would drown."""
    places = _places(document)
    if not places:
        return None
    return random.choice(places[: len(places) // 8 + 4] if random.random() < 0.5 else places)


def json_leaf(document: Any, random: Random) -> None:
    if place := _place(document, random):
        place[0][place[1]] = random.choice(ODD_LEAVES)


def json_number(document: Any, random: Random) -> None:
    """A number of the same kind, but odd."""
    numbers = [(at, key) for at, key in _places(document) if type(at[key]) in (int, float)]
    if numbers:
        at, key = random.choice(numbers)
        at[key] = random.choice([value for value in ODD_LEAVES if type(value) in (int, float)])


def json_word(document: Any, random: Random) -> None:
    """A text becomes another text of the same document, or an odd one."""
    texts = [(at, key) for at, key in _places(document) if isinstance(at[key], str)]
    if texts:
        at, key = random.choice(texts)
        known = [there[name] for there, name in texts]
        at[key] = random.choice([*known, *ODD_TEXTS])


def json_gone(document: Any, random: Random) -> None:
    if place := _place(document, random):
        del place[0][place[1]]


def json_more(document: Any, random: Random) -> None:
    """An entry twice, or a key more."""
    if place := _place(document, random):
        at, key = place
        if isinstance(at, list):
            at.insert(key, at[key])
        else:
            at[random.choice(ODD_TEXTS)] = at[key]


def json_swapped(document: Any, random: Random) -> None:
    """Two values change places."""
    one, other = _place(document, random), _place(document, random)
    if one and other:
        there, here = json_text(other[0][other[1]]), json_text(one[0][one[1]])
        one[0][one[1]], other[0][other[1]] = RawJson(there), RawJson(here)


def json_wrapped(document: Any, random: Random) -> None:
    if place := _place(document, random):
        at, key = place
        at[key] = random.choice(([at[key]], {"value": at[key]}, [at[key]] * 3))


def json_deep(document: Any, random: Random) -> None:
    if place := _place(document, random):
        depth, (opening, closing) = random.choice((50, 900, 5000, 100000)), random.choice((("[", "]"), ('{"a":', "}")))
        place[0][place[1]] = RawJson(opening * depth + "1" + closing * depth)


# -- arrays -----------------------------------------------------------------------------------------------------------


def array_type(arrays: Arrays, random: Random) -> None:
    if arrays:
        name = random.choice(sorted(arrays))
        kinds = ("f2", "f8", "i1", "u8", "?", "c8", ">f4", "U5", "S3", "O", "M8[s]", "m8[s]", "V4", "f4,i4", "f16")
        kind = random.choice(kinds)
        with np.errstate(all="ignore"):
            try:
                arrays[name] = np.asarray(arrays[name]).astype(np.dtype(kind))
            except (TypeError, ValueError):
                arrays[name] = np.zeros(np.shape(arrays[name]), np.dtype(kind))


def array_shape(arrays: Arrays, random: Random) -> None:
    if arrays:
        name = random.choice(sorted(arrays))
        array = np.asarray(arrays[name])
        ways: tuple[Callable[[], Any], ...] = (
            lambda: array.reshape(-1), lambda: array[None], lambda: array[..., None], lambda: array[:0],
            lambda: np.float32(1), lambda: array.T, lambda: array.repeat(2, axis=0), lambda: np.zeros((0, 3), "f4"),
            lambda: array.reshape((1,) * 30 + array.shape),
        )  # fmt: skip
        arrays[name] = random.choice(ways)() if array.ndim else array.reshape(1)


def array_values(arrays: Arrays, random: Random) -> None:
    if arrays:
        name = random.choice(sorted(arrays))
        array = np.array(arrays[name])
        if array.dtype.kind == "f" and array.size:
            array.flat[:: random.choice((1, 2, 5))] = random.choice(
                (np.nan, np.inf, -np.inf, 3e38, 1e-45, 0.0, 65520.0)
            )
        elif array.dtype.kind in "iu" and array.size:
            array.flat[:: random.choice((1, 2))] = random.choice((-1, 0, 127, 5, 100))
        arrays[name] = array


def array_named(arrays: Arrays, random: Random) -> None:
    if arrays:
        name = random.choice(sorted(arrays))
        odd = random.choice([text for text in ODD_TEXTS if "\0" not in text])
        arrays[odd] = arrays[name]
        if random.random() < 0.6 and odd != name:
            del arrays[name]


def array_gone(arrays: Arrays, random: Random) -> None:
    if arrays:
        del arrays[random.choice(sorted(arrays))]


def array_claims(arrays: Arrays, random: Random) -> None:
    """A header that promises more, or other, than follows it."""
    if arrays:
        name = random.choice(sorted(arrays))
        shape = tuple(random.choices(ODD_SIZES, k=random.randrange(1, 4)))
        kind = random.choice(("<f4", "|O", "<U1000000", "|V0", "object", "<f99", "[('a','<f4')]"))
        head = f"{{'descr': {kind!r}, 'fortran_order': {random.random() < 0.3}, 'shape': {shape}, }}".encode()
        head += b" " * (64 - (len(head) + 11) % 64) + b"\n"
        arrays[name] = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + b"\0" * 64


# -- lines ------------------------------------------------------------------------------------------------------------


def line_gone(lines: list[str], random: Random) -> None:
    if lines:
        del lines[random.randrange(len(lines))]


def line_twice(lines: list[str], random: Random) -> None:
    if lines:
        lines.insert(random.randrange(len(lines)), random.choice(lines))


def line_cut(lines: list[str], random: Random) -> None:
    if lines:
        place = random.randrange(len(lines))
        lines[place] = lines[place][: random.randrange(len(lines[place]) + 1)]


def line_joined(lines: list[str], random: Random) -> None:
    if len(lines) > 1:
        place = random.randrange(len(lines) - 1)
        lines[place : place + 2] = ["".join(lines[place : place + 2])]


def line_spliced(lines: list[str], random: Random) -> None:
    """The head of one line and the tail of another."""
    if lines:
        one, other = random.choice(lines), random.choice(lines)
        head, tail = random.randrange(len(one) + 1), random.randrange(len(other) + 1)
        lines[random.randrange(len(lines))] = one[:head] + other[tail:]


def line_odd(lines: list[str], random: Random) -> None:
    if lines:
        place = random.randrange(len(lines))
        words = lines[place].split(" ")
        words[random.randrange(len(words))] = random.choice((*ODD_TEXTS, "9" * 400, "((((((", "[[[[", "-> ", "0x"))
        lines[place] = " ".join(words)


def line_long(lines: list[str], random: Random) -> None:
    if lines:
        place = random.randrange(len(lines))
        lines[place] = (lines[place] or "x") * random.choice((50, 2000))


# -- bytes ------------------------------------------------------------------------------------------------------------


def bytes_flipped(content: bytes, random: Random) -> bytes:
    changed = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 8)) if changed else 0):
        changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed)


def bytes_cut(content: bytes, random: Random) -> bytes:
    return content[: random.randrange(len(content) + 1)]


def bytes_more(content: bytes, random: Random) -> bytes:
    place = random.randrange(len(content) + 1)
    return (
        content[:place]
        + random.choice((b"\0" * 9, content[-30:], b"\xff\xfe", b"PK\x05\x06", content))
        + content[place:]
    )


def bytes_gone(content: bytes, random: Random) -> bytes:
    place = random.randrange(len(content) + 1)
    return content[:place] + content[place + random.choice((1, 4, 50)) :]


def bytes_of_the_end(content: bytes, random: Random) -> bytes:
    """The last bytes, in which an archive tells what it holds."""
    changed = bytearray(content)
    for _ in range(2):
        if changed:
            changed[-1 - random.randrange(min(len(changed), 90))] = random.choice((0, 1, 2, 0x7F, 0xFF))
    return bytes(changed)


def bytes_in_another_encoding(content: bytes, random: Random) -> bytes:
    return content.decode("utf-8", "replace").encode(random.choice(("utf-16", "utf-8-sig", "utf-32")), "replace")


def _named(*mutations: Any) -> dict[str, Any]:
    return {mutation.__name__: mutation for mutation in mutations}


JSON_MUTATIONS: dict[str, Callable[[Any, Random], None]] = _named(
    json_leaf, json_number, json_word, json_gone, json_more, json_swapped, json_wrapped, json_deep
)
ARRAY_MUTATIONS: dict[str, Callable[[Arrays, Random], None]] = _named(
    array_type, array_shape, array_values, array_named, array_gone, array_claims
)
LINE_MUTATIONS: dict[str, Callable[[list[str], Random], None]] = _named(
    line_gone, line_twice, line_cut, line_joined, line_spliced, line_odd, line_long
)
BYTE_MUTATIONS: dict[str, Callable[[bytes, Random], bytes]] = _named(
    bytes_flipped, bytes_cut, bytes_more, bytes_gone, bytes_of_the_end, bytes_in_another_encoding
)
