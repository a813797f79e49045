"""python -m tools.fuzz --minutes 10 --seed 0 --verbs scan,fix"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tools.fuzz.attacks import ATTACKS
from tools.fuzz.campaign import Campaign, recipes
from tools.fuzz.child import Child


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__)
    options.add_argument("--minutes", type=float, default=1.0)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--verbs", default="", help=f"some of {', '.join(ATTACKS)}; default: all")
    options.add_argument("--cases", action="store_true", help="ONNX's own node cases are seeds, too")
    options.add_argument("--seconds", type=float, default=30.0, help="limit of one run")
    options.add_argument("--out", type=Path, default=None, help="folder for the findings")
    given = options.parse_args()
    attacks = [ATTACKS[name] for name in given.verbs.split(",") if name] or list(ATTACKS.values())
    campaign = Campaign(Child(given.seconds), lambda text: print(text, flush=True))
    try:
        campaign.run(recipes(attacks, given.seed, cases=given.cases), time.monotonic() + 60 * given.minutes)
    except KeyboardInterrupt:
        pass
    finally:
        campaign.child.close()
    print("\n".join(campaign.table()))
    for finding in campaign.findings.values() if given.out is not None else ():
        finding.write(given.out)
    return 1 if campaign.findings else 0


if __name__ == "__main__":
    sys.exit(main())
