"""No log, however cut or framed, is read wrongly or fills the memory."""

from __future__ import annotations

import tracemalloc
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.log_speed import clean_lines
from halfwise.compiler.buildlog import (
    read_lines,
    read_log,
    reader,
)
from halfwise.core.errors import InputError
from tests.support.build_logs import LOGS, V
from tests.support.says import Says

# Robustness


def test_nothing_is_found_in_a_clean_build() -> None:
    report = read_lines(islice(clean_lines(), 10_000))
    assert report.findings == ()
    assert report.lines == 10_000
    assert len(report.structure.nodes) > 50


@given(st.lists(st.text(max_size=60), max_size=20))
def test_no_line_is_an_error(lines: list[str]) -> None:
    read_lines(lines)


def test_a_line_that_nearly_tells_of_a_reformat_again_and_again_is_read_once() -> None:
    line = f"{V}Adding reformat layer: {'a (b) from c( to ' * 20_000}\n"
    assert read_lines([line]).structure.reformats == ()


@pytest.mark.parametrize("name", sorted(path.name for path in LOGS.glob("*.log")))
@given(size=st.integers(1, 3000))
def test_the_report_does_not_depend_on_where_blocks_are_cut(name: str, size: int) -> None:
    whole = read_log(LOGS / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "_BLOCK", size)
        cut = read_log(LOGS / name)
    assert cut == whole


def test_bytes_lines_and_files_read_alike(tmp_path: Path) -> None:
    path = LOGS / "weights_10.0_trtexec.log"
    raw = path.read_bytes()
    from_bytes = read_lines(iter(raw.split(b"\n")[:-1]), str(path))
    assert from_bytes.to_json() == read_log(path).to_json()
    crlf = tmp_path / "crlf.log"
    crlf.write_bytes(raw.replace(b"\n", b"\r\n"))
    assert read_log(crlf).findings == read_log(path).findings
    utf16 = tmp_path / "utf16.log"
    utf16.write_bytes(raw.decode().encode("utf-16"))
    assert read_log(utf16).findings == read_log(path).findings


@pytest.mark.parametrize("name", sorted(path.name for path in LOGS.glob("*.log")))
def test_what_containers_and_ci_services_put_in_front_changes_nothing(name: str) -> None:
    lines = (LOGS / name).read_text(encoding="utf-8").split("\n")
    plain = read_lines(lines)
    for front in ("2024-08-20T20:57:50.1234567Z ", "trt-1  | ", "trt-1  | 2024-08-20T20:57:50+00:00 "):
        told = read_lines([front + line for line in lines])
        assert (told.findings, told.precision, told.structure) == (plain.findings, plain.precision, plain.structure)


@pytest.mark.parametrize("ending", [b"\r\n", b"\r"])
def test_a_line_ends_as_windows_or_a_progress_bar_ends_it(
    ending: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = LOGS / "layernorm_8.6_region.log"
    path = tmp_path / "build.log"
    path.write_bytes(plain.read_bytes().replace(b"\n", ending))
    for size in (1, 7, 1 << 19):
        monkeypatch.setattr(reader, "_BLOCK", size)
        told = read_log(path)
        assert (told.findings, told.structure) == (read_log(plain).findings, read_log(plain).structure)


def test_control_characters_do_not_end_a_line() -> None:
    text = V + "ForeignNode {ForeignNode[a...b]} metadata: [ONNX Layer: a]\x1e[ONNX Layer: b]"
    assert read_lines([text]).structure.foreign == {"{ForeignNode[a...b]}": ("a", "b")}


def test_files_that_are_no_logs(tmp_path: Path, says: Says) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        read_log(tmp_path / "none.log")
    with pytest.raises(InputError, match="is a folder"):
        read_log(tmp_path)
    engine = tmp_path / "engine.plan"
    engine.write_bytes(b"ftrt\0\0\0\1" * 100)
    with says.raises(InputError):
        read_log(engine)
    empty = tmp_path / "empty.log"
    empty.write_bytes(b"")
    assert read_log(empty).findings == ()


def test_json_document() -> None:
    document = read_log(LOGS / "strategies_10.16_weak.log").to_json()
    assert (document["schema"], document["trt_version"]) == ("halfwise.log/1", "10.16.1")
    assert {finding["rule"] for finding in document["findings"]} == {"HW721", "HW734"}


def test_a_large_log_is_read_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.log"
    block = "\n".join(islice(clean_lines(), 2_000)) + "\n"
    with path.open("w", encoding="utf-8") as file:
        file.writelines(block for _ in range(150))
    tracemalloc.start()
    try:
        report = read_log(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert path.stat().st_size > 40_000_000
    assert report.lines == 300_000
    assert peak < 10_000_000


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "line.log"
    with path.open("wb") as file:
        file.writelines(b"x" * (1 << 20) for _ in range(40))
        file.write(b"\n[E] Unknown option: --fp16\n")
    tracemalloc.start()
    try:
        report = read_log(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [finding.rule for finding in report.findings] == ["HW737"]
    assert peak < 80_000_000
