"""The numeric profiles: where a kernel rounds besides at its output. docs/numerics.md says what each promises."""

from __future__ import annotations

from dataclasses import dataclass

from halfwise.errors import InputError

__all__ = ["ORT_CUDA", "PROFILES", "STRICT", "Profile", "profile_named"]


@dataclass(frozen=True)
class Profile:
    """A named set of kernel semantics. `biased_twice` holds operators that round before the bias is added."""

    name: str
    biased_twice: frozenset[str] = frozenset()


STRICT = Profile("strict")
ORT_CUDA = Profile("ort-cuda", biased_twice=frozenset({"Conv"}))

PROFILES = {profile.name: profile for profile in (STRICT, ORT_CUDA)}


def profile_named(name: str) -> Profile:
    if name not in PROFILES:
        raise InputError(f"there is no profile {name!r}; known are {', '.join(PROFILES)}")
    return PROFILES[name]
