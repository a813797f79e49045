"""The search: within the tolerance, nothing kept that is not needed, few runs, and the same answer when resumed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from halfwise.core.tolerance import Bound, Tolerance
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.ort import Answer, Session
from halfwise.emulation.stepper import Stepper
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.journal import Journal
from halfwise.search.judge import Judge, Question
from halfwise.search.noise import Noise
from halfwise.search.prune import Pruning
from halfwise.search.run_counter import RunCounter
from halfwise.search.search import Search
from halfwise.verbs.fix.fix import fix
from tests.models.build import model as build
from tests.models.build import node as node_of
from tests.models.build import value, weight
from tests.models.zoo import SHAPES, ZooModel, cnn_tiny_weights, detr_head, encoder, norm_log_head
from tests.support.rescaled import normal

FAILING = sorted(name for name, build in SHAPES.items() if build().fails)


def searched(zoo: ZooModel, journal: Journal | None = None) -> Search:
    model = load(zoo.model)
    sites, emulator = Sites(model), Emulator()
    bounds = (Bound.of("*", "rel_l2", zoo.tolerance), Bound.of("*", "exact", 0.999))
    names = {spec.name for spec in model.inputs}
    feeds = [{k: v for k, v in feed.items() if k in names} for feed in zoo.inputs[:3]]
    judge = Judge(sites, emulator, Question(Tolerance(bounds)), feeds)
    return Search(sites, judge, Stepper(emulator), journal or Journal())


def passes(search: Search) -> float:
    return search.judge.counter.passes(len(search.judge.feeds))


def assert_one_minimal(search: Search, keep: frozenset[ir.Node], margin: frozenset[ir.Node]) -> None:
    """Each node measured anew on the whole model, not by the search's own short cut."""
    assert search.judge.measure(search.assignment(keep)).ratio <= 1.0
    for node in keep:
        without = search.judge.measure(search.assignment(keep - {node}))
        if node in margin:
            assert without.unseen_bound > search.target_ratio, f"{node.name} is not needed"
        else:
            assert without.ratio > 1.0, f"{node.name} is not needed"


@pytest.mark.parametrize("name", FAILING)
def test_every_failing_shape_is_met_and_one_minimal(name: str) -> None:
    search = searched(SHAPES[name]())
    solution = search.run()
    assert solution.found.unseen_bound <= 1.0
    assert solution.keep
    margin = frozenset(kept.node for kept in solution.kept if kept.why == "margin")
    assert_one_minimal(search, solution.keep, margin)
    assert {kept.node for kept in solution.kept} == solution.keep


@pytest.mark.parametrize(
    ("zoo", "most_nodes", "most_runs"),
    [
        (encoder(layers=2), 6, 15),
        (detr_head(), 24, 25),
        (cnn_tiny_weights("tensors"), 3, 15),
        (cnn_tiny_weights("channels"), 3, 15),
        (norm_log_head(), 9, 25),
    ],
    ids=lambda value: value.name if isinstance(value, ZooModel) else "",
)
def test_few_nodes_in_few_runs(zoo: ZooModel, most_nodes: int, most_runs: float) -> None:
    search = searched(zoo)
    solution = search.run()
    assert solution.found.unseen_bound <= 1.0
    assert len(solution.keep) <= most_nodes
    assert passes(search) <= most_runs
    assert_one_minimal(search, solution.keep, frozenset(k.node for k in solution.kept if k.why == "margin"))


@pytest.mark.parametrize("name", ["healthy_mlp", "global_average_pool_large"])
def test_a_healthy_model_keeps_nothing_and_costs_two_runs(name: str) -> None:
    search = searched(SHAPES[name]())
    solution = search.run()
    assert solution.keep == frozenset()
    assert solution.kept == ()
    assert passes(search) == pytest.approx(2.0)


