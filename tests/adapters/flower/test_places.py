"""Free places in Flower: the equation, faults, restarts, and strategies that cannot have them."""

from __future__ import annotations

import math
import resource
import signal
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: run .ci/flower, or install the extra 'flower'")

from fake_grid import Clock, fleet, model, shift
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAdam, FedAvg, FedAvgM, FedMedian
from test_grid import Killed, selecting

from fedroster import RoundRobin
from fedroster.adapters.flower import ContextOptions, FreePlaces, RoundRules, UpdateMemory
from fedroster.aggregation.memory import UpdateTable
from fedroster.core.errors import ConfigurationError, FolderError, StateFileError
from fedroster.core.problem import Status

sys.path.append(str(Path(__file__).parents[2]))
from weighing import Drawn

NODES, PLACES = 7, 3


def moved(base: float, number: int) -> float:
    """A node's update depends on the model that it was sent."""
    return math.sin(50.0 * base + number)


def answer(number: int, content) -> None:
    shift(moved(float(content["arrays"]["w"].numpy()[0, 0]) - 1.0, number), content)


PLAIN = {f"n{number:02d}": {"fate": ("ok",)} for number in range(NODES)}


def nodes_of(**fates):
    nodes = fleet(NODES)
    for number, node in enumerate(nodes.values()):
        node.delay_s = 1.0 + 0.37 * number
        node.fate = (partial(answer, number),)
        node.metrics = {"num-examples": 10 + 7 * number}
        for name, value in fates.get(node.name, {}).items():
            setattr(node, name, value)
    return nodes


def filling(nodes, strategy=None, clock=None, **options):
    strategy = FedAvg(fraction_evaluate=0.0) if strategy is None else strategy
    options = {"places": FreePlaces(), "contexts": ContextOptions(fresh_s=1e9), "m": PLACES} | options
    return selecting(nodes, strategy=strategy, clock=clock, **options)


def killed(nodes, sleeps, **options):
    """A run that is killed in its so many-th pause."""
    grid, fake, reports = filling(nodes, clock=Dying(sleeps), **options)
    with pytest.raises(Killed):
        grid.start(model(0.5), num_rounds=10**6)
    return grid, fake, reports


def trainings(fake, sent):
    """To whom messages for training went, and these."""
    for _, message in sent:
        if message.metadata.message_type == "train":
            yield fake.nodes[message.metadata.dst_node_id].name, message


def formula(fake, reports, places, memory):
    """The model of the equation, from who answered when and what it was sent."""
    sent = {}
    for name, message in trainings(fake, fake.sent):
        arrays = {key: array.numpy() for key, array in message.content["arrays"].items()}
        sent.setdefault(name, []).append(arrays)
    current = {key: array.numpy() for key, array in model(0.5).items()}
    versions = [current]
    table = UpdateTable(UpdateMemory(share=0.0) if memory is None else memory, current, NODES)
    samples, buffer, turns = {}, [], dict.fromkeys(range(NODES), 0)
    for report in reports:
        (name,) = report.clients
        client = int(name[1:])
        base = sent[name][turns[client]]
        by, turns[client] = moved(float(base["w"][0, 0]), client), turns[client] + 1
        version = int(np.argmin([np.abs(each["w"] - base["w"]).max() for each in versions]))
        assert np.allclose(versions[version]["w"], base["w"], rtol=1e-9)
        samples[client] = 10.0 + 7.0 * client
        buffer.append((client, version, {"w": np.full((3, 2), 1.0 + by), "b": np.full(2, 1.0 - by)}))
        if len(buffer) == places.buffer:
            clients = np.array([each for each, *_ in buffer])
            counts = np.array([samples[each] for each in clients]) / np.mean(list(samples.values()))
            stale = np.array([len(versions) - 1 - at for _, at, _ in buffer])
            updates = {key: np.stack([each[key] for *_, each in buffer]) for key in current}
            step = table.step(
                clients,
                updates,
                np.array([samples[each] for each in clients]),
                weights=counts * (1.0 + stale) ** -places.discount,
                shares=np.full(len(buffer), 1.0 / len(buffer)),
            )
            current = {key: (current[key] + len(buffer) / PLACES * step[key]) for key in current}
            versions.append(current)
            buffer = []
    return current


