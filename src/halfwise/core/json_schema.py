"""The JSON Schema of a document, from its type."""

from __future__ import annotations

from typing import Any

import msgspec

from halfwise.core.document import WRITTEN, Document

__all__ = ["schema_of"]


def schema_of(kind: type[Document]) -> dict[str, Any]:
    """By draft 2020-12. Its title is the docstring of the class; what it is made of stands in `$defs`."""
    own: dict[str, Any] = {}

    def refer(part: Any) -> dict[str, Any]:
        own[part.__name__] = {"description": part.__doc__, **part.schema()}
        return {"$ref": f"#/$defs/{part.__name__}"}

    _, parts = msgspec.json.schema_components([kind], schema_hook=refer, ref_template="#/$defs/{name}")
    parts = {name: _tidied(part) for name, part in parts.items()}
    body: dict[str, Any] = parts.pop(kind.__name__)
    parts |= own
    name, version = str(kind.__struct_config__.tag).removeprefix("halfwise.").split("/")
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:halfwise:{name}:{version}",
        "title": body.pop("description"),
    }
    return head | body | ({"$defs": parts} if parts else {})


def _tidied(part: Any) -> Any:
    """Without the names of classes and without defaults; an enumeration of one is a constant."""
    if isinstance(part, list):
        return [_tidied(each) for each in part]
    if not isinstance(part, dict):
        return part
    tidied: dict[str, Any] = {}
    for key, each in part.items():
        if key == "properties":
            tidied[key] = {name: _tidied(field) for name, field in each.items()}
        elif key == "description":
            tidied[key] = " ".join(each.split())
        elif key == "required":
            properties = part.get("properties", {})
            tidied[key] = [name for name in properties if name in each or properties[name].get(WRITTEN)]
        elif key == "enum" and len(each) == 1:
            tidied["const"] = each[0]
        elif key not in ("title", "default", WRITTEN):
            tidied[key] = _tidied(each)
    return tidied
