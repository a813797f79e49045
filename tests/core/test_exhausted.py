"""What libraries say where memory is out, or the disk is full: protobuf's met in a process that has none left."""

from __future__ import annotations

import errno
import importlib.abc
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf.message import DecodeError

from halfwise.core.errors import MissingBackend
from halfwise.core.exhausted import not_loaded, out_of_memory, ran_short
from halfwise.model.inputs.audio import read_sound
from halfwise.verbs.torch.need import need_torch

WRITES = """
import resource, onnx
from halfwise.core.exhausted import out_of_memory

tensor = onnx.TensorProto(raw_data=bytes(100 << 20))
with open("/proc/self/statm") as pages:
    used = int(pages.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (50 << 20),) * 2)
try:
    tensor.SerializeToString()
except Exception as error:
    print(out_of_memory(error))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")
def test_a_message_that_no_memory_is_left_to_write() -> None:
    assert subprocess.run([sys.executable, "-c", WRITES], capture_output=True, text=True).stdout == "True\n"


def test_a_message_that_no_memory_is_left_to_read() -> None:
    told = "Error parsing message with type 'onnx.NodeProto'"
    assert out_of_memory(DecodeError(f"{told}: Arena alloc failed"))
    assert not out_of_memory(DecodeError(told))
    assert not out_of_memory(ValueError("Arena alloc failed"))
    assert out_of_memory(MemoryError())


def test_a_mapping_that_no_address_is_left_for_is_a_lack_of_memory() -> None:
    assert out_of_memory(OSError(errno.ENOMEM, "Cannot allocate memory"))
    assert not out_of_memory(OSError(errno.ENOENT, "No such file or directory"))


def test_an_optional_library_that_finds_no_memory_is_not_told_as_missing() -> None:
    torn = ImportError("libtorch_cpu.so: failed to map segment from shared object")
    assert isinstance(not_loaded(torn, "install it"), MemoryError)
    gone = not_loaded(ModuleNotFoundError("No module named 'torch'", name="torch"), "install it")
    assert isinstance(gone, MissingBackend) and str(gone) == "install it"


@pytest.mark.parametrize("load", [need_torch, lambda: read_sound(Path("a.wav"), 8000)])
def test_libraries_that_find_no_memory(load: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    class NoMemory(importlib.abc.MetaPathFinder):
        def find_spec(self, name: str, path: object, target: object = None) -> None:
            if name in ("torch", "soundfile"):
                raise ImportError(f"lib{name}.so: failed to map segment from shared object")

    for name in ("torch", "soundfile"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "meta_path", [NoMemory(), *sys.meta_path])
    with pytest.raises(MemoryError, match="failed to map"):
        load()


@pytest.mark.parametrize(
    ("told", "short"),
    [
        (f"OSError: {OSError(28, 'No space left on device')}", True),
        ("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Failed to allocate memory for requested buffer of size 4", True),
        ("IBuilder::buildSerializedNetwork: Error Code 2: OutOfMemory (Requested size was 23472639 bytes.)", True),
        ("Unexpected exception std::bad_alloc", True),
        (f"MemoryError: {MemoryError('Unable to allocate 8.00 GiB for an array')}", True),
        ("[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for Det(22)", False),
        ("Could not find any implementation for node /a.", False),
    ],
)
def test_a_lack_is_told_from_an_answer_about_the_model(told: str, short: bool) -> None:
    assert ran_short(told) is short