@pytest.mark.parametrize("memory", [None, UpdateMemory(), UpdateMemory(share=0.5, unknown="zero")])
@pytest.mark.parametrize("places", [FreePlaces(), FreePlaces(buffer=3, discount=0.5)])
def test_each_full_buffer_takes_the_step_of_the_equation(memory, places) -> None:
    grid, fake, reports = filling(nodes_of(), places=places, memory=memory)
    found = grid.start(model(0.5), num_rounds=9)
    assert [report.num_in_time for report in reports] == [1] * 9 * PLACES
    expected = formula(fake, reports, places, memory)
    for key in ("w", "b"):
        np.testing.assert_allclose(found.arrays[key].numpy(), expected[key], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("factor", [1.0, 0.5])
@pytest.mark.parametrize("places", [FreePlaces(), FreePlaces(buffer=3)])
def test_updates_count_as_the_decision_says_and_not_by_samples(places, factor: float) -> None:
    """A node adds 1 to the model that it was sent; the weights of f places that are filled sum to f times a factor."""
    nodes = nodes_of(**PLAIN)
    grid, _, reports = filling(nodes, places=places, policy=Drawn(factor))
    found = grid.start(model(0.5), num_rounds=9)
    assert len(reports) == 9 * PLACES
    np.testing.assert_allclose(found.arrays["w"].numpy(), 0.5 + 9 * factor, rtol=1e-5)


@pytest.mark.parametrize("sleeps", [3, 40, 90])
def test_after_a_kill_updates_count_as_the_decision_said(tmp_path: Path, sleeps: int) -> None:
    nodes, options = nodes_of(**PLAIN), {"policy": Drawn(0.5), "state_dir": tmp_path}
    killed(nodes, sleeps, **options)
    grid, *_ = filling(nodes, **options)
    found = grid.start(model(0.5), num_rounds=10)
    rounds = sum(grid.selector.participation("used").values()) / PLACES
    assert rounds >= 10
    np.testing.assert_allclose(found.arrays["w"].numpy(), 0.5 + 0.5 * rounds, rtol=1e-5)


def test_no_node_waits_for_another() -> None:
    """One node takes a hundred times as long: the others go on and evaluate, and it gets no second job meanwhile."""
    nodes = nodes_of(n00={"delay_s": 1000.0})
    grid, fake, reports = filling(nodes, FedAvg())
    numbers = []
    found = grid.start(model(), num_rounds=20, evaluate_fn=lambda number, arrays: numbers.append(number))
    assert numbers == list(range(21))
    assert list(found.evaluate_metrics_clientapp) == list(found.train_metrics_clientapp) == numbers[1:]
    assert sum(report.clients == ("n00",) for report in reports) <= 1
    assert nodes[100].evaluated == 0  # it is at work from the first round on
    assert fake.clock.now() - 1000.0 < 20 * (PLACES * 3.5 / (PLACES - 1) + 0.3)
    names = [name for name, _ in trainings(fake, fake.sent)]
    counts = grid.selector.participation()
    assert {name: names.count(name) for name in counts} == counts
    assert all(not np.isnan(report.round_s) for report in reports)


def test_faults_free_their_place_and_are_never_used() -> None:
    fates = ("error", "nan", "silent", lambda content: content["metrics"].__setitem__("num-examples", 10**18))
    nodes = nodes_of(**{f"n0{number}": {"fate": (fate,)} for number, fate in enumerate(fates)})
    grid, _, reports = filling(nodes, rules=RoundRules(deadline_s=10.0, give_up_s=25.0))
    found = grid.start(model(), num_rounds=20)
    used = grid.selector.participation("used")
    assert [used[f"n{n:02d}"] for n in range(4)] == [0, 0, 0, 0]
    assert min(used[f"n{n:02d}"] for n in range(4, 7)) > 10
    assert all(np.isfinite(array.numpy()).all() for array in found.arrays.values())
    fates = {report.clients[0]: report.status[report.clients[0]] for report in reports}
    assert fates["n00"] is fates["n01"] is fates["n03"] is Status.FAILED
    assert sum(used.values()) == sum(report.num_in_time for report in reports)


def test_places_wait_where_nobody_is_idle() -> None:
    """As many places as nodes, then more; nodes leave and one comes back."""
    for size in (NODES, 2 * NODES):
        nodes = nodes_of(n05={"fate": ("ok", "gone")}, n06={"fate": ("gone",)})
        grid, _, reports = filling(nodes, m=size)
        grid.start(model(), num_rounds=4)
        assert len(reports) == 4 * size
        assert {report.clients[0] for report in reports[-10:]} == {f"n{n:02d}" for n in range(5)}


class Dying(Clock):
    """A server that is killed in one of its pauses."""

    def __init__(self, sleeps: float) -> None:
        super().__init__()
        self.left = sleeps

    def sleep(self, seconds: float) -> None:
        self.left -= 1
        if not self.left:
            raise Killed
        super().sleep(seconds)


@pytest.mark.parametrize("memory", [None, UpdateMemory()])
@pytest.mark.parametrize("places", [FreePlaces(), FreePlaces(buffer=4, discount=0.5)])
@pytest.mark.parametrize("sleeps", [3, 40, 141, 142, 143])
def test_after_a_kill_model_and_table_are_of_one_step(tmp_path: Path, memory, places, sleeps: int) -> None:
    """What every answer did is in the model once, and the record counts each answer that is in it."""
    nodes = nodes_of()
    options = {"places": places, "memory": memory, "state_dir": tmp_path}
    first, fake, before = killed(nodes, sleeps, **options)
    used = first.selector.participation("used")
    at_work = {name for names in first.selector.open_rounds().values() for name in names}
    last = {name: each for name, each in trainings(fake, fake.sent) if name in at_work}
    second, again, after = filling(nodes, **options)
    assert second.selector.participation("used") == used
    done = second.round
    kept = (tmp_path / "places.npz").exists()
    found = second.start(model(7.0 if kept else 0.5), num_rounds=done + 6)
    assert len(before) // PLACES == done
    resumed = [report for report in after if report.resumed]
    assert {report.clients[0] for report in resumed} == at_work
    assert sum(second.selector.participation("used").values()) == len(before) + len(after)
    # What was under way is lost, and asked for again.
    again.sent = [each for each in fake.sent if each[1] not in last.values()] + again.sent
    expected = formula(again, [*before, *after], places, memory)
    np.testing.assert_allclose(found.arrays["w"].numpy(), expected["w"], rtol=1e-4, atol=1e-4)


def test_a_restart_whose_first_round_has_no_update_goes_on(tmp_path: Path) -> None:
    """The strategy still has the app's model then, an old one."""
    grid, *_ = filling(nodes_of(), state_dir=tmp_path)
    grid.start(model(), num_rounds=3)
    nodes = nodes_of(**{name: {"fate": ("error", "ok")} for name in PLAIN})
    strategy = FedAvg(fraction_evaluate=0.0)
    grid, *_ = filling(nodes, strategy, state_dir=tmp_path)
    found = strategy.start(grid=grid, initial_arrays=model(9.0), num_rounds=6)
    assert grid.round == 9
    assert found.arrays["w"].numpy().max() < 9.0


def test_a_full_disk_is_an_error_of_ours_and_nothing_is_lost(tmp_path: Path) -> None:
    """Files may grow no more, as on a full disk; with room again the run goes on with what was counted."""
    for places in (None, FreePlaces()):
        options = {"places": places, "state_dir": tmp_path / str(places)}
        grid, *_ = filling(nodes_of(), **options)
        grid.start(model(), num_rounds=3)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        usual = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
            with pytest.raises(FolderError, match="make room and start it again"):
                grid.start(model(), num_rounds=9)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, usual)
        used = grid.selector.participation("used")
        again, *_ = filling(nodes_of(), **options)
        assert again.selector.participation("used") == used
        again.start(model(), num_rounds=9)
        assert sum(again.selector.participation("used").values()) == 9 * PLACES


