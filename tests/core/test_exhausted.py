"""Protobuf's errors where memory is out, met in a process that has none left."""

from __future__ import annotations

import subprocess
import sys

import pytest
from google.protobuf.message import DecodeError

from halfwise.core.exhausted import out_of_memory

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
