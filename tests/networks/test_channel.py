import numpy as np
import pytest
from scipy.integrate import dblquad

from fedroster.networks.channel import (
    _BLOCK,
    EXPONENT,
    channel_constant,
    mean_snr,
    pair_normal,
    participation_probability,
)

SIZE_BIT, WORKLOAD, DEADLINE_S = 18.7e6, 28.3e6, 20.0
BANDWIDTH, COMPUTE, RADIUS_KM = (2e6, 4e6), (8e6, 15e6), 2.0


def constant(shadowing_db=0.0, size=1):
    return channel_constant(np.full(size, shadowing_db), power_dbm=23.0, noise_dbm_hz=-174.0)


def probability(rate, **changes):
    known = {
        "deadline_s": DEADLINE_S,
        "size_bit": SIZE_BIT,
        "constant_hz": constant(size=len(rate)),
        "workload_byte": WORKLOAD,
        "compute_hz": np.full(len(rate), 10e6),
        "bandwidth_hz": BANDWIDTH,
        "distance_km": RADIUS_KM,
    }
    return participation_probability(np.asarray(rate), **(known | changes))


class TestLinkBudget:
    def test_distance_zero_counts_as_the_least_distance(self):
        none, least, more = (mean_snr(constant(), np.array([km]), np.array([1e6])) for km in (0.0, 0.001, 0.002))
        assert none == least > more

    def test_snr_by_hand(self):
        # 23 dBm - 128.1 dB - (-174 dBm/Hz + 60 dBHz) = 8.9 dB; shadowing comes off, ten times the distance costs 37.6.
        snr = mean_snr(constant(2.0), np.array([1.0]), np.array([1e6]))
        np.testing.assert_allclose(10 * np.log10(snr), 6.9)
        far = mean_snr(constant(2.0), np.array([10.0]), np.array([1e6]))
        np.testing.assert_allclose(10 * np.log10(far), 6.9 - 37.6)


class TestPairNormal:
    client, server = (index.ravel() for index in np.meshgrid(np.arange(400), np.arange(100), indexing="ij"))

    def test_is_standard_normal(self):
        draws = pair_normal(5, self.client, self.server)
        size = draws.size
        assert abs(draws.mean()) < 4.5 / np.sqrt(size)
        assert abs(draws.var() - 1.0) < 4.5 * np.sqrt(2.0 / size)
        assert abs((draws > 1.6449).mean() - 0.05) < 4.5 * np.sqrt(0.05 * 0.95 / size)

    def test_neighbours_and_keys_are_not_correlated(self):
        table = pair_normal(5, self.client, self.server).reshape(400, 100)
        other = pair_normal(6, self.client, self.server).reshape(400, 100)
        for left, right in ((table[1:], table[:-1]), (table[:, 1:], table[:, :-1]), (table, other)):
            assert abs(np.corrcoef(left.ravel(), right.ravel())[0, 1]) < 4.5 / np.sqrt(left.size)

    def test_the_same_whenever_it_is_asked_for(self):
        rows = np.array([3, 17, 5])
        whole = pair_normal(5, self.client, self.server)
        np.testing.assert_array_equal(pair_normal(5, self.client[rows], self.server[rows]), whole[rows])


def upload_in_time(time_s, *, bandwidth_hz, constant_hz, distance_km):
    needed = (2.0 ** (SIZE_BIT / (bandwidth_hz * time_s)) - 1.0) / mean_snr(constant_hz, distance_km, bandwidth_hz)
    return np.exp(-needed)


