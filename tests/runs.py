"""Runs for tests: planted ones, and whether two are the same."""

import dataclasses

import numpy as np

from fedroster.lab.federated import load_training, save_training
from fedroster.lab.trials.measures import Run


def planted_run(num_clients, num_rounds, **measured):
    """A run of which only some measures are given; the others are as in a run that was not played.

    Args:
        num_clients: N.
        num_rounds: T.
        **measured: Arrays by the field's name.
    """
    return dataclasses.replace(Run.unplayed(num_clients, num_rounds), **measured)


def assert_same_run(one, other):
    """Bit by bit, but for the times that decisions took: they are measured."""
    for name in (field.name for field in dataclasses.fields(Run)):
        if name != "decision_s":
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def killed(path, played, number, *, seed=3, **who):
    """What is loaded of a training that was saved after a round, and then killed."""
    last = next(each for each in played if each.round.number == number)
    save_training(path, last, seed=seed, **who)
    played.close()
    return load_training(path, seed=seed, **who)


def contents(folder):
    """Bytes of each file of a folder, whose locks do not count."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".lock")
    }
