"""Whether probes tell what a machine does: `python -m benchmarks.probes [RULE...]`.

Every hypothesis of every rule is computed in NumPy, written apart from the emulator, at every size that the probes
have, and `prove` judges the results. Told: it is the answer, or one of those that make the same of that form. Among
several: with others that the form cannot tell apart. Missed: neither.
"""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np

from halfwise.emulation.probes import PROBES, Form
from halfwise.emulation.probes.judge import judged
from halfwise.emulation.profiles.hypotheses import hypotheses_of
from tests.support.simulated_gpu import RULES, simulated


def answer(form: Form, hypothesis: str) -> str:
    made = simulated(form, hypothesis)
    if made is None:
        return "not simulated"
    with np.errstate(all="ignore"):
        told = judged(form, [[made.astype(np.float16)]], {})
    if told.status == "loose" or hypothesis not in told.hypotheses:
        return "missed"
    return "told" if told.status == "proven" else "among several"


def main() -> None:
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
