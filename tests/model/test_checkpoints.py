"""Checkpoints are read where they lie, shared tensors once; whatever does not fit its file, or is code, is refused."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from benchmarks.scan_speed import sparse_checkpoint
from halfwise.core.counting import count
from halfwise.core.errors import InputError
from halfwise.model.checkpoints import is_checkpoint, read_checkpoint
from halfwise.model.elements import Elements, Stretch, count_all
from halfwise.verbs.scan import scan
from tests.support.checkpoints import values_of
from tests.support.says import Says

TYPES = {"F32": np.float32, "F16": np.float16, "F64": np.float64, "BF16": ml_dtypes.bfloat16, "I64": np.int64}
BAD = np.array([1.0, 1e-6, 1e-9, 0.0, -2.0], np.float32)


def written(path: Path, tensors: dict[str, tuple[str, Any]], **changes: Any) -> Path:
    """A safetensors file; `changes` replace entries of its header."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, (dtype, values) in tensors.items():
        array = np.asarray(values, TYPES[dtype])
        header[name] = {
            "dtype": dtype, "shape": list(array.shape), "data_offsets": [len(body), len(body) + array.nbytes],
        }  # fmt: skip
        body += array.tobytes()
    for name, change in changes.items():
        header[name] = {**header[name], **change} if isinstance(change, dict) else change
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return path


def raw(path: Path, header: bytes, body: bytes = b"", length: int | None = None) -> Path:
    path.write_bytes(struct.pack("<Q", len(header) if length is None else length) + header + body)
    return path


# -- safetensors ------------------------------------------------------------------------------------------------------


def test_every_float_type_is_read_in_its_own_bits(tmp_path: Path) -> None:
    tensors = {
        "a": ("F32", [[1.0, 2.0], [3.0, 1e-6]]),
        "b": ("BF16", [1.5, 2.0**-20]),
        "c": ("F16", [2.0**-24]),  # not at a multiple of four bytes
        "d": ("F64", 1e-300),
        "e": ("I64", [7]),
        "f": ("F32", np.zeros((0, 3))),
    }
    checkpoint = read_checkpoint(written(tmp_path / "x.safetensors", tensors))
    assert [(t.name, t.dtype, t.shape) for t in checkpoint.tensors] == [
        ("a", "fp32", (2, 2)), ("b", "bf16", (2,)), ("c", "fp16", (1,)), ("d", "fp64", ()), ("f", "fp32", (0, 3)),
    ]  # fmt: skip
    assert checkpoint.other_names == ("e",)
    assert values_of(checkpoint)["b"] == [1.5, 2.0**-20]
    assert values_of(checkpoint)["d"] == 1e-300
    result = scan(tmp_path / "x.safetensors")
    found = {e.name: (e.counts.count, e.counts.subnormal, e.counts.underflow) for e in result.initializers}
    assert found == {"a": (4, 1, 0), "b": (2, 1, 0), "c": (1, 1, 0), "d": (1, 0, 1), "f": (0, 0, 0)}


ONE = {"a": ("F32", [1.0, 2.0]), "b": ("F32", [3.0])}


@pytest.mark.parametrize(
    "changes",
    [
        {"a": {"data_offsets": [0, 400]}},
        {"a": {"data_offsets": [8, 0]}},
        {"a": {"data_offsets": [-4, 4]}},
        {"a": {"data_offsets": [0, 1 << 70]}},
        {"a": {"data_offsets": [0.0, 8.0]}},
        {"a": {"data_offsets": [0]}},
        {"a": {"shape": [True, 2]}},
        {"a": {"shape": [1 << 40, 1 << 40]}},
        {"a": {"shape": [3]}},
        {"a": {"dtype": "F99"}},
        {"a": 7},
        {"b": {"data_offsets": [4, 8]}},
        {"b": {"shape": [0], "data_offsets": [8, 8]}},
        {"a": {"shape": [1], "data_offsets": [0, 4]}},
    ],
)
def test_headers_that_lie(tmp_path: Path, changes: dict[str, Any], says: Says) -> None:
    path = written(tmp_path / "x.safetensors", ONE, **changes)
    with says.raises(InputError) as told:
        read_checkpoint(path)
    assert str(told.value).startswith(str(path))