class TestParticipationProbability:
    def test_known_channel_is_the_upload_alone(self):
        rate, distance = np.array([3e6, 5e6]), np.array([0.8, 1.2])
        band, compute = np.array([2.5e6, 3.5e6]), np.array([9e6, 12e6])
        found = probability(rate, compute_hz=compute, bandwidth_hz=band, distance_km=distance)
        left_s = DEADLINE_S - SIZE_BIT / rate - WORKLOAD / compute
        expected = upload_in_time(left_s, bandwidth_hz=band, constant_hz=constant(size=2), distance_km=distance)
        np.testing.assert_allclose(found, expected, rtol=1e-12)

    @pytest.mark.parametrize("shadowing_db", [-8.0, 0.0, 8.0])
    @pytest.mark.parametrize("rate", [1.2e6, 2.5e6, 6e6, 30e6])
    def test_unknown_band_and_distance_by_brute_force(self, rate, shadowing_db):
        kappa = float(constant(shadowing_db)[0])
        left_s = DEADLINE_S - SIZE_BIT / rate - WORKLOAD / 10e6

        def density(d, b):  # of the rate, times what does not depend on b and d
            return 2 ** (rate / b) * d**EXPONENT * np.exp(-(2 ** (rate / b) - 1) * b / kappa * d**EXPONENT)

        def success(d, b):
            if left_s <= 0:
                return 0.0
            return density(d, b) * np.exp(-(2 ** (SIZE_BIT / (b * left_s)) - 1) * b / kappa * d**EXPONENT)

        below = dblquad(density, *BANDWIDTH, 0, RADIUS_KM, epsrel=1e-7)[0]
        above = dblquad(success, *BANDWIDTH, 0, RADIUS_KM, epsrel=1e-7)[0]
        found = probability([rate], constant_hz=constant(shadowing_db))
        np.testing.assert_allclose(found, above / below, atol=2e-4)

    def test_unknown_compute_is_the_mean_over_it(self):
        rate = np.array([2.2e6, 6e6])
        grid = np.linspace(*COMPUTE, 801)
        each = [probability(rate, compute_hz=np.full(2, compute)) for compute in grid]
        mean = (np.sum(each, axis=0) - (each[0] + each[-1]) / 2) / (len(grid) - 1)
        np.testing.assert_allclose(probability(rate, compute_hz=COMPUTE), mean, atol=2e-3)

    @pytest.mark.parametrize("left_s", [-1.0, 0.0, 1e-9])
    @pytest.mark.parametrize("known", [{}, {"bandwidth_hz": np.full(1, 3e6), "distance_km": np.ones(1)}])
    def test_no_time_no_upload(self, left_s, known):
        spent_s = SIZE_BIT / 5e6 + WORKLOAD / 10e6
        assert probability([5e6], deadline_s=spent_s + left_s, **known) == 0.0

    @pytest.mark.parametrize("rate", [1e-20, 1e-3, 1e12])
    def test_extreme_rates_give_probabilities(self, rate):
        for distance in (RADIUS_KM, np.array([0.5])):
            found = probability([rate], distance_km=distance)
            assert 0.0 <= found[0] <= 1.0

    @pytest.mark.parametrize("known", [False, True])
    def test_many_links_are_each_for_itself(self, known):
        """More links than are worked on at once: the same numbers as a few at a time, to the last bit."""
        rng = np.random.default_rng(0)
        size = 2 * _BLOCK + 777
        rate = rng.uniform(1e6, 2e7, size)
        own = {"constant_hz": constant()[0] * rng.uniform(0.1, 10.0, size), "compute_hz": rng.uniform(*COMPUTE, size)}
        if known:
            own |= {"bandwidth_hz": rng.uniform(*BANDWIDTH, size), "distance_km": rng.uniform(0.0, 2.0, size)}
        found = probability(rate, **own)
        assert np.unique(found).size > size // 2
        for rows in (
            slice(0, 50),
            slice(_BLOCK - 25, _BLOCK + 25),
            slice(2 * _BLOCK - 1, 2 * _BLOCK + 40),
            slice(size - 9, size),
        ):
            few = probability(rate[rows], **{name: values[rows] for name, values in own.items()})
            np.testing.assert_array_equal(found[rows], few)
