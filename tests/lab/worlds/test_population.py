"""Fleets: drawn quantiles against the published ones, the daily rhythm, and the real records."""

import os
from pathlib import Path

import numpy as np
import pytest
from benchmarks.flash import END_S, fedscale_speeds, flash_sessions
from scipy.stats import spearmanr

from fedroster.core.errors import DataFileError
from fedroster.core.streams import Streams
from fedroster.lab.worlds.availability import look_up, timetable
from fedroster.lab.worlds.network import TraceNetwork
from fedroster.lab.worlds.population import (
    BANDWIDTH_MBPS,
    COMPUTE_MS,
    DAY_S,
    HOURLY,
    LEVELS,
    NUM_PATTERNS,
    SHARE,
    calibrated_sessions,
    calibrated_speeds,
    deal,
    draw_fleet,
    draw_shifts,
    log_uniform_mixture,
)
from fedroster.lab.worlds.table import Sessions, Speeds

REAL = Path(os.environ.get("FEDROSTER_DATA", ""), "fedscale")
real = pytest.mark.skipif(not (REAL / "flash_availability_300.npz").is_file(), reason="FEDROSTER_DATA has no fedscale")


def rng(seed=0):
    return np.random.default_rng(seed)


def rank_error(sample, quantiles):
    """Largest distance between a level and the share of the sample up to its quantile."""
    return max(abs(np.mean(sample <= q) - level) for level, q in zip(LEVELS, quantiles, strict=True))


def assert_sound(sessions):
    """Each device has a session or more, in order, without overlap, within the period."""
    assert (np.diff(sessions.offsets) >= 1).all()
    earliest = np.append(0.0, sessions.end_s[:-1])
    earliest[sessions.offsets[:-1]] = 0.0
    assert (earliest <= sessions.start_s).all()
    assert (sessions.start_s <= sessions.end_s).all()
    assert (sessions.end_s <= sessions.period_s).all()


def test_the_mixture_has_the_published_quantiles():
    np.testing.assert_allclose(log_uniform_mixture(np.array(LEVELS), COMPUTE_MS, (15.0, 199.0)), COMPUTE_MS)
    ends = log_uniform_mixture(np.array([0.0, 1.0]), COMPUTE_MS, (15.0, 199.0))
    np.testing.assert_allclose(ends, (15.0, 199.0))
    halfway = log_uniform_mixture(np.array([0.15]), COMPUTE_MS, (15.0, 199.0))
    np.testing.assert_allclose(halfway, np.sqrt(19.0 * 24.0))


def test_drawn_speeds_have_the_published_quantiles():
    """At 100,000 draws the standard error of a rank is at most 0.0016; the quantiles themselves agree to 3 %."""
    speeds = calibrated_speeds(100_000, rng=rng())
    compute_ms, bandwidth_mbps = speeds.compute_s * 1e3, speeds.bandwidth_bps / 1e6
    for sample, quantiles in ((compute_ms, COMPUTE_MS), (bandwidth_mbps, BANDWIDTH_MBPS)):
        assert rank_error(sample, quantiles) < 0.006
        np.testing.assert_allclose(np.quantile(sample, LEVELS), quantiles, rtol=0.03)
        assert rank_error(sample * 1.1, quantiles) > 0.006  # negative control
    assert abs(np.corrcoef(np.argsort(np.argsort(compute_ms)), np.argsort(np.argsort(bandwidth_mbps)))[0, 1]) < 0.015


@pytest.mark.parametrize("num_devices", [1000, NUM_PATTERNS])
def test_drawn_shares_have_the_published_quantiles(num_devices):
    """Stratified: to one part in the number of devices, and 1 % of the value."""
    share = calibrated_sessions(num_devices, rng=rng()).share()
    assert rank_error(share, np.array(SHARE) * (1 + 1e-6)) <= 2.0 / num_devices
    np.testing.assert_allclose(np.quantile(share, LEVELS), SHARE, rtol=0.01)


@pytest.mark.parametrize("num_devices", [1, 2, 7, 500])
@pytest.mark.parametrize("seed", range(5))
def test_drawn_sessions_are_sound(num_devices, seed):
    sessions = calibrated_sessions(num_devices, rng=rng(seed))
    assert_sound(sessions)
    assert sessions.period_s == 7 * DAY_S


def test_sessions_are_as_many_and_as_long_as_in_the_flash_trace():
    """Of 300 devices: 6, 14 and 25 sessions in six days, of 41, 957 and 3,775 s, and more where the share is larger."""
    sessions = calibrated_sessions(NUM_PATTERNS, rng=rng(1))
    count = np.diff(sessions.offsets)
    np.testing.assert_allclose(np.quantile(count, [0.25, 0.5, 0.75]) * 6.0 / 7.0, [6.0, 14.0, 25.0], rtol=0.1)
    length_s = np.quantile(sessions.end_s - sessions.start_s, [0.25, 0.5, 0.75])
    np.testing.assert_allclose(length_s, [41.0, 957.0, 3775.0], rtol=0.4)
    assert spearmanr(count, sessions.share()).statistic == pytest.approx(0.6, abs=0.05)


def hourly(sessions, shift_s):
    num_devices = sessions.num_devices
    table, device = timetable(sessions), np.arange(num_devices)
    times_s = np.arange(7 * 24) * 3600.0 + 1800.0
    there = np.array([np.mean(look_up(table, device, shift_s, t)[0] > 0.0) for t in times_s])
    by_hour = there.reshape(7, 24).mean(axis=0)
    return by_hour / by_hour.mean()


