"""The numeric profiles: what a target's kernels round, accumulate in and fuse. docs/numerics.md says what is proven."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from halfwise.core.errors import InputError
from halfwise.core.targets import STRICT_PROFILE
from halfwise.emulation.profiles.fusion import FusionRule
from halfwise.emulation.profiles.kernel_set import EngineKernel, KernelSet
from halfwise.emulation.profiles.learned import learned_profile
from halfwise.emulation.profiles.machine import read_machine
from halfwise.emulation.profiles.narrow_sums import NARROW_SUMS
from halfwise.emulation.profiles.profile import Kernel, Profile
from halfwise.emulation.profiles.shipped import ShippedFusions, ShippedKernels, is_loose
from halfwise.emulation.profiles.spreads import LOOSE_SPREADS, SPREADS
from halfwise.emulation.profiles.tensorrt import TENSORRT_KERNELS
from halfwise.emulation.profiles.wide import WIDE_RULE

__all__ = [
    "ENGINE",
    "LEARNED",
    "ORT_CUDA",
    "ORT_CUDA_UNFUSED",
    "PROFILES",
    "SPREADS",
    "STRICT",
    "TENSORRT",
    "TENSORRT_FP16_SUMS",
    "WIDE",
    "EngineKernel",
    "Kernel",
    "Profile",
    "engine_profile",
    "profile_named",
    "worst_case_profiles",
]

STRICT = Profile(STRICT_PROFILE, apart=True)
WIDE = Profile("wide", fusion=WIDE_RULE, beside=(STRICT,))  # judges every decision beside all others


def _ort_cuda(name: str, fusion: str | FusionRule, *beside: Profile) -> Profile:
    return Profile(name, ShippedKernels(), is_loose, fusion, SPREADS[name], LOOSE_SPREADS[name], beside=beside)


# Fusions may or may not fire, so a profile that has some judges together with those that have none.
ORT_CUDA_UNFUSED = _ort_cuda("ort-cuda-unfused", "", STRICT)
ORT_CUDA = _ort_cuda("ort-cuda", ShippedFusions(), ORT_CUDA_UNFUSED, STRICT)
TENSORRT = Profile(
    "tensorrt",
    kernels=TENSORRT_KERNELS,
    fusion="tensorrt",
    spread=0.3,
    inferred=True,
    beside=(STRICT,),
    by_engine=True,
)
# Only by name: products and convolutions that accumulate in FP16, as TensorRT may choose tactics that do.
TENSORRT_FP16_SUMS = Profile(
    "tensorrt-fp16-accumulate",
    kernels={**TENSORRT_KERNELS, **NARROW_SUMS},
    spread=TENSORRT.spread,
    inferred=True,
    beside=(TENSORRT, STRICT),
    by_engine=True,
)

PROFILES = {
    profile.name: profile for profile in (STRICT, ORT_CUDA, ORT_CUDA_UNFUSED, TENSORRT, TENSORRT_FP16_SUMS, WIDE)
}

LEARNED = ".json"  # how the name of a learned profile ends
ENGINE = "tensorrt (this engine's kernels)"


def engine_profile(kernels: Iterable[EngineKernel], reverted: Iterable[str] = ()) -> Profile:
    """The profile of one engine: what its kernels say of the nodes that they compute; all others as in `strict`.

    `reverted`: nodes that were to stay in FP32 and that it runs in FP16 all the same.
    """
    return Profile(
        ENGINE,
        fusion=KernelSet(tuple(kernels)),
        spread=TENSORRT.spread,
        inferred=True,
        reverted=frozenset(reverted),
    )


def profile_named(name: str) -> Profile:
    """One that is built in, or one that was learned: the name is then the file that `halfwise prove` wrote."""
    if name in PROFILES:
        return PROFILES[name]
    if name.endswith(LEARNED):
        return learned_profile(name, read_machine(Path(name)), STRICT)
    raise InputError(
        f"there is no profile {name!r}; known are {', '.join(PROFILES)}, and files that `halfwise prove` wrote"
    )


def worst_case_profiles(name: str) -> tuple[Profile, ...]:
    """The profiles that a target judged under `name` may meet."""
    profile = profile_named(name)
    return (profile, *profile.beside)
