"""Reads a build log as a stream, of any size in constant memory: a search for literals first, patterns on hits only."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from halfwise.compiler.buildlog.collect import Collector
from halfwise.compiler.buildlog.prefixes import split_line
from halfwise.compiler.buildlog.report import LogReport, LogStructure
from halfwise.core import limits
from halfwise.core.errors import InputError
from halfwise.core.files.absent import absent
from halfwise.core.files.identify import not_wanted
from halfwise.core.opened import opened

__all__ = ["read_lines", "read_log"]

_BLOCK = 1 << 19
_UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}

# What begins a list of layers, and what a line of one looks like where no heading was printed.
_HEADINGS = (b"Engine Layer Information:", b"Layers:")
_LOOSE = (b", LayerType: ", b"Layer(")
_ENTRIES = ("Name: ", "Layer(")
# What lines of TensorRT and its tools hold, and other logs hardly ever.
_MARKS = (b"[TRT]", b"TensorRT", b"tensorrt", b"trtexec")
_AFTER_LIST = ("Bindings:", "I/O Tensors:", "&&&& ")


def read_log(path: Path | str) -> LogReport:
    """Read a log of trtexec, the Python logger, Polygraphy, Torch-TensorRT or TensorRT-RTX."""
    path = Path(path)
    if not path.exists():
        raise absent(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder; name the build log in it")
    scanner = _Scanner()
    try:
        for block in _blocks(path):
            scanner.feed(block)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    return scanner.report(str(path))


def read_lines(lines: Iterable[bytes | str], source: str = "the log") -> LogReport:
    """Read a log line by line, from a process that is still running or from memory."""
    scanner = _Scanner()
    batch: list[bytes] = []
    size = 0
    for line in lines:
        raw = line if isinstance(line, bytes) else line.encode("utf-8", errors="replace")
        batch.append(raw.rstrip(b"\r\n"))
        size += len(raw)
        if size >= _BLOCK:
            scanner.feed(b"\n".join(batch))
            batch.clear()
            size = 0
    if batch:
        scanner.feed(b"\n".join(batch))
    return scanner.report(source)


def _blocks(path: Path) -> Iterator[bytes]:
    """Blocks of whole lines in UTF-8."""
    with opened(path) as file:
        head = file.read(2)
        encoding = _UTF16.get(head)
        decoder = codecs.getincrementaldecoder(encoding)(errors="replace") if encoding else None
        rest = b"" if decoder else head
        first = True
        held = b""
        while chunk := file.read(_BLOCK):
            if decoder is not None:
                chunk = decoder.decode(chunk).encode("utf-8", errors="replace")
            elif first and b"\0" in chunk:
                told = f"{path} is not a text; give the build log, not the engine or the model"
                raise InputError(not_wanted(path, "a TensorRT build log", told))
            first = False
            chunk, held = _one_line_end(held + chunk)
            cut = chunk.rfind(b"\n")
            if cut < 0:
                rest += chunk[: max(0, limits.LONGEST_LOG_LINE - len(rest))]
                continue
            yield rest + chunk[:cut]
            rest = chunk[cut + 1 :]
        if rest:
            yield rest


def _one_line_end(chunk: bytes) -> tuple[bytes, bytes]:
    """The chunk with newlines only, as progress bars end their lines otherwise; and what may be half a line end."""
    if b"\r" not in chunk:
        return chunk, b""
    held = b"\r" if chunk.endswith(b"\r") else b""
    return chunk.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n"), held


class _Scanner:
    """Finds the lines worth reading in blocks of whole lines and hands them to the collector."""

    def __init__(self) -> None:
        self._collector = Collector()
        self._handlers = tuple(self._collector.handlers.items())
        self._lines = 0
        self._recognised = False
        self._listing = False  # inside a list of layers
        self._fresh = False  # its heading was read, none of its lines yet

    def feed(self, block: bytes) -> None:
        self._lines += block.count(b"\n") + 1
        self._recognised = self._recognised or any(mark in block for mark in _MARKS)
        position = 0
        if self._collector.wants_next_line:
            end = _line_end(block, 0)
            self._collector.next_line(split_line(_text(block[:end])))
        if self._listing:
            position = self._list(block, 0)
        for start, handlers in sorted(self._hits(block).items()):
            if start < position:
                continue
            end = _line_end(block, start)
            raw = _text(block[start:end])
            line = split_line(raw)
            for place in handlers:
                if place >= 0:
                    self._handlers[place][1](line)
            if self._collector.wants_next_line and end < len(block):
                following = _line_end(block, end + 1)
                self._collector.next_line(split_line(_text(block[end + 1 : following])))
            if handlers[0] < 0:
                position = self._heading(block, line.message, end)

    def _hits(self, block: bytes) -> dict[int, list[int]]:
        """By the start of each line of interest, the handlers that it is for; -1 in front where it lists layers."""
        hits: dict[int, list[int]] = {}
        for literal in (*_HEADINGS, *_LOOSE):
            for start in _starts(block, literal):
                hits[start] = [-1]
        for place, (literal, _) in enumerate(self._handlers):
            for start in _starts(block, literal):
                hits.setdefault(start, []).append(place)
        return hits

    def _heading(self, block: bytes, message: str, end: int) -> int:
        """Begin a list of layers, or take one line of a list without heading; returns how far the block is read."""
        collector = self._collector
        if message.strip() in ("Engine Layer Information:", "Layers:"):
            self._listing = self._fresh = True
            return self._list(block, end + 1)
        if message.startswith(_ENTRIES):
            collector.engines = max(collector.engines, 1)
            collector.engine_lines.append(message)
        return end

    def _list(self, block: bytes, start: int) -> int:
        """Take the lines of a list: one form throughout, to the first line that is not of it."""
        collector = self._collector
        while start < len(block):
            end = _line_end(block, start)
            raw = _text(block[start:end])
            line = split_line(raw)
            entry = line.message.startswith(_ENTRIES)
            names_only = self._fresh or not collector.engine_lines[0].startswith(_ENTRIES)
            name = (
                names_only and line.message.strip() and not line.severity and not line.message.startswith(_AFTER_LIST)
            )
            if not entry and not name:
                self._listing = False
                return start
            if self._fresh:
                collector.engine_lines.clear()
                collector.engines += 1
                self._fresh = False
            collector.engine_lines.append(line.message)
            start = end + 1
        return start

    def report(self, source: str) -> LogReport:
        report = self._collector.report(source, self._lines, self._recognised)
        found = report.findings or report.precision or report.structure != LogStructure()
        return replace(report, recognised=True) if found else report


def _starts(block: bytes, literal: bytes) -> Iterator[int]:
    """Where each line that holds the literal begins."""
    found = block.find(literal)
    while found >= 0:
        yield block.rfind(b"\n", 0, found) + 1
        end = block.find(b"\n", found)
        if end < 0:
            return
        found = block.find(literal, end)


def _line_end(block: bytes, start: int) -> int:
    end = block.find(b"\n", start)
    return len(block) if end < 0 else end


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", errors="replace").rstrip("\r")
