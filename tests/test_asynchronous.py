"""The examples of asynchronous training train."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="trains")

FOLDER = Path(__file__).parent.parent / "examples" / "asynchronous"


@pytest.fixture(autouse=True)
def _path(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    yield
    for name in ("world", "buffered", "live", "compare"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def trainer():
    from fedroster.lab.task import Task

    return Task("digits", samples_per_client=20).trainer(num_clients=40, seed=0)


@pytest.mark.parametrize("scenario", ["rbcs-f/table-1", "traces/devices"])
def test_buffered_training_learns_and_keeps_its_promise(trainer, scenario):
    from buffered import buffered
    from world import World

    from fedroster import Floor, make_scenario

    small = {} if scenario == "rbcs-f/table-1" else {"num_clients": "40"}
    world = World(make_scenario(scenario, small), seed=0)
    options = {"concurrency": 8, "buffer": 4, "seed": 0, "until_s": 30.0 if not small else 2000.0}
    played = list(buffered(Floor(beta=0.05), world, trainer, **options))
    times = [time_s for time_s, _, _ in played]
    assert times == sorted(times)
    _, model, selector = played[-1]
    assert trainer.evaluate(model).loss < trainer.evaluate(played[0][1]).loss
    assert sum(selector.participation().values()) >= 4 * len(played)
    assert sum(map(len, selector.open_rounds().values())) <= 8


def test_live_clients_work_at_the_same_time(trainer):
    from live import train_live

    from fedroster import Uniform
    from fedroster.types import Streams

    options = {"num_clients": 40, "concurrency": 8, "buffer": 4, "changes": 8, "pause_s": 0.001}
    model, selector = train_live(Uniform(), trainer, **options)
    first = trainer.init(rng=Streams(0).at("model"))
    assert all(np.isfinite(values).all() and (values != first[name]).any() for name, values in model.items())
    assert sum(selector.participation().values()) >= 32
    assert selector.round > 8


def test_the_comparison_plays_every_mode(tmp_path, monkeypatch):
    import compare

    monkeypatch.setattr(compare, "SCENARIOS", {"rbcs-f/table-1": (8, 6, 4, 12.0)})
    runs = {
        ("rbcs-f/table-1", label, mode, 0): compare.play("rbcs-f/table-1", label, mode, 0)
        for label, mode in (("random", "whole rounds"), ("FLOOR", "first k of m"), ("RBCS-F", "buffered"))
    }
    assert all(run["updates"] >= 1 for run in runs.values())
    assert compare.reached([(1.0, 0.2), (2.0, 0.9), (3.0, 0.9), (4.0, 0.9)], 0.8) == 2.0
