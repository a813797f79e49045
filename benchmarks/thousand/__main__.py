"""A thousand models, fixed, run and judged: python -m benchmarks.thousand [--folder F] [--jobs N] [--kinds KIND ...].

Each graph has a process of its own with a limit of time and memory. What is done is kept in the folder: the same
command goes on where it stopped; --again tries those anew that did not end well.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.contest import machine
from benchmarks.thousand.corpus import corpus, missing
from benchmarks.thousand.graph import Graph, in_the_tenth
from benchmarks.thousand.table import GOOD, causes, ends, share_good
from benchmarks.thousand.trial import END, FIRST, UNRUN, Row, stage_of, try_graph

__all__ = ["main", "parser"]

FORK = multiprocessing.get_context("fork")
PACKAGES = ("onnxruntime", "halfwise", "torch", "transformers", "timm", "diffusers", "torch.onnx")


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("HALFWISE_CONTAIN", "0")  # each graph has a process of its own already
    graphs = corpus(made_from_code=not options.no_packages)
    graphs = [graph for graph in graphs if not options.kinds or any(kind in graph.kind for kind in options.kinds)]
    graphs = [graph for graph in graphs if not options.names or any(name in graph.name for name in options.names)]
    if options.tenth:
        graphs = in_the_tenth(graphs)
    waiting = [graph for graph in graphs if _is_open(options.folder / graph.name, options.again)]
    print(f"{len(graphs)} graphs, {len(waiting)} to try", file=sys.stderr, flush=True)
    _import(waiting)
    for done, row in enumerate(_rows(waiting, options), 1):
        print(
            f"{done}/{len(waiting)} {row.name}: {row.end} {row.seconds:.1f} s {row.cause}", file=sys.stderr, flush=True
        )
    rows = [Row.load(path) for graph in graphs if (path := options.folder / graph.name / END).exists()]
    print(f"{machine()}; target {options.target}\n\n{ends(rows)}\n\n{causes(rows)}\n\n{share_good(rows):.2%} end well")
    return 0 if rows else 1


def _is_open(folder: Path, again: bool) -> bool:
    if not (folder / END).exists():
        return True
    return again and Row.load(folder / END).end not in (*GOOD, "not made", UNRUN)


def _import(graphs: Sequence[Graph]) -> None:
    """Once, for all children."""
    wanted = {name for graph in graphs for name in graph.needs} | {"onnxruntime", "halfwise"}
    for name in PACKAGES:
        if name.split(".")[0] in wanted and not missing([name.split(".")[0]]):
            importlib.import_module(name)
    if "torch" in wanted:
        import torch

        torch.set_num_threads(1)


def _rows(graphs: Sequence[Graph], options: argparse.Namespace) -> Iterator[Row]:
    running: list[tuple[Graph, Any, float]] = []
    queue = list(reversed(graphs))
    while queue or running:
        while queue and len(running) < options.jobs:
            graph = queue.pop()
            (options.folder / graph.name / END).unlink(missing_ok=True)
            child = FORK.Process(target=_child, args=(graph, options))
            child.start()
            running.append((graph, child, time.monotonic()))
        time.sleep(0.02)
        for entry in list(running):
            graph, child, started = entry
            late = time.monotonic() - started > options.limit
            if child.is_alive() and not late:
                continue
            running.remove(entry)
            yield _ended(graph, child, options, late)


def _ended(graph: Graph, child: Any, options: argparse.Namespace, late: bool) -> Row:
    folder = options.folder / graph.name
    if late and child.is_alive():
        child.kill()
    child.join()
    if not (folder / END).exists():
        made = (folder / "model.onnx").exists()
        stage = stage_of(folder)
        end = ("stopped" if late else "process died") if made else "not made"
        end = UNRUN if stage.startswith(FIRST) else end
        cause = f"{stage}, {f'after {options.limit:.0f} s' if late else f'exit code {child.exitcode}'}"
        folder.mkdir(parents=True, exist_ok=True)
        Row(graph.name, graph.kind, end, cause, seconds=options.limit if late else 0.0).save(folder)
    return Row.load(folder / END)


def _child(graph: Graph, options: argparse.Namespace) -> None:
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (options.gigabytes << 30,) * 2)
    folder = options.folder / graph.name
    try_graph(graph, folder, options.target, options.provider).save(folder)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.thousand", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--folder", type=Path, default=Path("thousand"), help="where models and rows are kept")
    made.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    made.add_argument("--limit", type=float, default=180.0, help="seconds for one graph")
    made.add_argument("--gigabytes", type=int, default=12, help="address space for one graph")
    made.add_argument("--target", default="onnx", help="what fix is asked for")
    made.add_argument("--provider", default="CPUExecutionProvider", help="what of ONNX Runtime runs the typed models")
    made.add_argument("--kinds", nargs="*", default=(), help="only kinds with such a word")
    made.add_argument("--names", nargs="*", default=(), help="only graphs with such a word in their name")
    made.add_argument("--tenth", action="store_true", help="every tenth of each kind")
    made.add_argument("--no-packages", action="store_true", help="without what other packages make")
    made.add_argument("--again", action="store_true", help="try those anew that did not end well")
    return made


if __name__ == "__main__":
    sys.exit(main())
