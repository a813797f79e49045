"""Runs every operator form on the GPU and keeps its results: `python -m benchmarks.gpu.collect_operators FOLDER`."""

from __future__ import annotations

import json
import sys
import time
import zlib
from pathlib import Path

import numpy as np

from benchmarks.gpu.cuda import cuda_session, half, machine, placement, prepare
from halfwise.emulation.probes import FORMS
from halfwise.emulation.probes.joined import typed_form


def main() -> None:
    folder = Path(sys.argv[1])
    prepare()
    raw: dict[str, np.ndarray] = {}
    about: dict[str, dict[str, object]] = {}
    started = time.perf_counter()
    for form in FORMS:
        entry: dict[str, object] = {}
        try:
            proto = typed_form(form)
            session = cuda_session(proto, fused=form.fused)
            feed = half(session, form.feed())
            results = session.run(None, feed)
            entry["inputs"] = zlib.crc32(b"".join(feed[name].tobytes() for name in sorted(feed)))
            for index, (value, array) in enumerate(zip(session.get_outputs(), results, strict=True)):
                raw[f"{form.name}|{index}"] = array
                entry.setdefault("types", []).append(value.type)  # type: ignore[attr-defined]
            again = cuda_session(proto, fused=form.fused, search="HEURISTIC").run(None, feed)
            for index, (first, second) in enumerate(zip(results, again, strict=True)):
                if first.tobytes() != second.tobytes():
                    raw[f"{form.name}|{index}|heuristic"] = second
            entry["placement"] = placement(proto, feed, fused=form.fused)
        except Exception as error:
            entry["error"] = str(error)[:300]
        about[form.name] = entry
    np.savez_compressed(folder / "operators.npz", **raw)  # type: ignore[arg-type]
    document = {"machine": machine(), "seconds": time.perf_counter() - started, "forms": about}
    (folder / "operators.json").write_text(json.dumps(document, indent=1), encoding="utf-8")
    failed = {name: entry["error"] for name, entry in about.items() if "error" in entry}
    print(f"{len(about)} forms, {len(failed)} failed, {document['seconds']:.0f} s")
    for name, why in failed.items():
        print("failed:", name, why)


if __name__ == "__main__":
    main()