@pytest.mark.parametrize(
    ("header", "length"),
    [
        (b"", 1 << 60),
        (b"{}", 3),
        (b"not JSON", None),
        (b"[1]", None),
        pytest.param(b"{" + b'"a":{' * 100_000, None, id="deep"),
        (b'{"\xff": 1}', None),
        (b'{"a": 1, "a": 2}', None),
    ],
)
def test_files_that_are_no_safetensors(tmp_path: Path, header: bytes, length: int | None, says: Says) -> None:
    with says.raises(InputError):
        read_checkpoint(raw(tmp_path / "x.safetensors", header, length=length))


def test_too_short_and_missing(tmp_path: Path, says: Says) -> None:
    (tmp_path / "x.safetensors").write_bytes(b"abc")
    with says.raises(InputError):
        read_checkpoint(tmp_path / "x.safetensors")
    with pytest.raises(InputError, match="there is no such file"):
        read_checkpoint(tmp_path / "y.safetensors")


def test_a_file_that_shrinks_meanwhile(tmp_path: Path, says: Says) -> None:
    checkpoint = read_checkpoint(written(tmp_path / "x.safetensors", ONE))
    (tmp_path / "x.safetensors").write_bytes(b"short")
    with says.raises(InputError):
        count_all([tensor.elements for tensor in checkpoint.tensors])


# -- shards and folders -----------------------------------------------------------------------------------------------


def sharded(folder: Path, **places: str) -> Path:
    folder.mkdir(exist_ok=True)
    written(folder / "one.safetensors", {"a": ("F32", BAD)})
    written(folder / "two.safetensors", {"b": ("F32", [1.0]), "ids": ("I64", [1])})
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": places or {"a": "one.safetensors", "ids": "two.safetensors"}}))
    return index


def test_shards_are_one_checkpoint(tmp_path: Path) -> None:
    index = sharded(tmp_path)
    for path in (index, tmp_path):
        checkpoint = read_checkpoint(path)
        assert [tensor.name for tensor in checkpoint.tensors] == ["a", "b"]
        assert len(checkpoint.files) == 2
    index.unlink()
    assert [tensor.name for tensor in read_checkpoint(tmp_path).tensors] == ["a", "b"]
    (tmp_path / "two.safetensors").unlink()
    assert read_checkpoint(tmp_path).path == tmp_path / "one.safetensors"
    assert is_checkpoint(tmp_path)
    (tmp_path / "one.safetensors").unlink()
    assert not is_checkpoint(tmp_path)


@pytest.mark.parametrize(
    "places",
    [
        {"a": "../one.safetensors"},
        {"a": "/etc/passwd"},
        {"a": "C:one"},
        {"a": "three.safetensors"},
        {"c": "one.safetensors"},
    ],
)
def test_indices_that_lie(tmp_path: Path, places: dict[str, str], says: Says) -> None:
    with says.raises(InputError):
        read_checkpoint(sharded(tmp_path, **places))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_shard_may_be_a_link_as_caches_have_it_and_no_pipe(tmp_path: Path) -> None:
    index, kept = sharded(tmp_path / "shown"), tmp_path / "kept"
    shard = index.with_name("one.safetensors").rename(kept)
    index.with_name("one.safetensors").symlink_to(shard)
    assert [tensor.name for tensor in read_checkpoint(index).tensors] == ["a", "b"]
    kept.unlink()
    os.mkfifo(kept)
    with pytest.raises(InputError, match="names the shard"):
        read_checkpoint(index)


@pytest.mark.parametrize("text", ["{}", "[]", "not JSON", '{"weight_map": {"a": 1}}', '{"weight_map": {}}'])
def test_files_that_are_no_index(tmp_path: Path, text: str) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(text)
    with pytest.raises(InputError, match="is no index of shards"):
        read_checkpoint(path)


def test_two_checkpoints_in_one_folder(tmp_path: Path, says: Says) -> None:
    for name in ("one", "two"):
        written(tmp_path / f"{name}.safetensors", ONE)
    with says.raises(InputError):
        read_checkpoint(tmp_path)


# -- what is found ----------------------------------------------------------------------------------------------------