def private():
    return DifferentialPrivacyServerSideFixedClipping(FedAvg(), 0.1, 1.0, 3)


@pytest.mark.parametrize("make", [FedAdam, FedAvgM, FedMedian, private])
def test_what_is_more_than_an_average_is_refused(make) -> None:
    with pytest.raises(ConfigurationError, match="in free places each answer changes the model"):
        filling(nodes_of(), make())


class Own(FedAvg):
    """Moves further than the average."""

    def aggregate_train(self, server_round, replies):
        arrays, metrics = super().aggregate_train(server_round, replies)
        return ArrayRecord({key: Array(1.01 * array.numpy()) for key, array in arrays.items()}), metrics


def test_a_strategy_that_moves_the_model_itself_is_refused_in_its_second_round() -> None:
    grid, *_ = filling(nodes_of(), Own(fraction_evaluate=0.0))
    with pytest.raises(ConfigurationError, match="by more than the average"):
        grid.start(model(), num_rounds=3)


@pytest.mark.parametrize("rules", [RoundRules(first=1), RoundRules(min_replies=1)])
def test_rules_about_rounds_are_refused(rules) -> None:
    with pytest.raises(ConfigurationError, match="free places have no"):
        filling(nodes_of(), rules=rules)


def test_the_folder_of_another_model_is_refused(tmp_path: Path) -> None:
    grid, *_ = filling(nodes_of(), state_dir=tmp_path)
    grid.start(model(), num_rounds=2)
    grid, *_ = filling(nodes_of(), state_dir=tmp_path)
    with pytest.raises(StateFileError, match="another model"):
        grid.start(ArrayRecord({"w": Array(np.zeros(9))}), num_rounds=4)


