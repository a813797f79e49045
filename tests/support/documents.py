"""Documents against their schemas, closed: whatever a schema does not name is a fault; and read back."""

from __future__ import annotations

from typing import Any

import jsonschema

from halfwise.cli.schemas import document_type, schema
from halfwise.core.document import read

__all__ = ["check", "shared", "strict"]


def strict(part: Any) -> Any:
    """The same schema, closed: whatever it does not name is a fault."""
    if isinstance(part, list):
        return [strict(each) for each in part]
    if not isinstance(part, dict):
        return part
    closed = {key: strict(each) for key, each in part.items()}
    if "properties" in part and isinstance(part.get("required"), list) and "additionalProperties" not in part:
        closed["additionalProperties"] = False
    return closed


def check(document: dict[str, Any], name: str) -> None:
    assert document["schema"] == f"halfwise.{name}/1"
    faults = jsonschema.Draft202012Validator(strict(schema(name))).iter_errors(document)
    assert [f"{fault.json_path}: {fault.message[:300]}" for fault in faults] == []
    assert shared(read(document, document_type(name), name).to_json(), document) == document


def shared(written: Any, document: Any) -> Any:
    """Of what a record writes, in its order, the keys that the document has: it may leave out what is usual."""
    if isinstance(written, dict) and isinstance(document, dict):
        return {key: shared(each, document[key]) for key, each in written.items() if key in document}
    if isinstance(written, list) and isinstance(document, list):
        return [shared(*pair) for pair in zip(written, document, strict=True)]
    return written
