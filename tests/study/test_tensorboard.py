"""TensorBoard scalars: what was written can be read."""

from __future__ import annotations

import sys

import pytest

from fedroster.core.errors import MissingDependencyError
from fedroster.study.tensorboard import write_scalars
from fedroster.study.trial import Trial
from fedroster.task import Task

TRIAL = Trial(
    "rbcs-f/table-1", "rbcs-f:V=5", 2, 5, {}, Task("digits", "labels:2", samples_per_client=20), evaluate_every=2
)


@pytest.mark.filterwarnings("ignore")  # TensorBoard's own
def test_scalars_can_be_read(tmp_path):
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = TRIAL.run()
    write_scalars([(TRIAL, run)], tmp_path)
    write_scalars([(TRIAL, run)], tmp_path)  # a second time changes nothing
    (file,) = tmp_path.rglob("events.out*")
    events = accumulators.EventAccumulator(str(file.parent)).Reload()
    accuracy = [(event.step, event.value) for event in events.Scalars("test/accuracy")]
    assert accuracy == [(step, pytest.approx(run.accuracy[step - 1])) for step in (2, 4, 5)]
    assert [event.step for event in events.Scalars("round/time_s")] == [1, 2, 3, 4, 5]


@pytest.mark.filterwarnings("ignore")  # TensorBoard's own
def test_a_run_that_was_written_in_part_is_written_again(tmp_path, monkeypatch):
    writers = pytest.importorskip("torch.utils.tensorboard.writer", reason="needs the extra 'tensorboard'")
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = TRIAL.run()
    written = []

    def fail(self, *args):
        written.append(args)
        if len(written) == 10:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(writers.SummaryWriter, "add_scalar", fail)
        with pytest.raises(KeyboardInterrupt):
            write_scalars([(TRIAL, run)], tmp_path)
    write_scalars([(TRIAL, run)], tmp_path)
    (file,) = tmp_path.rglob("events.out*")
    events = accumulators.EventAccumulator(str(file.parent)).Reload()
    assert [event.step for event in events.Scalars("round/time_s")] == [1, 2, 3, 4, 5]
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".")]


def test_without_tensorboard_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard.writer", None)
    with pytest.raises(MissingDependencyError, match="tensorboard"):
        write_scalars([], tmp_path)