def test_a_round_may_be_smaller_than_the_selectors() -> None:
    """In rounds and in free places: cohort_size is set again in between."""
    for places in (None, FreePlaces()):
        grid, _, reports = filling(nodes_of(), places=places, m=4)
        sizes = []

        def shrink(number, arrays, grid=grid, sizes=sizes, reports=reports):
            sizes.append(len(reports))
            grid.cohort_size = 4 - number % 3

        grid.start(model(), num_rounds=6, evaluate_fn=shrink)
        if places is None:
            assert [len(report.clients) for report in reports] == [4, 3, 2, 4, 3, 2]
        else:
            assert np.diff(sizes).tolist() == [4, 3, 2, 4, 3, 2]
        for wrong in (0, 5, True):
            with pytest.raises(ConfigurationError, match="cohort_size is"):
                grid.cohort_size = wrong


@pytest.mark.parametrize("places", [None, FreePlaces()])
def test_a_run_that_is_over_and_starts_again_has_its_rounds_and_its_model(tmp_path: Path, places) -> None:
    """Also where its rounds are smaller than the selector's."""
    ends = []
    for given in (0.5, 7.0):
        grid, *_ = filling(nodes_of(), places=places, m=4, state_dir=tmp_path)
        grid.cohort_size = 2
        ends.append(grid.start(model(given), num_rounds=3).arrays["w"].numpy().max())
        assert grid.round == 3
        assert grid.selector.round <= 6
    assert ends[1] == (7.0 if places is None else ends[0])


@pytest.mark.parametrize("sleeps", [60, 63])
def test_rounds_are_counted_where_a_restart_makes_them_smaller(tmp_path: Path, sleeps: int) -> None:
    killed(nodes_of(), sleeps, m=5, state_dir=tmp_path)
    grid, *_ = filling(nodes_of(), m=5, state_dir=tmp_path)
    grid.cohort_size, done = 2, grid.round
    assert grid.start(model(), num_rounds=done + 3).arrays
    assert grid.round == done + 3


@pytest.mark.parametrize("fate", [("ok", "error"), ("ok", "ok", "error")])
def test_a_run_that_is_over_has_its_rounds_where_their_last_exchanges_failed(tmp_path: Path, fate) -> None:
    grid, *_ = filling(nodes_of(**{name: {"fate": fate} for name in PLAIN}), state_dir=tmp_path)
    grid.start(model(), num_rounds=6)
    again, *_ = filling(nodes_of(), state_dir=tmp_path)
    assert again.round == grid.round == 6


@pytest.mark.parametrize("memory", [None, UpdateMemory()])
@pytest.mark.parametrize("buffer", [1, 2])
def test_a_weight_that_comes_first_after_a_restart_does_not_own_the_model(tmp_path, memory, buffer) -> None:
    """One place: the interrupted answer comes back alone.  A node adds 1 to the model that it was sent."""
    nodes = fleet(5)
    nodes[100].metrics = {"num-examples": 1e18}
    options = {"policy": RoundRobin(), "m": 1, "memory": memory, "places": FreePlaces(buffer=buffer)}
    options["state_dir"] = tmp_path
    grid, *_ = killed(nodes, 120, **options)
    assert "n00" in {name for names in grid.selector.open_rounds().values() for name in names}
    grid, *_ = filling(nodes, **options)
    found = grid.start(model(), num_rounds=40).arrays["w"].numpy()
    assert 25.0 < found.min() <= found.max() <= 41.0
    assert grid.selector.participation("used")["n00"] <= 2