def test_the_daily_rhythm_is_that_of_the_flash_trace():
    """Within 20 % in every hour; also after the shifts.  A shift that is no whole day would flatten it."""
    sessions = calibrated_sessions(NUM_PATTERNS, rng=rng(5))
    np.testing.assert_allclose(hourly(sessions, np.zeros(NUM_PATTERNS)), HOURLY, rtol=0.2)
    shifts = draw_shifts(NUM_PATTERNS, sessions.period_s, jitter_s=1800.0, rng=rng(6))
    np.testing.assert_allclose(hourly(sessions, shifts), HOURLY, rtol=0.2)
    flat = hourly(sessions, rng(7).uniform(0.0, 7 * DAY_S, NUM_PATTERNS))
    assert np.abs(flat / np.array(HOURLY) - 1.0).max() > 0.2  # negative control


@pytest.mark.parametrize(("num_devices", "num_clients"), [(5, 5), (5, 17), (5, 3), (1, 4)])
def test_devices_are_dealt_evenly(num_devices, num_clients):
    dealt = deal(num_devices, num_clients, rng=rng())
    counts = np.bincount(dealt, minlength=num_devices)
    assert dealt.shape == (num_clients,)
    assert counts.max() - counts.min() <= 1


def test_shifts_are_whole_days_and_a_jitter():
    shifts = draw_shifts(5000, 7 * DAY_S, jitter_s=600.0, rng=rng())
    day = np.rint(shifts / DAY_S)
    assert np.abs(shifts - day * DAY_S).max() <= 600.0
    np.testing.assert_array_equal(np.unique(day), np.arange(7))
    assert np.abs(draw_shifts(50, 1000.0, jitter_s=5.0, rng=rng())).max() <= 5.0
    assert np.array_equal(draw_shifts(9, 1000.0, jitter_s=0.0, rng=rng()), np.zeros(9))


def fleet_of(num_clients, *, seed=0, shift=False, jitter_s=0.0, **options):
    """Clients of three devices."""
    sessions = Sessions(np.array([0, 1, 2, 3]), np.zeros(3), np.full(3, 10.0), 100.0)
    speeds = Speeds(np.array([0.1, 0.2, 0.3]), np.array([1e6, 2e6, 3e6]))
    return draw_fleet(sessions, speeds, num_clients, shift=shift, jitter_s=jitter_s, rng=rng(seed), **options)


def test_paired_devices_stay_together():
    fleet = fleet_of(10, paired=True, resample=True)
    np.testing.assert_allclose(fleet.compute_s, 0.1 * (fleet.device + 1))
    np.testing.assert_allclose(fleet.bandwidth_bps, 1e6 * (fleet.device + 1))
    exact = fleet_of(2, paired=True, resample=False)
    assert exact.device.tolist() == [0, 1]
    assert exact.compute_s.tolist() == [0.1, 0.2]


def test_other_speeds_are_dealt_on_their_own():
    fleets = [fleet_of(30, paired=False, resample=True, shift=True, jitter_s=1.0) for _ in range(2)]
    assert np.array_equal(fleets[0].device, fleets[1].device)
    assert not np.allclose(fleets[0].compute_s, 0.1 * (fleets[0].device + 1))
    assert np.bincount(np.rint(fleets[0].compute_s * 10).astype(int)).tolist() == [0, 10, 10, 10]
    np.testing.assert_allclose(fleets[0].bandwidth_bps, fleets[0].compute_s * 1e7)  # the pairs are kept


def test_too_few_devices():
    with pytest.raises(DataFileError, match="3 devices"):
        fleet_of(4, paired=True, resample=False)


def test_a_calibrated_fleet_of_a_million_would_have_4096_patterns():
    for num_clients, patterns in ((NUM_PATTERNS + 1, NUM_PATTERNS), (3, 3)):
        state = TraceNetwork(num_clients=num_clients).init(rng=Streams(0).at("environment-init"))
        assert state.table.sessions.num_devices == patterns
        assert np.unique(state.fleet.compute_s).shape == (num_clients,)


def test_flash_states_become_sessions(tmp_path):
    """The first is there from 1000 to 2000, the second always, the third never; the first 300 s are not believed."""
    arrays = {
        "offsets_2st": np.array([0, 5, 7, 9], np.int32),
        "time_s_2st": np.array([0, 300, 1000, 2000, 530_000, 0, 300, 0, 300], np.int32),
        "state_2st": np.array([2, 0, 2, 0, 2, 2, 2, 2, 0], np.uint8),
    }
    np.savez(tmp_path / "flash.npz", **arrays)
    sessions = flash_sessions(tmp_path / "flash.npz")
    assert_sound(sessions)
    assert sessions.offsets.tolist() == [0, 1, 2]
    assert sessions.start_s.tolist() == [1000.0, 0.0]
    assert sessions.end_s.tolist() == [2000.0, END_S]


@real
def test_the_real_subsets_have_the_published_quantiles():
    """Drawn from 10,000 capacities and 300 devices' sessions: to their last printed digit, nearly."""
    sessions = flash_sessions(REAL / "flash_availability_300.npz")
    speeds = fedscale_speeds(REAL / "fedscale_capacity_first10000.npz")
    how = {"paired": False, "resample": True, "shift": True, "jitter_s": 0.0}
    fleet = draw_fleet(sessions, speeds, 30_000, **how, rng=rng())
    np.testing.assert_allclose(np.quantile(fleet.compute_s * 1e3, LEVELS), COMPUTE_MS, atol=0.5)
    np.testing.assert_allclose(np.quantile(fleet.bandwidth_bps / 1e6, LEVELS), BANDWIDTH_MBPS, rtol=0.04)
    np.testing.assert_allclose(np.quantile(sessions.share()[fleet.device], LEVELS), SHARE, atol=0.011)
