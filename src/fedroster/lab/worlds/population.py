r"""Fleets of devices: drawn from real traces, or from a mixture that is calibrated to their published quantiles.

A client is an index into a table of session patterns, a shift in time, and two speeds: 32 bytes.  A million clients so
need no more memory than their speeds do, and share patterns: each pattern is followed by many clients, at shifts of
their own (:func:`draw_shifts`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from fedroster.errors import DataFileError
from fedroster.lab.worlds.table import Sessions, Speeds
from fedroster.types import FloatArray, IntArray, kept

DAY_S = 86_400.0
LEVELS = (0.05, 0.25, 0.50, 0.75, 0.95)
"""Levels at which the quantiles are published."""
COMPUTE_MS = (19.0, 24.0, 41.0, 148.0, 190.0)
"""Quantiles of the time for a sample, milliseconds: FedScale's device capacities."""
BANDWIDTH_MBPS = (1.4, 2.9, 6.2, 14.5, 54.1)
"""Quantiles of the speed of a link, Mbit/s: FedScale's device capacities."""
SHARE = (0.02, 0.07, 0.13, 0.22, 0.41)
"""Quantiles of the share of time for which a device is available: charging, in the FLASH trace."""

COMPUTE_ENDS_MS = (15.0, 199.0)
BANDWIDTH_ENDS_MBPS = (1.0, 204.0)
SHARE_ENDS = (0.002, 0.91)

NUM_PATTERNS = 4096
"""Most patterns of sessions of a calibrated fleet."""
PATTERN_DAYS = 7
_LEAST_GAP_S = 60.0

HOURLY: tuple[float, ...] = (
    *(1.12, 1.23, 1.28, 1.28, 1.25, 1.24, 1.19, 1.06, 0.94, 0.92, 0.88, 0.82),
    *(0.80, 0.81, 0.82, 0.82, 0.90, 0.92, 0.97, 0.91, 0.83, 0.90, 1.02, 1.10),
)
"""Available devices in each hour of the day, relative to their mean: 300 devices of the FLASH trace, six days."""

# Of the same devices: sessions of a device, length of a session in seconds, starts by the hour of the day.
_COUNT_LEVELS = (0.0, *LEVELS, 1.0)
_COUNT = (1.0, 2.0, 6.0, 14.0, 25.0, 58.0, 120.0)
_COUNT_DAYS = 6.0
_RANK_CORRELATION = 0.6  # of the number of sessions and the share
_LENGTH_LEVELS = (0.0, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99, 1.0)
_LENGTH_S = (1.0, 2.0, 3.0, 41.0, 957.0, 3775.0, 10_600.0, 20_700.0, 37_200.0, 60_000.0)
_STARTS = (
    *(223, 167, 90, 68, 69, 134, 283, 176, 165, 192, 249, 283),
    *(243, 228, 234, 373, 335, 321, 396, 410, 435, 366, 320, 216),
)
# Relative length of the sessions that start in each hour, fitted so that HOURLY comes out.
_LENGTH_BY_HOUR = (
    *(2.3, 2.5, 6.2, 4.4, 3.6, 0.8, 0.2, 0.1, 0.1, 0.3, 0.1, 0.1),
    *(0.1, 0.2, 0.1, 0.1, 0.1, 0.2, 0.1, 0.1, 0.1, 0.3, 0.5, 0.9),
)


@dataclass(frozen=True, slots=True)
class Fleet:
    """The devices of the clients.

    Attributes:
        device: Whose sessions each client follows, shape (clients,).
        shift_s: How far it is ahead in them, shape (clients,), seconds.
        compute_s: Inference on one sample, shape (clients,), or (sessions,) if ``by_session``, seconds.
        bandwidth_bps: Speed of the link, shape (clients,), or (sessions,) if ``by_session``, bit/s.
        by_session: Whether the speeds belong to sessions rather than to clients.
    """

    device: IntArray = kept(0)
    shift_s: FloatArray = kept(-np.inf)
    compute_s: FloatArray = kept(0.0)
    bandwidth_bps: FloatArray = kept(0.0)
    by_session: bool = kept(fixed=True)


