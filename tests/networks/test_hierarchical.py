import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedroster.core.problem import check_context
from fedroster.core.streams import Streams
from fedroster.networks.hierarchical import (
    GeometricCifar10,
    GeometricMnist,
    HierarchicalCifar10,
    HierarchicalNetwork,
    links_in_reach,
    move,
)
from fedroster.policies.uniform import Uniform
from fedroster.testing import EnvironmentContract
from variants import check_variant, play


class Contract(EnvironmentContract):
    rounds = 200


@pytest.mark.usefixtures("resumes_in_forks")
class TestMnistContract(Contract):
    def environment(self):
        return HierarchicalNetwork(num_clients=12)


@pytest.mark.usefixtures("resumes_in_forks")
class TestGeometricContract(Contract):
    def environment(self):
        return GeometricCifar10(num_clients=20, num_servers=4, num_features=3)


@pytest.mark.parametrize(
    "network",
    [
        HierarchicalCifar10(num_clients=12, num_servers=2, num_features=1),
        HierarchicalCifar10(num_clients=12, num_features=6, static_resources=True, dropout=0.2),
    ],
    ids=["one feature", "static"],
)
def test_variants(network):
    check_variant(Contract, network)


class TestTableI:
    @pytest.mark.parametrize(
        ("network", "bits", "bytes_", "deadline_s", "budget", "band", "compute", "least_cost"),
        [
            (HierarchicalNetwork(), 0.18e6, 2.41e6, 3.0, 3.5, (0.3e6, 1e6), (2e6, 4e6), 1.0),
            (HierarchicalCifar10(), 18.7e6, 28.3e6, 20.0, 40.0, (2e6, 4e6), (8e6, 15e6), 4.0),
        ],
    )
    def test_values(self, network, bits, bytes_, deadline_s, budget, band, compute, least_cost):
        assert (network.num_clients, network.num_servers, network.power_dbm) == (50, 3, 23.0)
        assert (network.update_size_bit, network.workload_byte) == (bits, bytes_)
        assert (network.deadline_s, network.budget) == (deadline_s, budget)
        assert (network.bandwidth_min_hz, network.bandwidth_max_hz) == band
        assert (network.compute_min_hz, network.compute_max_hz) == compute
        assert (network.price_min, network.price_max, network.reach_km) == (0.5, 2.0, 2.0)
        assert (network.global_period, network.least_cost) == (5, least_cost)

    @pytest.mark.parametrize(
        ("geometric", "printed"),
        [(GeometricMnist(), HierarchicalNetwork()), (GeometricCifar10(), HierarchicalCifar10())],
    )
    def test_geometric_variants_differ_in_geometry_only(self, geometric, printed):
        left, right = dataclasses.asdict(geometric), dataclasses.asdict(printed)
        assert {name for name in left if left[name] != right[name]} == {"geometry"}


class TestRounds:
    def test_contexts_pass_the_check_and_lie_in_the_cube(self):
        for network in (HierarchicalNetwork(num_features=7), GeometricMnist(num_features=4)):
            for context, _, _ in play(network, 20):
                check_context(context, network.spec)
                assert context.features.flags.f_contiguous
                assert ((context.features >= 0) & (context.features <= 1)).all()

    def test_printed_geometry_has_every_pair_and_fresh_distances(self):
        network = HierarchicalNetwork(num_features=4)
        distances = []
        for context, _, _ in play(network, 200):
            assert context.num_links == 150
            pairs = np.stack((context.client, context.server))
            assert np.unique(pairs, axis=1).shape[1] == 150
            distances.append(context.features[:, 3])
        distance = np.array(distances)
        assert distance.min() > 0.0
        size = distance.size
        assert abs(distance.mean() - 0.5) < 4.5 / math.sqrt(12 * size)
        assert abs(np.corrcoef(distance[1:, 0], distance[:-1, 0])[0, 1]) < 0.35  # not carried over

    def test_a_cost_is_price_times_compute_and_the_price_stays(self):
        network = HierarchicalNetwork()
        for context, _, state in play(network, 10):
            compute_mhz = 2.0 + 2.0 * context.features[:, 1]
            np.testing.assert_allclose(context.cost, state.price[context.client] * compute_mhz)
            np.testing.assert_array_equal(context.budget, [3.5] * 3)
            assert ((state.price >= 0.5) & (state.price <= 2.0)).all()

    def test_the_time_is_download_computation_and_upload(self):
        network = HierarchicalCifar10()
        for context, outcome, _ in play(network, 20):
            exact = context.features[:, 0] < 1.0  # not clipped
            rate = context.features[exact, 0] * network.rate_bound_bps
            known_s = network.update_size_bit / rate + network.workload_byte / (8e6 + 7e6 * context.features[exact, 1])
            assert (outcome.exchange_time_s[exact] > known_s).all()
            assert np.isinf(outcome.expected_time_s).all()
            np.testing.assert_array_equal(outcome.in_time, outcome.exchange_time_s <= 20.0)

    def test_further_features_have_no_effect(self):
        few = list(play(HierarchicalNetwork(num_features=4), 3))
        many = list(play(HierarchicalNetwork(num_features=6), 3))
        for (left, first, _), (right, second, _) in zip(few, many, strict=True):
            np.testing.assert_array_equal(left.features, right.features[:, :4])
            np.testing.assert_array_equal(first.exchange_time_s, second.exchange_time_s)
            np.testing.assert_allclose(first.participation_probability(), second.participation_probability())

    def test_static_resources_stay_and_fading_goes_on(self):
        network = HierarchicalNetwork(num_features=4, static_resources=True)
        (one, first, _), (two, second, _) = play(network, 2)
        np.testing.assert_array_equal(one.cost, two.cost)
        np.testing.assert_array_equal(one.features[:, 1:], two.features[:, 1:])
        assert (first.exchange_time_s != second.exchange_time_s).all()

    @pytest.mark.parametrize(
        "network",
        [
            HierarchicalCifar10(),
            HierarchicalCifar10(num_features=1),
            HierarchicalCifar10(num_features=4),
            HierarchicalCifar10(static_resources=True),
            GeometricCifar10(),
            HierarchicalCifar10(dropout=0.3),
        ],
    )
    def test_probabilities_are_calibrated(self, network):
        happened, expected = [], []
        for _, outcome, _ in play(network, 150, seed=3):
            happened.append(outcome.in_time)
            expected.append(outcome.participation_probability())
        x, p = np.concatenate(happened), np.concatenate(expected)
        for low in np.arange(0.0, 1.0, 0.1):
            inside = (p >= low) & (p < low + 0.1)
            spread = np.sqrt((p[inside] * (1 - p[inside])).sum())
            assert abs((x[inside] - p[inside]).sum()) <= 4.5 * spread + 1e-9
        # Negative control: the same test refuses probabilities that are a little off.
        wrong = np.clip(p * 0.95, 0, 1)
        assert abs((x - wrong).sum()) > 4.5 * np.sqrt((wrong * (1 - wrong)).sum())