def test_runs_count_every_execution(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted where the whole model runs: a measurement asks its session for all inputs at once, not the judge."""
    search = searched(SHAPES["layer_norm_overflow"]())
    ran = 0.0
    original = Session.answers

    def counted(session: Session, feeds: Sequence[Mapping[str, Any]]) -> Iterator[Answer]:
        nonlocal ran
        for answer in original(session, feeds):
            ran += 1 / len(search.judge.feeds)
            yield answer

    monkeypatch.setattr(Session, "answers", counted)
    search.run()
    stepped = search.stepper.executed / len(search.sites.all) / len(search.judge.feeds)
    assert passes(search) == pytest.approx(ran + stepped)


def test_an_interrupted_search_goes_on_to_the_same_answer(tmp_path: Path) -> None:
    zoo = detr_head()
    whole = searched(zoo)
    wanted = whole.run()
    path = tmp_path / "journal.jsonl"
    steps = 0

    def stop(text: str) -> None:
        nonlocal steps
        steps += 1
        if steps == 4:
            raise KeyboardInterrupt

    broken = replace(searched(zoo, Journal(path, "q")), notify=stop)
    with pytest.raises(KeyboardInterrupt):
        broken.run()
    resumed = searched(zoo, Journal(path, "q"))
    before = resumed.stepper.executed
    found = resumed.run()
    assert {n.name for n in found.keep} == {n.name for n in wanted.keep}
    assert resumed.stepper.executed - before < whole.stepper.executed  # what was done is not done again
    # ... and still counted, with the FP32 answers that had to be computed anew.
    assert passes(resumed) == pytest.approx(passes(whole) + 1)


def test_a_culprit_that_the_noise_model_does_not_name_is_found() -> None:
    zoo = SHAPES["subnormal_weights"]()
    search = searched(zoo)
    answer = searched(zoo).run().keep
    names = {n.name for n in answer}
    # A model blind to the true culprit, and sure of another.
    others = [s.node for s in search.sites.free if s.name not in names]
    pieces = tuple(Noise(frozenset({n}), 1.0 / (i + 1), False) for i, n in enumerate(others))
    solution = search.run(noise=replace(search.noise(), pieces=pieces))
    assert solution.found.unseen_bound <= 1.0
    assert {n.name for n in solution.keep} == names


def test_what_the_noise_model_names_is_halved_although_the_runs_are_spent() -> None:
    """Of 218 branches that lose digits alike the model takes each next one for far less: its first sets are too small,
    and all that it names is nearly everything."""
    model, feeds = (
        load(branches(18, 200)),
        [{"x": np.linspace(0.5, 1.0, 16, dtype=np.float32) + s} for s in (0.0, 0.01)],
    )
    sites, emulator = Sites(model), Emulator()
    plain = Judge(sites, emulator, Question(Tolerance((Bound.of("*", "rel_l2", 1.0),))), feeds)
    allowed = plain.measure(Assignment.all_narrow(sites)).unseen_bound / 2.5
    question = Question(Tolerance((Bound.of("*", "rel_l2", allowed),)))
    judge = Judge(sites, emulator, question, feeds, counter=RunCounter(saving=0))
    search = Search(sites, judge, Stepper(emulator))
    pairs = [
        frozenset(n for n in (site.node for site in sites.free) if n.name in (f"n_s{i}", f"n_d{i}")) for i in range(218)
    ]
    pieces = tuple(Noise(pair, 1 / 30 if i < 18 else 0.04 * 0.9 ** (i - 18), False) for i, pair in enumerate(pairs))
    solution = search.run(noise=replace(search.noise(), pieces=pieces), prune=False)
    assert solution.found.unseen_bound <= 1.0
    assert len(solution.keep) < 0.75 * len(frozenset().union(*pairs))


@pytest.mark.parametrize(("loud", "quiet", "saving", "most"), [(2, 22, 12, 0.9), (2, 90, 30, 0.2)], ids=["few", "many"])
def test_runs_are_left_to_act_upon_what_nodes_alone_told(loud: int, quiet: int, saving: int, most: float) -> None:
    """All but two branches bear FP16. To revert each node by itself would take all runs that there are; of many nodes
    some are tried, some go, and the next ones are tried."""
    model = load(branches(loud, quiet))
    feeds = [{"x": np.linspace(0.5, 1.0, 16, dtype=np.float32) + s} for s in (0.0, 0.01)]
    sites, emulator, counter = Sites(model), Emulator(), RunCounter(saving=saving)
    everything = frozenset(site.node for site in sites.free)
    kept_in = [f"n_{step}{branch}" for branch in range(loud) for step in "sd"]
    needed = frozenset(node for node in everything if node.name in kept_in)
    plain = Judge(sites, emulator, Question(Tolerance((Bound.of("*", "rel_l2", 1.0),))), feeds)
    allowed = 1.1 * plain.measure(Assignment.all_narrow(sites, needed)).unseen_bound
    question = Question(Tolerance((Bound.of("*", "rel_l2", allowed),)))
    search = Search(sites, Judge(sites, emulator, question, feeds, counter=counter), Stepper(emulator))
    kept, _ = Pruning(search.sets, 1.0, {}, ()).run(everything)
    assert len(kept) < most * len(everything) and search.measure(kept).unseen_bound <= 1.0
    assert counter.samples <= counter.most(len(feeds)) + len(feeds)


def branches(loud: int, quiet: int) -> onnx.ModelProto:
    """(x + c) - c, many times beside each other."""
    names = [f"{i}" for i in range(loud + quiet)]
    nodes = [
        node for i in names for node in (node_of("Add", f"x c{i}", f"s{i}"), node_of("Sub", f"s{i} c{i}", f"d{i}"))
    ]
    nodes.append(node_of("Concat", " ".join(f"d{i}" for i in names), "y", axis=0))
    held = [weight(f"c{i}", np.float32(256.0 if int(i) < loud else 64.0)) for i in names]
    return build(nodes, [value("x", shape=(16,))], [value("y", shape=(16 * len(names),))], held)


def test_the_curve_goes_from_all_fp16_down_to_the_noise_floor() -> None:
    search = searched(detr_head())
    points = search.curve()
    assert points[0].nodes == 0
    assert points[0].measured == pytest.approx(search.measure(frozenset()).ratio)
    assert [p.nodes for p in points] == sorted(p.nodes for p in points)
    assert points[-1].measured is not None and points[-1].measured < 0.05
    assert points[-1].measured < points[0].measured / 20


def test_a_node_beside_one_that_went_is_tried_once_more() -> None:
    """Two readers of one rounded tensor cancel its error: one of them is needed only while its maker is in FP32."""
    rng = np.random.default_rng(3)
    weights = {"w": rng.standard_normal((12, 12)) / 3, "offset": 60.0, "half": 0.5, "near": 0.4921875}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "product"),
        helper.make_node("Add", ["p", "offset"], ["s"], "shifted"),
        helper.make_node("Mul", ["s", "half"], ["a"], "half"),
        helper.make_node("Mul", ["s", "near"], ["b"], "near"),
        helper.make_node("Sub", ["a", "b"], ["y"], "difference"),
    ]
    values = [numpy_helper.from_array(np.asarray(array, np.float32), name) for name, array in weights.items()]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [6, 12]) for name in "xy")
    graph = helper.make_graph(nodes, "cancels", [x], [y], values)
    model = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    feeds = [{"x": rng.standard_normal((6, 12)).astype(np.float32)} for _ in range(3)]
    sites, emulator = Sites(model), Emulator()
    judge = Judge(sites, emulator, Question(Tolerance((Bound.of("*", "rel_l2", 2e-3),))), feeds)
    search = Search(sites, judge, Stepper(emulator), Journal())
    solution = search.run()
    assert {node.name for node in solution.keep} == {"near", "difference"}
    assert_one_minimal(search, solution.keep, frozenset())


def test_what_overflows_in_an_input_that_was_not_walked_is_told_at_once() -> None:
    """A weight beyond FP16 is clamped, so that plain FP16 does not overflow; with it in FP32 all behind it does, in the
    two loud inputs alone."""
    large = normal(1, 8, 8)
    large[3, 5] = 4e5
    nodes, stream = [node_of("MatMul", "x w1", "a")], "a"
    weights = [weight("w1", large), weight("g", np.ones(8, np.float32)), weight("head", normal(9, 8, 4))]
    for i in range(4):
        nodes += [
            node_of("Add", f"{stream} x", f"s{i}"),
            node_of("LayerNormalization", f"s{i} g", f"n{i}", axis=-1),
            node_of("MatMul", f"n{i} v{i}", f"m{i}"),
            node_of("Add", f"s{i} m{i}", f"t{i}"),
        ]
        weights.append(weight(f"v{i}", normal(i + 2, 8, 8)))
        stream = f"t{i}"
    nodes += [node_of("LayerNormalization", f"{stream} g", "z", axis=-1), node_of("MatMul", "z head", "y")]
    proto = build(nodes, [value("x", shape=(4, 8))], [value("y", shape=(4, 4))], weights)
    inputs = [{"x": normal(20 + number, 4, 8)} for number in range(8)]
    for number, each in enumerate(inputs):
        each["x"][:, 3] = 0.4 if number in (4, 5) else 0.02
    said: list[str] = []
    result = fix(proto, inputs, repairs="none", max_runs=60, notify=lambda text: said.append(str(text)))
    assert result.met and np.isfinite(result.fp16["y"].rel_l2)
    assert sum("attempt" in text for text in said) == 2
