"""The selected dataset keeps the contract of engines, with users whose fates a network simulates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("pfl", reason="needs pfl: run .ci/pfl, or install the extra 'pfl'")

from pfl.callback.restore_training import RestoreTrainingCallback
from pfl.data.dataset import Dataset

from fedroster.adapters.pfl import SelectedDataset
from fedroster.networks.flat import FlatNetwork
from fedroster.testing import EngineContract


class Scripted:
    """A network whose clients do what their scripts say."""

    def __init__(self, scripts, contract) -> None:
        self._network = FlatNetwork(num_clients=len(scripts), cohort_size=1, availability=1.0)
        self._scripts, self._contract = list(scripts), contract
        self.spec, self.init = self._network.spec, self._network.init

    def __repr__(self) -> str:
        return "Scripted()"

    def observe(self, state, round, /, *, rng):
        context, outcome = self._network.observe(state, round, rng=rng)
        fates = [each.fates[min(len(each.log), len(each.fates) - 1)] for each in self._scripts]
        c = self._contract
        times_s = np.array([{"slow": c.slow_s, "late": c.late_s}.get(fate, c.quick_s) for fate in fates])
        responds = np.array([fate != "silent" for fate in fates])
        return context, replace(outcome, exchange_time_s=times_s, responds=responds, deadline_s=c.deadline_s)

    def advance(self, state, context, selection, /):
        for link in selection.links.tolist():
            if self._scripts[link].begin() != "silent":
                self._scripts[link].end()
        return self._network.advance(state, context, selection)


class TestSelectedDataset(EngineContract):
    cannot = {
        "test_a_client_that_is_still_busy_is_not_called_again": "an exchange is over when its round is",
        "test_a_client_that_fails_neither_stops_the_run_nor_looks_fast": "an error while a user trains ends pfl's run",
        "test_a_failure_never_looks_fast": "an error while a user trains ends pfl's run",
        "test_a_malformed_update_is_refused": "pfl aggregates every update of a cohort as it is",
        "test_a_round_in_which_all_fail_ends": "an iteration needs an update: a round without one does not count",
    }

    def engine(self, clients, selector, *, state_dir=None):
        names = list(clients)
        network = Scripted(clients.values(), self)
        users = SelectedDataset(lambda user: Dataset([np.zeros(1)], user_id=user), selector, network, users=names)
        keep = None if state_dir is None else RestoreTrainingCallback([users], str(state_dir))
        if keep is not None:
            keep.on_train_begin(model=None)

        class Running:
            selector = property(lambda _: users.selector)

            def play(self):
                cohort = {user.user_id for user, _ in users.get_cohort(users.selector.cohort_size)}
                if keep is not None:
                    keep.after_central_iteration(None, None, central_iteration=users.iterations - 1)
                return cohort

            def wait(self, seconds):
                """Time is the network's: what was late is told before the next cohort."""

            def stop(self):
                """Nothing is open between two iterations."""

        return Running()
