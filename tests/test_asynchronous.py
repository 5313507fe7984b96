"""The example of asynchronous training trains."""

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
    sys.modules.pop("live", None)


@pytest.fixture(scope="module")
def trainer():
    from fedroster.lab.task import Task

    return Task("digits", samples_per_client=20).trainer(num_clients=40, seed=0)


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
