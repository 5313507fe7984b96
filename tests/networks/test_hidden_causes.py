from functools import partial

import numpy as np
import pytest

from fedroster.networks.hidden_causes import CAUSES, HiddenCauses
from fedroster.networks.hierarchical import HierarchicalNetwork
from fedroster.testing import EnvironmentContract
from variants import play


@pytest.mark.usefixtures("resumes_in_forks")
class TestContract(EnvironmentContract):
    rounds = 200

    def environment(self):
        return HiddenCauses(num_clients=12, cause="turns", period=20)


def spared(network, plain, num_rounds=40, **where):
    """What is left of each link's probability, with who and what it was."""
    rows, runs = [], (play(each, num_rounds, **where) for each in (network, plain))
    for (context, outcome, _), (_, before, _) in zip(*runs, strict=True):
        assert (outcome.exchange_time_s == before.exchange_time_s).all()
        assert not (outcome.responds & ~before.responds).any()
        known = before.participation_probability() > 0.0
        factor = outcome.participation_probability()[known] / before.participation_probability()[known]
        works = outcome.responds[known]
        rows.append(
            np.column_stack((factor, works, context.client[known], context.server[known], context.features[known]))
        )
    return np.concatenate(rows).T


@pytest.mark.parametrize("cause", CAUSES)
def test_probabilities_are_those_of_what_happens(cause):
    factor, works, *_ = spared(HiddenCauses(cause=cause), HierarchicalNetwork())
    assert abs(works.mean() - factor.mean()) < 0.02
    assert 0.1 < factor.mean() < 0.95


class TestCauses:
    @pytest.mark.parametrize(
        ("cause", "expected"),
        [
            ("server", lambda server, rate, compute: np.where(server == 0, 0.1, 1.0)),
            ("exclusive", lambda server, rate, compute: np.where((rate > 0.5) == (compute > 0.5), 1.0, 0.1)),
            ("hump", lambda server, rate, compute: np.exp(-(((compute - 0.5) / 0.15) ** 2))),
            ("shift", lambda server, rate, compute: np.exp(-(((compute - 0.3) / 0.15) ** 2))),
        ],
    )
    def test_what_is_left(self, cause, expected):
        factor, _, _, *known = spared(HiddenCauses(cause=cause), HierarchicalNetwork())
        np.testing.assert_allclose(factor, expected(*known))

    @pytest.mark.parametrize(("cause", "parts"), [("clients", 1), ("pairs", 3)])
    def test_odd_ones_stay_odd(self, cause, parts):
        factor, _, client, server, *_ = spared(HiddenCauses(cause=cause), HierarchicalNetwork())
        who = (client * 3 + server * (parts > 1)).astype(np.int64)
        odd = {name: set(np.round(factor[who == name], 6)) for name in np.unique(who)}
        assert all(len(found) == 1 for found in odd.values())
        share = np.mean([0.1 in found for found in odd.values()])
        assert 0.15 < share < 0.45

    def test_shift_is_after_two_periods(self):
        """Round 20 is the last before it."""
        for first, slow in ((20, True), (21, False)):
            network = HiddenCauses(cause="shift", period=10)
            factor, *_, compute = spared(network, HierarchicalNetwork(), first=first, num_rounds=1)
            assert (factor[compute < 0.4].mean() > factor[compute > 0.7].mean()) == slow

    @pytest.mark.parametrize(("features", "compute"), [(1, 0), (2, 1), (4, 1)])
    def test_compute_is_the_second_feature(self, features, compute):
        """With one feature, the download rate stands for the compute too."""
        networks = [kind(num_features=features) for kind in (partial(HiddenCauses, cause="hump"), HierarchicalNetwork)]
        factor, _, _, _, *context = spared(*networks, num_rounds=3)
        np.testing.assert_allclose(factor, np.exp(-(((context[compute] - 0.5) / 0.15) ** 2)))

    def test_links_fail_one_by_one(self):
        """Of the links of an odd server in a round, some are spared: the draws are not one for all."""
        failing = 0
        for context, outcome, _ in play(HiddenCauses(cause="server"), 30):
            works = outcome.responds[context.server == 0]
            failing += 0 < works.sum() < works.shape[0]
        assert failing >= 25

    def test_turns(self):
        network = HiddenCauses(cause="turns", period=10)
        for first, turn in ((1, 0), (10, 1), (20, 2), (30, 0)):
            factor, _, client, *_ = spared(network, HierarchicalNetwork(), first=first, num_rounds=3)
            np.testing.assert_allclose(factor, np.where((client + turn) % 3 == 0, 0.1, 1.0))