def log_uniform_mixture(levels: FloatArray, quantiles: tuple[float, ...], ends: tuple[float, float]) -> FloatArray:
    r"""Quantile function of a mixture of log-uniform pieces between quantiles q at :data:`LEVELS`, at levels u.

    .. math:: \log Q(u) = \log q_j + \frac{u - p_j}{p_{j+1} - p_j} \log\frac{q_{j+1}}{q_j},\qquad p_j \le u \le p_{j+1}

    so that :math:`Q(p_j) = q_j` exactly; ``ends`` are q at 0 and at 1.
    """
    knots = (ends[0], *quantiles, ends[1])
    value: FloatArray = np.exp(np.interp(levels, (0.0, *LEVELS, 1.0), np.log(knots)))
    return value


def calibrated_speeds(num_devices: int, *, rng: Generator) -> Speeds:
    """Speeds with the published quantiles; compute and link are independent, as in the published records."""
    compute_ms = log_uniform_mixture(rng.random(num_devices), COMPUTE_MS, COMPUTE_ENDS_MS)
    bandwidth_mbps = log_uniform_mixture(rng.random(num_devices), BANDWIDTH_MBPS, BANDWIDTH_ENDS_MBPS)
    return Speeds(compute_s=compute_ms / 1e3, bandwidth_bps=bandwidth_mbps * 1e6)


def _clip_to_gaps(raw_s: FloatArray, gap_s: FloatArray, offsets: IntArray, target_s: FloatArray) -> FloatArray:
    """Lengths min(c raw, gap) with the factor c of each device such that they sum to the target, by bisection."""
    num_sessions = np.diff(offsets)
    low, high = np.full(target_s.shape, 1e-9), np.full(target_s.shape, 1e9)
    for _ in range(64):
        factor = np.sqrt(low * high)
        total = np.add.reduceat(np.minimum(raw_s * np.repeat(factor, num_sessions), gap_s), offsets[:-1])
        short = total < target_s
        low, high = np.where(short, factor, low), np.where(short, high, factor)
    clipped: FloatArray = np.minimum(raw_s * np.repeat(high, num_sessions), gap_s)
    return clipped


def calibrated_sessions(num_devices: int, *, rng: Generator) -> Sessions:
    """A week of charging sessions for each device, with the published shares and a daily rhythm; time 0 is midnight.

    The share of time of a device is drawn from the published quantiles, stratified, so that few devices have them too.
    How many sessions it has, when in the day they start, and how long they are relative to each other follows 300
    devices of the FLASH trace; the lengths are then scaled together, and cut where the next session starts, until
    their sum is the device's share of the week.  Sessions that start at night last longer, so that the devices there by
    the hour of the day follow :data:`HOURLY`, within about 15 %.

    Not modelled: differences between the days of the week, habits that a device keeps from day to day, and bursts of
    sessions of seconds, as a loose plug makes them.
    """
    from scipy.special import ndtr, ndtri

    period_s = PATTERN_DAYS * DAY_S
    level = rng.permutation((np.arange(num_devices) + rng.random(num_devices)) / num_devices)
    share = log_uniform_mixture(level, SHARE, SHARE_ENDS)
    rho = 2.0 * np.sin(np.pi * _RANK_CORRELATION / 6.0)  # of the normal copula with that rank correlation
    other = ndtr(rho * ndtri(level) + np.sqrt(1.0 - rho * rho) * rng.standard_normal(num_devices))
    count = np.exp(np.interp(other, _COUNT_LEVELS, np.log(_COUNT))) * (PATTERN_DAYS / _COUNT_DAYS)
    count = np.maximum(np.rint(count), 1.0).astype(np.int64)
    offsets = np.concatenate(([0], np.cumsum(count)))
    device = np.repeat(np.arange(num_devices), count)

    num_sessions = int(offsets[-1])
    edges = np.concatenate(([0.0], np.cumsum(_STARTS))) / sum(_STARTS)
    hour = np.interp(rng.random(num_sessions), edges, np.arange(25.0))
    start_s = rng.integers(0, PATTERN_DAYS, num_sessions) * DAY_S + hour * 3600.0
    start_s = start_s[np.lexsort((start_s, device))]
    hour_of = (start_s % DAY_S / 3600.0).astype(np.int64)
    raw_s = np.exp(np.interp(rng.random(num_sessions), _LENGTH_LEVELS, np.log(_LENGTH_S)))
    raw_s *= np.asarray(_LENGTH_BY_HOUR)[hour_of]
    # The last session may run over the end of the week, until the first one starts again.
    following = np.empty(num_sessions)
    following[:-1] = start_s[1:]
    following[offsets[1:] - 1] = start_s[offsets[:-1]] + period_s
    gap_s = np.maximum(following - start_s - _LEAST_GAP_S, 0.0)
    end_s = start_s + _clip_to_gaps(raw_s, gap_s, offsets, share * period_s)

    over = np.flatnonzero(end_s > period_s)
    head_s = end_s[over] - period_s
    end_s[over] = period_s
    place = offsets[device[over]]  # what runs over becomes a session at the start of the week
    start_s, end_s = np.insert(start_s, place, 0.0), np.insert(end_s, place, head_s)
    count[device[over]] += 1
    return Sessions(
        offsets=np.concatenate(([0], np.cumsum(count))),
        start_s=start_s,
        end_s=end_s,
        period_s=period_s,
    )