class TestGeometry:
    @given(
        st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5)), max_size=12),
        st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5)), min_size=1, max_size=5),
    )
    def test_links_in_reach_by_brute_force(self, places, sites):
        position, site = np.array(places).reshape(-1, 2).T.copy(), np.array(sites).T.copy()
        client, server, distance = links_in_reach(position, site, 2.0)
        expected = [
            (n, m)
            for n in range(len(places))
            for m in range(len(sites))
            if (places[n][0] - sites[m][0]) ** 2 + (places[n][1] - sites[m][1]) ** 2 <= 4.0
        ]
        assert list(zip(client.tolist(), server.tolist(), strict=True)) == expected
        assert (distance <= 2.0 + 1e-12).all()

    def test_reach_is_what_was_asked_for(self):
        network = HierarchicalNetwork(num_clients=2000, num_servers=100, geometry="geometric", mean_reach=3.0)
        context = next(play(network, 1))[0]
        assert 2.5 < context.num_links / 2000 < 3.0  # fewer near the sides

    def test_coverage_changes_and_stays_uniform(self):
        network = GeometricMnist(num_clients=400, speed_m_s=100.0)
        rounds = list(play(network, 200))
        first, last = rounds[0], rounds[-1]
        pairs = [set(zip(c.client.tolist(), c.server.tolist(), strict=True)) for c, _, _ in (first, last)]
        assert pairs[0] != pairs[1]
        assert any(set(range(400)) - {n for n, _ in now} for now in pairs)  # some client is out of every server's reach
        place = last[2].position_km / network.side_km
        assert ((place >= 0) & (place <= 1)).all()
        assert abs(place.mean() - 0.5) < 4.5 / math.sqrt(12 * place.size)
        assert abs(place.var() - 1 / 12) < 0.012
        speed = np.sqrt((last[2].velocity_m_s ** 2).sum(axis=0).mean())
        assert abs(speed / 100.0 - 1.0) < 0.2

    def test_movement_is_continuous_and_reflected(self):
        position, velocity = np.array([[0.1], [1.9]]), np.array([[-200.0], [200.0]])
        still = np.zeros((2, 1))
        place, speed = move(position, velocity, noise=still, memory=1.0, speed_m_s=0.0, time_s=1.0, side_km=2.0)
        np.testing.assert_allclose(place, [[0.1], [1.9]])  # 0.2 km past 0.1 km from the side
        np.testing.assert_allclose(speed, [[200.0], [-200.0]])

    def test_nobody_in_reach_is_a_round_without_rows(self):
        network = HierarchicalNetwork(num_clients=2, num_servers=1, geometry="geometric", mean_reach=1e-6)
        context, outcome, state = next(play(network, 1))
        assert context.num_links == 0
        assert outcome.in_time.shape == (0,)
        selection = Uniform().select(Uniform().init(network.spec, rng=None), context, rng=Streams(0).at("x"))
        assert selection.is_empty
        network.advance(state, context, selection)


def test_equal_ends_are_allowed():
    network = HierarchicalNetwork(compute_min_hz=3e6, compute_max_hz=3e6, bandwidth_min_hz=1e6, shadowing_db=0.0)
    context, outcome, _ = next(play(network, 1))
    assert (context.features[:, 1] == 0.0).all()
    assert np.isfinite(outcome.participation_probability()).all()
