"""Cuts this process and its children off from every network: whoever asks for a socket beyond this machine dies."""

from __future__ import annotations

import ctypes
import platform
import sys

__all__ = ["CAN_BE_CUT_OFF", "cut_off"]

_CALLS = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}  # the kernel's number of each, and of `socket`
CAN_BE_CUT_OFF = sys.platform == "linux" and platform.machine() in _CALLS

_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2  # of prctl
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_CALL, _ARCHITECTURE, _FAMILY = 0, 4, 16  # where the kernel tells them
_LOCAL, _ALLOWED, _DEATH = 1, 0x7FFF0000, 0x80000000


class _Step(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("value", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.POINTER(_Step)))


def cut_off() -> None:
    machine, socket = _CALLS[platform.machine()]
    steps = (
        _Step(_LOAD, 0, 0, _ARCHITECTURE),
        _Step(_EQUAL, 0, 4, machine),
        _Step(_LOAD, 0, 0, _CALL),
        _Step(_EQUAL, 0, 2, socket),
        _Step(_LOAD, 0, 0, _FAMILY),
        _Step(_EQUAL, 0, 1, _LOCAL),
        _Step(_RETURN, 0, 0, _ALLOWED),
        _Step(_RETURN, 0, 0, _DEATH),
    )
    program = _Program(len(steps), (_Step * len(steps))(*steps))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) or prctl(_SECCOMP, _FILTER, ctypes.byref(program)):
        raise OSError(ctypes.get_errno(), "the kernel takes no filter")