def draw_shifts(num_clients: int, period_s: float, *, jitter_s: float, rng: Generator) -> FloatArray:
    """Shifts that keep the hour of the day, shape (clients,): whole days, and up to ``jitter_s`` either way.

    A trace whose period is not a whole number of days is shifted by the jitter alone.
    """
    days = np.floor(period_s / DAY_S)
    day = np.floor(rng.random(num_clients) * (days if days * DAY_S == period_s else 1.0))
    return day * DAY_S + jitter_s * (2.0 * rng.random(num_clients) - 1.0)


def deal(num_devices: int, num_clients: int, *, rng: Generator) -> IntArray:
    """Device of each client, shape (clients,): each device as often as any other, or once more, in random order."""
    whole, rest = divmod(num_clients, num_devices)
    dealt = np.concatenate((np.tile(np.arange(num_devices), whole), rng.permutation(num_devices)[:rest]))
    return rng.permutation(dealt)


def draw_fleet(
    sessions: Sessions,
    speeds: Speeds,
    num_clients: int,
    *,
    paired: bool,
    resample: bool,
    shift: bool,
    jitter_s: float,
    rng: Generator,
) -> Fleet:
    """Draw clients.

    With ``resample`` devices are dealt out to any number of clients (:func:`deal`), else client n is the n-th device of
    the sessions; ``shift`` moves clients in time (:func:`draw_shifts`).  Speeds that are not ``paired`` with the
    sessions, for they are of other devices, are dealt out on their own.
    """
    if not resample and sessions.num_devices < num_clients:
        raise DataFileError(
            f"the traces hold {sessions.num_devices} devices; expected at least num_clients = {num_clients}, "
            "or resample = true"
        )
    device = deal(sessions.num_devices, num_clients, rng=rng) if resample else np.arange(num_clients)
    shift_s = np.zeros(num_clients)
    if shift:
        shift_s = draw_shifts(num_clients, sessions.period_s, jitter_s=jitter_s, rng=rng)
    compute_s, bandwidth_bps = speeds.compute_s, speeds.bandwidth_bps
    if not speeds.by_session:
        row = device if paired else deal(compute_s.shape[0], num_clients, rng=rng)
        compute_s, bandwidth_bps = compute_s[row], bandwidth_bps[row]
    return Fleet(device, shift_s, compute_s, bandwidth_bps, speeds.by_session)
