"""The update memory against its formula, written down plainly, and what may go wrong with a table."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedroster.aggregation import memory as module
from fedroster.aggregation.memory import UpdateMemory, UpdateTable
from fedroster.aggregation.server import ServerStep
from fedroster.errors import ConfigurationError, StateFileError

CLIENTS = 7
MODEL = {"w": np.zeros((3, 5), np.float32), "b": np.zeros(4, np.float32)}


def flat(model):
    return np.concatenate([np.asarray(value, np.float64).reshape(-1) for value in model.values()])


def stacked(rows):
    rows = np.asarray(rows, np.float32)
    return {"w": rows[:, :15].reshape(-1, 3, 5), "b": rows[:, 15:]}


class Plain:
    """The same from the formula: no running sum, nothing kept up."""

    def __init__(self, memory, clients=CLIENTS):
        self.memory, self.rows, self.samples, self.age = memory, {}, {}, {}
        self.clients = clients

    def mean(self):
        known = sorted(self.rows)
        if not known:
            return np.zeros(19)
        weight = np.array([self.samples[n] for n in known], float)
        total = sum(w * self.rows[n] for w, n in zip(weight, known, strict=True))
        return total / (weight.sum() * (self.clients / len(known) if self.memory.unknown == "zero" else 1.0))

    def step(self, clients, updates, num_samples, weights):
        memory, mean = self.memory, self.mean()
        self.age = {n: age + 1 for n, age in self.age.items()}
        missing = mean if memory.unknown == "left-out" else np.zeros(19)
        share = num_samples / num_samples.sum()
        direction = memory.share * mean + sum(
            a * c * (update - memory.share * self.rows.get(n, missing))
            for a, c, n, update in zip(share, weights, clients, updates, strict=True)
        )
        for n, update, count in zip(clients, updates, num_samples, strict=True):
            kept = update.astype(memory.dtype).astype(np.float64)
            self.rows[n], self.samples[n], self.age[n] = kept, count, 1
        if memory.rule == "mean":
            direction = memory.share * self.mean()
        for n in [n for n, age in self.age.items() if memory.longest_age and age > memory.longest_age]:
            del self.rows[n], self.samples[n], self.age[n]
        return direction


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", 4)


@settings(max_examples=60, deadline=None)
@given(
    memory=st.builds(
        UpdateMemory,
        share=st.sampled_from([0.0, 0.3, 1.0]),
        rule=st.sampled_from(["difference", "mean"]),
        unknown=st.sampled_from(["left-out", "zero"]),
        longest_age=st.sampled_from([0, 1, 3]),
        dtype=st.sampled_from(["float32", "float16"]),
    ),
    seed=st.integers(0, 10**6),
)
def test_steps_follow_the_formula(memory, seed):
    rng = np.random.default_rng(seed)
    table, plain = UpdateTable(memory, MODEL, CLIENTS), Plain(memory)
    for _ in range(8):
        clients = rng.choice(CLIENTS, rng.integers(1, 5), replace=False)
        updates = rng.standard_normal((len(clients), 19)).astype(np.float32)
        samples, weights = rng.integers(1, 50, len(clients)), rng.uniform(0.5, 2.0, len(clients))
        if memory.longest_age:  # a row counts as long as it is not older than the limit when a step begins
            for n in [n for n, age in plain.age.items() if age > memory.longest_age]:
                del plain.rows[n], plain.samples[n], plain.age[n]
        expected = plain.step(clients.tolist(), updates.astype(np.float64), samples, weights)
        by_reply = None
        if memory.rule == "difference":
            replies = table.rewritten(clients, stacked(updates), weights)
            by_reply = (samples / samples.sum()) @ np.stack(
                [flat(stacked_row(replies, i)) for i in range(len(clients))]
            )
        found = flat(table.step(clients, stacked(updates), samples, weights=weights))
        np.testing.assert_allclose(found, expected, atol=2e-6)
        if by_reply is not None:  # what an engine that averages replies makes of them
            np.testing.assert_allclose(by_reply, expected, atol=2e-6)


def stacked_row(model, row):
    return {name: values[row] for name, values in model.items()}


def test_known_answers_of_fedvarp_and_fedavg():
    table = UpdateTable(UpdateMemory(unknown="zero"), MODEL, 4)
    one, two = np.full((1, 19), 4.0), np.full((1, 19), 8.0)
    # A first update moves the model by itself; then a quarter of it stands for client 0.
    np.testing.assert_allclose(flat(table.step(np.array([0]), stacked(one), np.array([5]))), 4.0)
    np.testing.assert_allclose(flat(table.step(np.array([1]), stacked(two), np.array([5]))), 8.0 + 1.0)
    np.testing.assert_allclose(flat(table.step(np.array([0]), stacked(two), np.array([5]))), 8.0 - 4.0 + 3.0)
    plain = UpdateTable(UpdateMemory(share=0.0), MODEL, 4)
    for _ in range(2):
        np.testing.assert_allclose(flat(plain.step(np.array([0]), stacked(one), np.array([5]))), 4.0)


def test_models_and_updates_give_the_same_step():
    rng = np.random.default_rng(0)
    base, updates = rng.standard_normal(19).astype(np.float32), rng.standard_normal((3, 19)).astype(np.float32)
    found = []
    for models in (False, True):
        table = UpdateTable(UpdateMemory(), MODEL, CLIENTS)
        for _ in range(2):
            sent = stacked(updates + base) if models else stacked(updates)
            options = {"base": stacked_row(stacked(base[None]), 0)} if models else {}
            step = table.step(np.array([5, 1, 2]), sent, np.array([1, 2, 3]), **options)
        found.append(flat(step))
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)


def test_what_is_not_finite_in_the_tables_numbers_is_not_usable():
    rows = np.ones((4, 19))
    rows[1, 3], rows[2, 18], rows[3, 0] = np.nan, np.inf, 1e5
    for dtype, good in (("float32", [True, False, False, True]), ("float16", [True, False, False, False])):
        table = UpdateTable(UpdateMemory(dtype=dtype), MODEL, CLIENTS)
        assert table.usable(stacked(rows), 4).tolist() == good
        base = stacked_row(stacked(np.full((1, 19), 1.0)), 0)
        assert table.usable(stacked(rows), 4, base=base).tolist() == good


def test_forgetting_takes_a_clients_part_out_of_the_mean():
    rng = np.random.default_rng(1)
    updates = rng.standard_normal((3, 19)).astype(np.float32)
    table, other = (UpdateTable(UpdateMemory(unknown="left-out", rule="mean"), MODEL, CLIENTS) for _ in range(2))
    table.step(np.array([0, 1, 2]), stacked(updates), np.array([3, 1, 2]))
    table.forget(np.array([1]))
    other.step(np.array([0, 2]), stacked(updates[[0, 2]]), np.array([3, 2]))
    assert table.known.tolist() == other.known.tolist()
    again = [flat(t.rewritten(np.array([4]), stacked(updates[:1]))) for t in (table, other)]
    np.testing.assert_allclose(again[0], again[1], atol=1e-6)
    assert not any((array == updates[1, 3]).any() for array in table.arrays().values())
    table.forget(np.arange(CLIENTS))
    assert not table.known.any()
    assert not table.arrays()["total"].any()


def test_groups_share_rows_and_clients_join():
    memory = UpdateMemory(groups=3, rule="mean", unknown="left-out")
    table = UpdateTable(memory, MODEL, 6)
    rows = np.stack([np.full(19, 2.0), np.full(19, 4.0), np.full(19, 9.0)])
    step = table.step(np.array([0, 3, 1]), stacked(rows), np.array([1, 3, 2]))  # 0 and 3 share a row: (2 + 3 * 4) / 4
    np.testing.assert_allclose(flat(step), (4 * 3.5 + 4 * 9.0) / 8)
    assert table.known.tolist() == [True, True, False, True, True, False]
    table.hold(np.ones(7, np.bool_))  # client 6 shares row 0
    step = flat(table.rewritten(np.array([6]), stacked(rows[:1])))
    np.testing.assert_allclose(step, 2.0 - 3.5 + (6 * 3.5 + 4 * 9.0) / 10)
    small = UpdateTable(memory, MODEL, 2)
    with pytest.raises(ConfigurationError, match="fewer than groups"):
        small.hold(np.ones(3, np.bool_))
    own = UpdateTable(UpdateMemory(unknown="zero"), MODEL, 2)
    own.step(np.array([1]), stacked(rows[:1]), np.array([1]))
    own.hold(np.ones(4, np.bool_))
    assert own.known.tolist() == [False, True, False, False]
    np.testing.assert_allclose(flat(own.step(np.array([3]), stacked(rows[:1]), np.array([1]))), 2.0 + 2.0 / 4)


def test_rows_in_a_file_are_the_same_and_a_budget_is_kept(tmp_path):
    rng = np.random.default_rng(2)
    tables = [UpdateTable(UpdateMemory(folder=folder), MODEL, CLIENTS) for folder in ("", str(tmp_path))]
    for _ in range(5):
        clients, updates = rng.choice(CLIENTS, 3, replace=False), rng.standard_normal((3, 19))
        steps = [flat(table.step(clients, stacked(updates), np.ones(3))) for table in tables]
        np.testing.assert_array_equal(*steps)
    assert isinstance(tables[1].arrays()["rows"], np.memmap)
    assert not list(tmp_path.iterdir())  # no name that another process could open, and nothing to remove after a kill
    assert tables[0].arrays()["rows"].nbytes == 4 * 19 * CLIENTS
    with pytest.raises(ConfigurationError, match="most_bytes = 100"):
        UpdateTable(UpdateMemory(most_bytes=100), MODEL, CLIENTS)
    UpdateTable(UpdateMemory(most_bytes=2 * 19 * CLIENTS, dtype="float16"), MODEL, CLIENTS)


def test_a_table_goes_on_where_it_was_saved():
    rng = np.random.default_rng(3)
    table, other = (UpdateTable(UpdateMemory(longest_age=2), MODEL, CLIENTS) for _ in range(2))
    table.step(np.array([0, 4]), stacked(rng.standard_normal((2, 19))), np.array([1, 2]))
    kept = {name: value.copy() for name, value in table.arrays().items()}
    other.restore(kept)
    for _ in range(4):
        clients, updates = rng.choice(CLIENTS, 2, replace=False), stacked(rng.standard_normal((2, 19)))
        steps = [flat(each.step(clients, updates, np.array([3, 1]))) for each in (table, other)]
        np.testing.assert_array_equal(*steps)
    for name, wrong in (("rows", kept["rows"][:3]), ("total", kept["total"] * np.nan), ("steps", None)):
        broken = {**kept, name: wrong} if wrong is not None else {n: v for n, v in kept.items() if n != name}
        with pytest.raises(StateFileError, match=name):
            other.restore(broken)


def test_a_step_of_no_client_moves_nothing():
    table = UpdateTable(UpdateMemory(), MODEL, CLIENTS)
    table.step(np.array([2]), stacked(np.ones((1, 19))), np.array([1]))
    assert not flat(table.step(np.empty(0, np.int64), stacked(np.empty((0, 19))), np.empty(0))).any()


def test_the_servers_steps_follow_their_equations():
    rng = np.random.default_rng(4)
    directions = rng.standard_normal((6, 19))
    for step in (
        ServerStep(size=0.5),
        ServerStep(size=0.5, momentum=0.9),
        ServerStep(0.1, momentum=0.9, adaptive=0.99),
        ServerStep(0.1, adaptive=0.9, tau=0.1),
    ):
        model, state = MODEL, step.init(MODEL)
        x, m, v = np.zeros(19), np.zeros(19), np.zeros(19)
        for d in directions:
            model = step.apply(model, stacked_row({"w": d[:15].reshape(1, 3, 5), "b": d[None, 15:]}, 0), state)
            if step.adaptive:
                m = step.momentum * m + (1 - step.momentum) * d
                v = step.adaptive * v + (1 - step.adaptive) * d**2
                x = x + step.size * m / (np.sqrt(v) + step.tau)
            else:
                m = step.momentum * m + d
                x = x + step.size * m
        np.testing.assert_allclose(flat(model), x, atol=1e-6)
    assert ServerStep().is_plain
    assert not ServerStep(size=2.0).is_plain
