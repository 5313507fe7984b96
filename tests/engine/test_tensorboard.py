"""Rounds in TensorBoard's own files; needs TensorBoard, and no Flower."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

import fedroster.adapters.flower
from fedroster.core.errors import MissingDependencyError
from fedroster.core.problem import Status
from fedroster.engine.report import RoundReport, TensorBoardLog


def a_report(round_: int, backlog: np.ndarray, predicted_s: float) -> RoundReport:
    return RoundReport(
        round=round_,
        clients=("a", "b"),
        num_connected=3,
        num_available=3,
        status={"a": Status.COMPLETED, "b": Status.LATE},
        times_s={"a": 1.25, "b": 4.0},
        select_s=0.01,
        round_s=1.0 + round_,
        predicted_s=predicted_s,
        members=("a", "b", "c"),
        rate=np.array([0.5, 0.25, 0.125]),
        backlog=backlog,
    )


@pytest.mark.filterwarnings("ignore")  # TensorBoard's own
def test_rounds_are_read_back_from_event_files(tmp_path):
    writers = pytest.importorskip("torch.utils.tensorboard", reason="needs the extra 'tensorboard'")
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with writers.SummaryWriter(str(tmp_path)) as writer:
        log = TensorBoardLog(writer)
        log(a_report(1, np.empty(0), math.nan))
        log(a_report(2, np.array([0.0, 1.5, 0.5]), 2.5))
    events = accumulators.EventAccumulator(str(tmp_path)).Reload()

    def scalars(name):
        return [(event.step, event.value) for event in events.Scalars(f"fedroster/{name}")]

    assert scalars("round_s") == [(1, 2.0), (2, 3.0)]
    assert scalars("predicted_s") == [(2, 2.5)]  # there is no prediction for the first one
    assert scalars("longest_queue") == [(2, 1.5)]
    assert scalars("least_rate") == [(1, 0.125), (2, 0.125)]
    assert scalars("missed") == [(1, 1.0), (2, 1.0)]
    assert scalars("in_time") == [(1, 1.0), (2, 1.0)]
    assert scalars("lost") == [(1, 0.0), (2, 0.0)]


def test_without_flower_the_extra_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("fedroster.adapters.flower.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(vars(fedroster.adapters.flower), "SelectingGrid", raising=False)
    for name in ("flwr", "flwr.app", "flwr.serverapp"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingDependencyError, match=r"\.\[flower\]"):
        _ = fedroster.adapters.flower.SelectingGrid
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = fedroster.adapters.flower.Nonsense


def test_every_public_name_is_listed():
    assert set(fedroster.adapters.flower.__all__) <= set(dir(fedroster.adapters.flower))
