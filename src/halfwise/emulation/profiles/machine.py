"""What `halfwise prove` learned of one machine, as a document: what ran, and for every probe what it tells."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import field, structs

from halfwise.core.document import LEFT_OUT, Count, Document, Left, Number, Record, Share, about, read
from halfwise.core.errors import InputError
from halfwise.core.json_text import read_json
from halfwise.emulation.timing.record import TimesRecord

__all__ = [
    "Evidence",
    "FormRecord",
    "MachineDocument",
    "Ran",
    "Status",
    "digest",
    "is_machine",
    "read_machine",
    "signed",
]

Status = Literal["proven", "several", "loose", "elsewhere", "refused"]


class Evidence(Record, frozen=True):
    """What one hypothesis predicts of a form, against what the machine gave."""

    equal: Annotated[Share, about("Share of results that are the same to the bit.")]
    largest_ulp: Annotated[Count, about("The largest distance, in FP16 numbers.")]
    difference: Annotated[Number, about("Of the results, root mean square over that of the prediction.")]
    error: Annotated[Number, about("The predicted error against FP32, relative.")]


class FormRecord(Record, frozen=True):
    """One probe and its answer."""

    name: str
    rule: Annotated[str, about("What it teaches: an operator, a fusion, or `conversion`.")]
    status: Annotated[
        Status,
        about(
            "proven: one hypothesis, or some that make the same of this form; several: different ones; loose: none; "
            "elsewhere: not on the device; refused: the backend does not run it."
        ),
    ]
    hypotheses: Annotated[Sequence[str], about("Those that hold; of a loose form the nearest and a worse one.")] = ()
    variant: Annotated[str, about("What besides size may choose the kernel.")] = ""
    length: Annotated[Count, about("Terms of a sum; 0: none.")] = 0
    values: Annotated[Count, about("Results that were compared.")] = 0
    repeats: Annotated[bool, about("Whether a second run gave the same bits.")] = True
    error: Annotated[Number, about("The measured error against FP32, relative.")] = 0.0
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    why: Annotated[str, about("What the backend said where it refused.")] = ""
    sizes: Annotated[str, about("All shapes and attributes, where they may choose the kernel.")] = ""

    def __post_init__(self) -> None:
        lacking = [name for name in self.hypotheses if name not in self.evidence] if self.status == "loose" else []
        if lacking:
            raise ValueError(f"a loose form needs evidence of its hypotheses, and has none of {lacking[0]!r}")


class Ran(Record, frozen=True):
    """What the probes ran on. Empty texts are what could not be found out."""

    backend: str
    library: str = ""
    version: str = ""
    device: str = ""
    compute_capability: str = ""
    driver: str = ""
    cuda: str = ""

    @property
    def title(self) -> str:
        """Device and library in a few words."""
        return " ".join(part for part in (self.device or self.backend, self.library, self.version) if part)


class MachineDocument(Document, frozen=True, tag="halfwise.machine/1"):
    """What `halfwise prove` writes: how the kernels of one machine round."""

    ran: Ran
    halfwise: Annotated[str, about("The version that asked and judged.")]
    made: Annotated[str, about("Day of the run.")]
    seconds: Number
    forms: Sequence[FormRecord]
    times: Annotated[TimesRecord | Left, about("How long its kernels take, where `prove --time` asked.")] = LEFT_OUT
    sha256: Annotated[str, about("Of this document without this key, keys sorted, as compact JSON.")] = ""

    @property
    def counts(self) -> Mapping[Status, int]:
        """How many forms have each status."""
        order: tuple[Status, ...] = ("proven", "several", "loose", "elsewhere", "refused")
        return {status: sum(form.status == status for form in self.forms) for status in order}


def signed(document: MachineDocument) -> MachineDocument:
    """The document with its own hash."""
    return structs.replace(document, sha256=digest(document.to_json()))


def digest(data: Mapping[str, Any]) -> str:
    """Of everything but itself."""
    stated = {key: value for key, value in data.items() if key != "sha256"}
    text = json.dumps(stated, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def is_machine(data: Any) -> bool:
    return isinstance(data, dict) and str(data.get("schema", "")).startswith("halfwise.machine/")


def read_machine(path: Path) -> MachineDocument:
    """The document in a file; one line where it is none, or was changed after it was written."""
    try:
        data = read_json(path)
    except OSError as error:
        told = f"{path} cannot be read: {error.strerror}; a learned profile is the file that `halfwise prove` wrote"
        raise InputError(f"{told}; give its path") from None
    except ValueError:
        raise InputError(
            f"{path} is not valid JSON; a profile is a name, or a file that `halfwise prove` wrote"
        ) from None
    if not is_machine(data):
        raise InputError(f"{path} is no machine file; `halfwise prove` writes one")
    document = read(data, MachineDocument, str(path))
    try:
        stated = digest(data)
    except UnicodeEncodeError as error:
        raise InputError(f"{path}: it holds a text that is no Unicode: {error.object[error.start]!a}") from None
    if document.sha256 != stated:
        raise InputError(
            f"{path} was changed after it was written: its sha256 does not fit; run `halfwise prove` again"
        )
    return document
