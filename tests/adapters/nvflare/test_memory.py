"""A loop of the Collab API takes the step of an update memory: it averages what the memory makes of the replies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs NVFlare: run .ci/nvflare, or install the extra 'nvflare'")

from fake_flare import Site, job, model

from fedroster import Selector, Uniform
from fedroster.adapters.nvflare import RememberedUpdates, SelectingClients
from fedroster.aggregation.memory import UpdateMemory, UpdateTable

SITES = 4


class Moving(Site):
    """Its update is another one each time, and it has samples of its own."""

    def train(self, model, number: int = 0):
        self.log.append(number)
        by = np.random.default_rng([number, self.num_running]).normal()
        return {name: array + by for name, array in model.items()}, {"num-examples": 5 + self.num_running}


def play(numbers, start, folder=None):
    """Rounds of federated averaging, as docs/how-to/nvflare.md has them; returns models and cohorts."""
    sites = {f"site-{number}": Moving() for number in range(SITES)}
    for number, site in enumerate(sites.values()):
        site.num_running = number
    current, models, cohorts = start, [], []
    with job(sites):
        clients = SelectingClients(Selector(Uniform(), cohort_size=2))
        updates = RememberedUpdates(UpdateMemory(), folder)
        for number in numbers:
            replies = clients.call("train", current, number=number)
            updates.begin(current, clients.selector.clients)
            weights = {reply.name: reply.content[1]["num-examples"] for reply in replies}
            moved = [updates.rewritten(each.name, each.content[0], samples=weights[each.name]) for each in replies]
            updates.end(number, weights)
            current = {
                key: np.average([each[key] for each in moved], axis=0, weights=[*weights.values()]) for key in current
            }
            models.append(current)
            cohorts.append([int(name[-1]) for name in weights])
    return models, cohorts


def test_the_average_is_the_step_of_the_formula_and_a_restart_goes_on(tmp_path: Path) -> None:
    models, cohorts = play(range(1, 7), model(), tmp_path)
    resumed, more = play(range(7, 9), models[-1], tmp_path)
    table, current = UpdateTable(UpdateMemory(), model(), SITES), model()
    for number, (cohort, mine) in enumerate(zip(cohorts + more, models + resumed, strict=True), 1):
        clients = np.array(sorted(cohort))
        by = np.array([np.random.default_rng([number, client]).normal() for client in clients])
        updates = {
            key: by.reshape(-1, *(1,) * np.ndim(array)) * np.ones(np.shape(array)) for key, array in current.items()
        }
        step = table.step(clients, updates, 5.0 + clients)
        current = {key: current[key] + step[key] for key in current}
        for key in current:
            np.testing.assert_allclose(mine[key], current[key], rtol=1e-5, atol=1e-6)
