"""A page in one file: its own style and script run, by their hashes, and nothing else; what it is given is text."""

from __future__ import annotations

import hashlib
import marshal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from importlib.util import cache_from_source
from pathlib import Path
from types import CodeType
from typing import Any

from jinja2 import BytecodeCache, Environment, PackageLoader, StrictUndefined
from jinja2.bccache import Bucket, bc_magic
from markupsafe import Markup

from halfwise.report.html.embed import as_json, content_hash
from halfwise.report.text import safe

__all__ = ["Asset", "sealed", "templates"]

_HEAD = hashlib.sha256().digest_size

Asset = tuple[str, str]  # a package, and a file in it


class _Compiled(BytecodeCache):
    """What templates were compiled to, most of the time of a small page: in this process by name and content, and
    where Python keeps the bytecode of modules, which is as much to be trusted.
    """

    def __init__(self) -> None:
        self._code: dict[tuple[str, str], CodeType | None] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = self._code.get((bucket.key, bucket.checksum))
        if bucket.code is None:
            with suppress(OSError):
                held = self._file(bucket).read_bytes()
                if held == _whole(bucket, code := held[_HEAD:]):
                    bucket.code = marshal.loads(code)

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._code[bucket.key, bucket.checksum] = bucket.code
        if sys.dont_write_bytecode:
            return
        file = self._file(bucket)
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(_whole(bucket, marshal.dumps(bucket.code)))  # half of it has another sum

    def _file(self, bucket: Bucket) -> Path:
        return Path(cache_from_source(f"{Path(__file__).parent}/{bucket.key}.py"))


def _whole(bucket: Bucket, code: bytes) -> bytes:
    """A file's content: which Python and Jinja made which code of which template, by one sum, and that code."""
    return hashlib.sha256(b"".join([bc_magic, bucket.checksum.encode(), code])).digest() + code


_COMPILED = _Compiled()


def templates(package: str, folder: str = "templates") -> Environment:
    return Environment(
        loader=PackageLoader(package, folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
        bytecode_cache=_COMPILED,
    )


def sealed(
    environment: Environment,
    template: str,
    values: Mapping[str, Any],
    data: Any,
    styles: Sequence[Asset],
    scripts: Sequence[Asset],
) -> str:
    """`data` is what the script reads. A page with a `picture` among its values may show it."""
    style, script = _joined(styles), f"(() => {{\n{_joined(scripts)}}})();\n"
    pictures = "img-src data:; " if values.get("picture") is not None else ""
    return environment.get_template(template).render(
        values,
        style=Markup(style),
        script=Markup(script),
        policy=f"default-src 'none'; style-src {content_hash(style)}; script-src {content_hash(script)}; "
        f"{pictures}base-uri 'none'; form-action 'none'",
        json=as_json(data),
    )


def _shown(value: Any) -> Any:
    """Whatever text a template prints is data: what moves, hides or turns text is spelled out."""
    return safe(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _joined(assets: Sequence[Asset]) -> str:
    return "\n".join(files(package).joinpath(name).read_text(encoding="utf-8") for package, name in assets)
