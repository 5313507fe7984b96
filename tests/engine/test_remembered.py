"""What replies become by an update memory, against the formula written down plainly; restarts; who is forgotten."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedroster.aggregation.memory import UpdateMemory
from fedroster.engine.remembered import RememberedUpdates
from fedroster.errors import ConfigurationError, StateFileError

NAMES = ["ann", "bob", "cem", "dee", "eva"]
SAMPLES = dict(zip(NAMES, (10.0, 20.0, 5.0, 40.0, 1.0), strict=True))
COHORTS = (["ann", "bob"], ["bob", "cem", "dee"], ["ann", "dee"], ["eva", "bob"], ["cem", "ann", "bob"], ["dee", "eva"])


def first() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {"w": rng.normal(size=(3, 2)).astype(np.float32), "b": rng.normal(size=4), "count": np.array(3)}


def update_of(round_: int, name: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng([round_, NAMES.index(name)])
    return {"w": rng.normal(size=(3, 2)).astype(np.float32), "b": rng.normal(size=4)}


def plain_step(model, rows, cohort, round_, *, share, unknown):
    """x + sum of a_k (Delta_k - s y_k) + s sum of p_n y_n, and the rows after it, key by key."""
    following = dict(model)
    total = sum(SAMPLES[name] for name in cohort)
    for key in ("w", "b"):
        known = sum(SAMPLES[name] for name in rows) * (len(NAMES) / len(rows) if rows and unknown == "zero" else 1.0)
        mean = sum((SAMPLES[n] * row[key] for n, row in rows.items()), np.zeros(model[key].shape)) / (known or 1.0)
        missing = mean if unknown == "left-out" else np.zeros_like(mean)
        step = sum(
            SAMPLES[n] / total * (update_of(round_, n)[key] - share * (rows[n][key] if n in rows else missing))
            for n in cohort
        )
        following[key] = (model[key] + step + share * mean).astype(model[key].dtype)
    return following, rows | {name: update_of(round_, name) for name in cohort}


def averaged(memory: RememberedUpdates, model, cohort, round_, members=NAMES):
    """A strategy that averages what it gets."""
    memory.begin(model, members)
    total, moved = sum(SAMPLES[name] for name in cohort), []
    for name in cohort:
        reply = {key: model[key] + value for key, value in update_of(round_, name).items()} | {"count": np.array(9)}
        moved.append(memory.rewritten(name, reply, samples=SAMPLES[name]))
    memory.end(round_, cohort)
    assert all(set(each) == {"w", "b"} and each["w"].dtype == np.float32 for each in moved)
    return model | {
        key: sum(SAMPLES[name] / total * each[key] for name, each in zip(cohort, moved, strict=True)).astype(
            model[key].dtype
        )
        for key in ("w", "b")
    }


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("unknown", ["left-out", "zero"])
def test_an_average_of_rewritten_replies_is_the_step_of_the_formula(share: float, unknown: str) -> None:
    memory = RememberedUpdates(UpdateMemory(share=share, unknown=unknown))
    model = expected = first()
    rows: dict[str, dict[str, np.ndarray]] = {}
    for round_, cohort in enumerate(COHORTS, 1):
        model = averaged(memory, model, cohort, round_)
        expected, rows = plain_step(expected, rows, cohort, round_, share=share, unknown=unknown)
        for key in ("w", "b"):
            np.testing.assert_allclose(model[key], expected[key], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("back", [0, 1])
@pytest.mark.parametrize("killed_after", range(1, 6))
def test_after_a_kill_table_and_model_are_of_one_step(tmp_path: Path, killed_after: int, back: int) -> None:
    """Killed when a round was played: with its model saved (0 back), or with the one before it."""
    memory, models = RememberedUpdates(UpdateMemory(), tmp_path), [first()]
    for round_, cohort in enumerate(COHORTS[:killed_after], 1):
        models.append(averaged(memory, models[-1], cohort, round_))
    begin = killed_after - back
    straight, resumed = RememberedUpdates(UpdateMemory()), RememberedUpdates(UpdateMemory(), tmp_path)
    model = expected = models[0]
    for round_, cohort in enumerate(COHORTS, 1):
        expected = averaged(straight, expected, cohort, round_)
        if round_ > begin:
            model = averaged(resumed, model if round_ > begin + 1 else models[begin], cohort, round_)
    for key in ("w", "b"):
        np.testing.assert_allclose(model[key], expected[key], rtol=1e-4, atol=1e-5)
    per_client = [file.stem[10:] for file in tmp_path.iterdir()]
    assert max(map(per_client.count, per_client)) == 2


def test_who_leaves_is_forgotten_in_the_table_and_on_the_disk(tmp_path: Path) -> None:
    memory = RememberedUpdates(UpdateMemory(), tmp_path)
    model = first()
    for round_, cohort in enumerate(COHORTS[:3], 1):
        model = averaged(memory, model, cohort, round_)
    before = len(list(tmp_path.iterdir()))
    stay = [name for name in NAMES if name != "dee"]
    once_more = averaged(memory, model, ["ann"], 4, stay)
    assert len(list(tmp_path.iterdir())) == before - 2  # both of dee; the third of ann replaces its first
    rows = {"ann": update_of(3, "ann"), "bob": update_of(2, "bob"), "cem": update_of(2, "cem")}
    expected, _ = plain_step(model, rows, ["ann"], 4, share=1.0, unknown="left-out")
    np.testing.assert_allclose(once_more["w"], expected["w"], rtol=1e-5, atol=1e-5)


def test_what_a_killed_writer_left_of_an_update_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".000000001-abc.npz.0123abcd.tmp").write_bytes(b"an update")
    RememberedUpdates(UpdateMemory(), tmp_path)
    assert not [*tmp_path.iterdir()]


def test_updates_that_are_not_used_or_not_finite_are_not_remembered() -> None:
    memory, model = RememberedUpdates(UpdateMemory(dtype="float16")), first()
    memory.begin(model, NAMES)
    too_large = {key: model[key] + 1e6 for key in ("w", "b")}
    assert memory.rewritten("ann", too_large) == {}
    memory.rewritten("bob", {key: model[key] + 5.0 for key in ("w", "b")})
    memory.end(1, ["ann"])
    memory.begin(model, NAMES)
    reply = {key: model[key] + 1.0 for key in ("w", "b")}
    np.testing.assert_allclose(memory.rewritten("cem", reply, weight=2.0)["b"], model["b"] + 2.0)


def test_members_that_join_get_rows_and_old_rows_are_dropped(tmp_path: Path) -> None:
    options = UpdateMemory(longest_age=2)
    memory, model = RememberedUpdates(options, tmp_path), first()
    averaged(memory, model, ["ann"], 1, ["ann"])
    following = averaged(memory, model, ["bob"], 2, NAMES)
    last = averaged(memory, following, ["dee"], 3)
    expected, _ = plain_step(
        last, {n: update_of(2 + (n == "dee"), n) for n in ("bob", "dee")}, ["cem"], 4, share=1.0, unknown="left-out"
    )
    for table in (memory, RememberedUpdates(options, tmp_path)):
        np.testing.assert_allclose(averaged(table, last, ["cem"], 4)["b"], expected["b"], rtol=1e-6)


def test_a_model_is_the_same_where_its_counter_is_an_integer_again(tmp_path: Path) -> None:
    """An engine averages it to a float; an app that begins again, a round before, has an integer."""
    memory, model = RememberedUpdates(UpdateMemory(), tmp_path), first()
    model = averaged(memory, model, ["ann", "bob"], 1) | {"count": np.array(9.0)}
    expected = averaged(memory, model, ["ann"], 2)
    again = averaged(RememberedUpdates(UpdateMemory(), tmp_path), model | {"count": np.array(9)}, ["ann"], 2)
    np.testing.assert_allclose(again["b"], expected["b"], rtol=1e-6)


def test_the_rows_of_those_that_left_are_taken_by_those_that_join() -> None:
    model, clients = first(), [f"client {number}" for number in range(100)]
    memory = RememberedUpdates(UpdateMemory(most_bytes=5 * 11 * 4))  # five rows of ten numbers and a counter
    for round_ in range(60):
        memory.begin(model, clients[round_ : round_ + 5])
        reply = {"w": model["w"] + 1, "b": model["b"] + 1}
        assert memory.rewritten(clients[round_], reply)
        memory.end(round_ + 1, [clients[round_]])
    memory.begin(model, clients[:4])
    assert memory.rewritten(clients[99], reply)  # it left while it was at work


def test_those_that_left_count_no_more_as_clients_without_an_update(tmp_path: Path) -> None:
    how = UpdateMemory(unknown="zero")
    memory, model = RememberedUpdates(how, tmp_path), first()
    model = averaged(memory, model, ["ann", "bob"], 1)
    memory.begin(model, ["ann", "bob", "cem"])  # two that never answered have left
    again = RememberedUpdates(how, tmp_path)
    again.begin(model, ["ann", "bob", "cem"])
    reply = {key: model[key] + value for key, value in update_of(2, "cem").items()}
    expected, found = (each.rewritten("cem", reply) for each in (again, memory))
    for key in ("w", "b"):
        np.testing.assert_allclose(found[key], expected[key], rtol=1e-6)


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no average"):
        RememberedUpdates(UpdateMemory(rule="mean"))
    with pytest.raises(ConfigurationError, match="most_bytes"):
        RememberedUpdates(UpdateMemory(most_bytes=100)).begin(first(), NAMES)
    averaged(RememberedUpdates(UpdateMemory(), tmp_path), first(), ["ann"], 1)
    with pytest.raises(StateFileError, match="another model"):
        RememberedUpdates(UpdateMemory(), tmp_path).begin({"w": np.ones(2)}, NAMES)


def remembered(memory: RememberedUpdates, *told: tuple[str, float, float], begin: int = 1) -> float:
    """One client a round, with samples and an update; returns the mean of what is remembered."""
    for round_, (name, samples, value) in enumerate(told, begin):
        memory.begin({"b": np.full(2, float(round_))}, NAMES)
        memory.rewritten(name, {"b": np.full(2, round_ + value)}, samples=samples)
        memory.end(round_, [name])
    memory.begin({"b": np.zeros(2)}, NAMES)
    return float(memory.rewritten("eva", {"b": np.zeros(2)})["b"][0])  # without a row and an update: the mean


HEAVY = ("ann", 1e18, 50.0), ("bob", 10.0, 1.0), ("cem", 10.0, 3.0)


def test_an_update_that_counts_too_much_is_forgotten_when_three_are_known(tmp_path: Path) -> None:
    passes = RememberedUpdates(UpdateMemory(unknown="zero"), is_judged=False)
    assert remembered(passes, *HEAVY) == pytest.approx(50.0 * 3 / 5)
    memory = RememberedUpdates(UpdateMemory(unknown="zero"), tmp_path)
    assert remembered(memory, *HEAVY[:2]) == pytest.approx(50.0 * 2 / 5)  # of two it cannot be said who is wrong
    assert remembered(memory, HEAVY[2], begin=3) == pytest.approx(2.0 * 2 / 5)
    again = RememberedUpdates(UpdateMemory(unknown="zero"), tmp_path)
    assert remembered(again) == pytest.approx(2.0 * 2 / 5)


def test_rows_grow_older_in_rounds_without_an_update_also_after_a_restart(tmp_path: Path) -> None:
    options = UpdateMemory(longest_age=2, unknown="zero")
    remembered(RememberedUpdates(options, tmp_path), ("ann", 1.0, 50.0))
    remembered(RememberedUpdates(options, tmp_path), ("bob", 1.0, 2.0), begin=3)
    assert remembered(RememberedUpdates(options, tmp_path)) == pytest.approx(2.0 / 5)
