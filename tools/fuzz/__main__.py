"""python -m tools.fuzz --minutes 10 --seed 0 --verbs scan,fix --processes 4"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from tools.fuzz.attacks import ATTACKS
from tools.fuzz.campaign import Campaign, Told, recipes
from tools.fuzz.child import Child

_FILES = "files"  # every attack on a file that is no model


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__)
    options.add_argument("--minutes", type=float, default=1.0)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--verbs", default="", help=f"some of {_FILES}, {', '.join(ATTACKS)}; default: all")
    options.add_argument("--cases", action="store_true", help="ONNX's own node cases are seeds, too")
    options.add_argument("--seconds", type=float, default=30.0, help="limit of one run")
    options.add_argument("--processes", type=int, default=1)
    options.add_argument("--out", type=Path, default=None, help="folder for the findings")
    given = options.parse_args()
    run = partial(_run, _names(given.verbs), given.cases, given.seconds, time.monotonic() + 60 * given.minutes)
    if given.processes == 1:
        told = run(str(given.seed))
    else:
        with ProcessPoolExecutor(given.processes) as processes:
            seeds = [f"{given.seed}/{process}" for process in range(given.processes)]
            told = sum(processes.map(run, seeds), Told())
    print("\n".join(told.table()))
    for finding in told.findings.values() if given.out is not None else ():
        finding.write(given.out)
    return 1 if told.findings else 0


def _names(verbs: str) -> list[str]:
    files = [name for name, attack in ATTACKS.items() if not attack.of_model]
    named = [name for name in verbs.split(",") if name] or list(ATTACKS)
    return [each for name in named for each in (files if name == _FILES else [name])]


def _run(names: Sequence[str], cases: bool, seconds: float, until: float, seed: str) -> Told:
    campaign = Campaign(Child(seconds), lambda text: print(text, flush=True))
    try:
        campaign.run(recipes([ATTACKS[name] for name in names], seed, cases=cases), until)
    except KeyboardInterrupt:
        pass
    finally:
        campaign.child.close()
    return campaign.told


if __name__ == "__main__":
    sys.exit(main())
