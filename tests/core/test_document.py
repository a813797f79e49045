"""Documents as types: what is written, what is read back, what is refused, and the schema of it all."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfwise.cli.schemas import schema
from halfwise.core.document import LEFT_OUT, Count, Document, Left, Number, Record, about, read
from halfwise.core.errors import InputError
from halfwise.core.json_schema import schema_of
from halfwise.core.metrics import Metrics
from halfwise.verbs.bisect.document import Step
from tests.support.documents import strict


class Part(Record, frozen=True):
    """One part."""

    title: str
    size: Number
    note: Annotated[str | Left, about("Where there is one.")] = LEFT_OUT


class Toy(Document, frozen=True, tag="halfwise.toy/1"):
    """What a toy
    prints."""

    parts: Sequence[Part]
    by_name: Mapping[str, Number]
    count: Count
    best: Part | None


def toy(*sizes: float) -> Toy:
    return Toy([Part("a", size) for size in sizes], {"x": -math.inf}, 3, None)


def test_the_json_has_the_keys_in_the_order_of_the_fields() -> None:
    document = Toy((Part("a", 1.5), Part("b", math.inf, "c")), {"x": math.nan}, 3, None)
    assert json.dumps(document.to_json(), allow_nan=False) == (
        '{"schema": "halfwise.toy/1", "parts": [{"title": "a", "size": 1.5}, {"title": "b", "size": "inf", '
        '"note": "c"}], "by_name": {"x": "nan"}, "count": 3, "best": null}'
    )


@given(st.lists(st.floats(allow_nan=False), max_size=3), st.none() | st.text())
def test_what_is_read_back_is_what_was_written(sizes: list[float], note: str | None) -> None:
    part = Part("p", 0.0) if note is None else Part("p", 0.0, note)
    document = Toy([*toy(*sizes).parts, part], {}, len(sizes), part)
    written = document.to_json()
    jsonschema.validate(written, strict(schema_of(Toy)))
    assert read(json.loads(json.dumps(written)), Toy, "it") == document


def test_keys_of_another_version_are_passed_over() -> None:
    assert read({**toy(1.0).to_json(), "more": 1}, Toy, "it") == toy(1.0)


@pytest.mark.parametrize(
    ("change", "place", "found", "allowed"),
    [
        ({"schema": "halfwise.toy/2"}, "schema", "halfwise.toy/2", ""),
        ({"count": "3"}, "count", "a text", "a whole number"),
        ({"count": -1}, "count", "", ">= 0"),
        ({"best": {"title": "a"}}, "best", "", "size"),
        ({"parts": [{"title": 1, "size": 1}]}, "parts[0].title", "a whole number", "a text"),
        ({"parts": [{"title": "a", "size": "big"}]}, "parts[0].size", "'big'", "inf, -inf, nan"),
        ({"by_name": {"a": 1, "b.c": "x", "d": 2}}, "by_name['b.c']", "'x'", "number"),
        ({"by_name": {"a": 1, "b": "x"}, "count": -1}, "by_name['b']", "'x'", "number"),
        ({"parts": [{"title": "a", "size": True}]}, "parts[0].size", "True", "number"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(change: dict[str, Any], place: str, found: str, allowed: str) -> None:
    with pytest.raises(InputError) as refused:
        read({**toy().to_json(), **change}, Toy, "it.json")
    line = str(refused.value)
    assert line.startswith(f"it.json: {place}: ") and found in line and allowed in line


def test_the_schema_follows_from_the_type() -> None:
    schema = schema_of(Toy)
    schema["properties"]["best"]["anyOf"].sort(key=str)  # versions of msgspec differ in it
    assert schema == {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:halfwise:toy:1",
        "title": "What a toy prints.",
        "type": "object",
        "properties": {
            "schema": {"const": "halfwise.toy/1"},
            "parts": {"type": "array", "items": {"$ref": "#/$defs/Part"}},
            "by_name": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Number"}},
            "count": {"type": "integer", "minimum": 0},
            "best": {"anyOf": [{"$ref": "#/$defs/Part"}, {"type": "null"}]},
        },
        "required": ["schema", "parts", "by_name", "count", "best"],
        "$defs": {
            "Part": {
                "description": "One part.",
                "type": "object",
                "properties": {
                    "title": {"type": "string"},
                    "size": {"$ref": "#/$defs/Number"},
                    "note": {"description": "Where there is one.", "type": "string"},
                },
                "required": ["title", "size"],
            },
            "Number": {
                "description": "A number; JSON has no infinity, so that these are words.",
                "anyOf": [{"type": "number"}, {"enum": ["inf", "-inf", "nan"]}],
            },
        },
    }


def test_metrics_come_back_with_their_infinities() -> None:
    metrics = Metrics(math.inf, 1.0, 0.5, -1.0, -math.inf, 1.0, 0.0, 2, "shape (1,) instead of (2,)")
    assert metrics.to_json()["psnr"] == "-inf"
    assert read(metrics.to_json(), Metrics, "it") == metrics


def test_what_is_always_written_is_required_though_older_documents_lack_it() -> None:
    parts = schema("bisect")["$defs"]
    assert {"load", "why", "resumed"} <= set(parts["Step"]["required"])
    assert "nonfinite" in parts["Metrics"]["required"]
    step = {"what": "group", "fp16": 1, "of": 2, "answer": "good"}
    assert read(step, Step, "an older document").resumed is False
