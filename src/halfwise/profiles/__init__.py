"""The numeric profiles: what a target's kernels round, accumulate in and fuse. docs/numerics.md says what is proven."""

from __future__ import annotations

from halfwise.errors import InputError
from halfwise.profiles.cuda import CUDA_KERNELS, CUDA_LOOSE
from halfwise.profiles.profile import Kernel, Profile
from halfwise.profiles.tensorrt import TENSORRT_KERNELS

__all__ = [
    "ORT_CUDA",
    "ORT_CUDA_UNFUSED",
    "PROFILES",
    "STRICT",
    "TENSORRT",
    "Kernel",
    "Profile",
    "profile_named",
    "worst_case_profiles",
]

STRICT = Profile("strict")
ORT_CUDA_UNFUSED = Profile("ort-cuda-unfused", kernels=CUDA_KERNELS, loose=CUDA_LOOSE, spread=0.05)
ORT_CUDA = Profile("ort-cuda", kernels=CUDA_KERNELS, loose=CUDA_LOOSE, fusion="ort", spread=0.1)
TENSORRT = Profile("tensorrt", kernels=TENSORRT_KERNELS, fusion="tensorrt", spread=0.3, inferred=True)

PROFILES = {profile.name: profile for profile in (STRICT, ORT_CUDA, ORT_CUDA_UNFUSED, TENSORRT)}


def profile_named(name: str) -> Profile:
    if name not in PROFILES:
        raise InputError(f"there is no profile {name!r}; known are {', '.join(PROFILES)}")
    return PROFILES[name]


def worst_case_profiles(name: str) -> tuple[Profile, ...]:
    """The profiles that a target judged under `name` may meet: fusions may or may not fire."""
    profile = profile_named(name)
    if profile is ORT_CUDA:
        return (ORT_CUDA, ORT_CUDA_UNFUSED, STRICT)
    return (profile,) if profile is STRICT else (profile, STRICT)