def test_noise_lost_channels_and_biases(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    healthy = rng.standard_normal((64, 96)).astype(np.float32)
    healthy[3, :5] = 1e-7  # noise beside large values
    lost = healthy.copy()
    lost[7] *= 5e-7
    tensors = {
        "healthy.weight": healthy,
        "lost.weight": lost,
        "quiet.weight": healthy * 1e-8,
        "quiet.bias": healthy[0] * 1e-8,
        "large.weight": healthy * 1e6,
    }
    path = written(tmp_path / "x.safetensors", {name: ("F32", values) for name, values in tensors.items()})
    result = scan(path)
    found = {finding.where.name: finding.rule for finding in result.findings}
    assert found == {
        "weights": "HW101", "lost.weight": "HW103", "quiet.weight": "HW102", "large.weight": "HW104",
    }  # fmt: skip
    (channel,) = (finding for finding in result.findings if finding.rule == "HW103")
    assert channel.numbers["channel_indices"] == [7]
    rounding = {entry.name: entry.rounding for entry in result.initializers}
    assert rounding["healthy.weight"] is None  # the counts raise no question
    together = scan(path, rounding=True).total_rounding
    assert result.total_rounding is None
    assert together is not None
    every = np.concatenate([values.ravel() for values in tensors.values()]).astype(np.float64)
    rounded = np.clip(every.astype(np.float16).astype(np.float64), -65504, 65504)
    assert together.relative == pytest.approx(np.linalg.norm(rounded - every) / np.linalg.norm(every))
    assert together.largest == np.abs(rounded - every).max()
    measured = {entry.name: entry.rounding for entry in scan(path, rounding=True).initializers}["healthy.weight"]
    assert measured is not None
    exact = healthy.astype(np.float64)
    change = np.abs(exact.astype(np.float16).astype(np.float64) - exact)
    assert measured.largest == change.max()
    assert measured.largest_relative == pytest.approx((change / np.abs(exact)).max())
    assert measured.relative == pytest.approx(np.sqrt((change**2).sum() / (exact**2).sum()))
    tiny = np.abs(exact) < 2.0**-14
    assert measured.affected_share == pytest.approx((exact[tiny] ** 2).sum() / (exact**2).sum())


def test_quiet_channels_are_found_wherever_blocks_end(tmp_path: Path) -> None:
    """Shapes whose rows end anywhere in the blocks that are counted."""
    rng = np.random.default_rng(1)
    for rows, columns in ((3, 70_000), (40, 5_000), (2, 200_000), (4000, 50)):
        values = rng.standard_normal((rows, columns)).astype(np.float32)
        values[1] *= 5e-7
        result = scan(written(tmp_path / "x.safetensors", {"w": ("F32", values)}))
        (found,) = (finding for finding in result.findings if finding.rule == "HW103")
        assert found.numbers["channel_indices"] == [1]


def test_many_threads_count_like_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import halfwise.model.elements as module

    values = np.tile(BAD, 999)
    (tmp_path / "bytes").write_bytes(b"xyz" + values.tobytes())
    tensors = [
        Elements(values),
        Elements(Stretch(tmp_path / "bytes", 3, values.dtype, values.size, "it")),
        Elements(BAD),
    ]
    monkeypatch.setattr(module, "_SHARE", 64)
    for threads in (1, 3):
        monkeypatch.setattr(module, "cores", lambda threads=threads: threads)
        assert count_all(tensors) == [count(values), count(values), count(BAD)]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from /proc")
def test_only_a_window_of_the_file_is_held(tmp_path: Path) -> None:
    """200 MB in 5 shards; what the process holds grows by the windows alone."""
    index = sparse_checkpoint(tmp_path, 0.2, 5)
    program = (
        "import sys, re; from halfwise.verbs.scan import scan; status = lambda: int(re.search(r'VmHWM:\\s+(\\d+)',"
        "open('/proc/self/status').read())[1]); before = status(); r = scan(sys.argv[1]);"
        "print(r.totals.count, status() - before)"
    )
    told = subprocess.run([sys.executable, "-c", program, str(index)], capture_output=True, text=True, check=True)
    values, grown = map(int, told.stdout.split())
    assert 95_000_000 < values <= 100_000_000
    assert grown < 120_000  # kB
