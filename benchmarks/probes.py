"""Whether probes tell what a machine does: `python -m benchmarks.probes [RULE...]`, or `... machines [COUNT [SEED]]`.

Every hypothesis of every rule is computed in NumPy, written apart from the emulator, at every size that the probes
have, and `prove` judges the results. Told: it is the answer, or one of those that make the same of that form. Among
several: with others that the form cannot tell apart. Missed: neither. `machines` are whole ones, whose hypotheses are
drawn at random, one for each rule; the seed is fresh unless it is given.
"""

from __future__ import annotations

import secrets
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

from halfwise.emulation.probes import PROBES, Form
from halfwise.emulation.probes.judge import judged
from halfwise.emulation.profiles.hypotheses import hypotheses_of
from halfwise.verbs.prove import prove
from tests.support.simulated_gpu import RULES, SimulatedGpu, drawn, simulated


def answer(form: Form, hypothesis: str) -> str:
    made = simulated(form, hypothesis)
    if made is None:
        return "not simulated"
    with np.errstate(all="ignore"):
        told = judged(form, [[made.astype(np.float16)]], {})
    if told.status == "loose" or hypothesis not in told.hypotheses:
        return "missed"
    return "told" if told.status == "proven" else "among several"


def machine(seed: int) -> Counter[str]:
    """What `prove` writes of a machine whose roundings were drawn: those of single operators, or those of fused ones,
    which are simulated upon operators that add in FP32."""
    fused = seed % 2 == 1
    choice = {
        rule: "wide" if fused is not rule.startswith("fusion:") and "wide" in hypotheses_of(rule) else name
        for rule, name in drawn(seed).items()
    }
    forms = [
        form
        for form in PROBES
        if form.rule in choice and (fused or not form.fused) and simulated(form, choice[form.rule]) is not None
    ]
    with tempfile.TemporaryDirectory() as folder:
        found = prove(SimulatedGpu(choice, forms), out=Path(folder, "machine.json"), forms=forms).machine
    told: Counter[str] = Counter()
    for form in found.forms:
        right = form.status != "loose" and choice[form.rule] in form.hypotheses
        told["missed" if not right else "told" if form.status == "proven" else "among several"] += 1
        if not right:
            print(f"missed: {form.name}, drawn {choice[form.rule]}, {form.status}: {', '.join(form.hypotheses)}")
    return told


def machines(count: int, seed: int) -> None:
    total: Counter[str] = Counter()
    for each in range(seed, seed + count):
        found = machine(each)
        total += found
        print(f"machine {each}: {_told(found)}", flush=True)
    print(f"all: {_told(total)}")


def main() -> None:
    if sys.argv[1:2] == ["machines"]:
        count, seed = (*map(int, sys.argv[2:]), *(5, secrets.randbits(31))[len(sys.argv) - 2 :])
        machines(count, seed)
        return
    total: Counter[str] = Counter()
    for rule in sys.argv[1:] or RULES:
        found = Counter(answer(form, name) for form in PROBES if form.rule == rule for name in hypotheses_of(rule))
        total += found
        print(f"{rule}: {_told(found)}", flush=True)
    print(f"all: {_told(total)}")


def _told(found: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in found.most_common())


if __name__ == "__main__":
    main()
