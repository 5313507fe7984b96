r"""The wireless channel: path loss, shadowing, Rayleigh fading, Shannon rate (Qu et al. 2021, VI-A; Choice B4).

With :math:`x = d^{3.76}` for a distance of d km, transmit power P, noise density :math:`N_0` and shadowing S dB, a link
of bandwidth b has the mean signal-to-noise ratio

.. math:: \gamma = \frac{\kappa}{b\,x},\qquad \kappa = \frac{P}{N_0} 10^{-(128.1 + S)/10},

and under Rayleigh fading :math:`E \sim \mathrm{Exp}(1)` the rate :math:`r = b \log_2(1 + \gamma E)` (4).  The
exponential tail gives the probability of an upload in time in closed form, :math:`P(a / r \le \tau) =
\exp(-(2^{a / b\tau} - 1) / \gamma)`; what a context leaves out is integrated out, over the distance again in closed
form, :func:`participation_probability`.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.parallel import for_ranges
from fedroster.core.units import dbm_to_w

PATH_LOSS_DB = 128.1
"""Path loss at one kilometre, dB."""
MIN_DISTANCE_KM = 1e-3
"""Shorter distances, zero too, count as this one."""
EXPONENT = 37.6 / 10.0
"""The gain falls with this power of the distance: 37.6 dB for each factor of ten."""
_BLOCK = 4096  # links that are worked on at once: with their nodes they fit into a cache
_NODES = 12  # of the Gauss-Legendre rule over what a context leaves out
_LN2 = math.log(2.0)


def channel_constant(shadowing_db: FloatArray, *, power_dbm: float, noise_dbm_hz: float) -> FloatArray:
    r"""Mean signal-to-noise ratio over 1 Hz at one kilometre, :math:`\kappa`, Hz; shadowing weakens the signal."""
    constant: FloatArray = (
        dbm_to_w(power_dbm) / dbm_to_w(noise_dbm_hz) * 10.0 ** (-(PATH_LOSS_DB + shadowing_db) / 10.0)
    )
    return constant


def mean_snr(constant_hz: FloatArray, distance_km: FloatArray, bandwidth_hz: FloatArray) -> FloatArray:
    r"""Mean signal-to-noise ratio :math:`\gamma = \kappa / (b\, d^{3.76})`, linear."""
    snr: FloatArray = constant_hz / (bandwidth_hz * np.maximum(distance_km, MIN_DISTANCE_KM) ** EXPONENT)
    return snr


def shannon_rate(bandwidth_hz: FloatArray, snr: FloatArray) -> FloatArray:
    r"""Rate :math:`b \log_2(1 + \gamma E)`, bit/s: bandwidth times Qu et al.'s channel state (4)."""
    rate: FloatArray = bandwidth_hz * (np.log1p(snr) / _LN2)
    return rate


def pair_normal(key: int, client: IntArray, server: IntArray) -> FloatArray:
    """A standard normal number for each (client, server) pair, shape (links,): the same whenever it is asked for.

    So what is drawn once for each pair needs no memory, however many pairs there are: a counter-based generator (rounds
    of SplitMix64, then Box and Muller).  Clients and servers are below 2^32.
    """

    def mix(word: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return word ^ (word >> np.uint64(31))

    pair = (client.astype(np.uint64) << np.uint64(32)) | server.astype(np.uint64)
    start = mix(np.full(1, key, np.uint64) + np.uint64(0x9E3779B97F4A7C15))
    first = mix(mix(pair * np.uint64(0x9E3779B97F4A7C15) + start) ^ start)
    second = mix(first + np.uint64(0x9E3779B97F4A7C15))
    scale = 2.0**-53
    radius = np.sqrt(-2.0 * np.log(((first >> np.uint64(11)).astype(np.float64) + 0.5) * scale))
    normal: FloatArray = radius * np.cos((2.0 * math.pi * scale) * (second >> np.uint64(11)).astype(np.float64))
    return normal


def _demand(size_bit: float, time_s: FloatArray, bandwidth_hz: FloatArray, constant_hz: FloatArray) -> FloatArray:
    """Fading, over x, that an upload needs to last no longer than ``time_s``; infinite where no time is left."""
    with np.errstate(divide="ignore", over="ignore"):
        needed = size_bit / (bandwidth_hz * np.maximum(time_s, 0.0))
        demand: FloatArray = np.expm1(_LN2 * needed) * bandwidth_hz / constant_hz
    return demand


@cache
def _legendre() -> tuple[FloatArray, FloatArray]:
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return (nodes + 1.0) / 2.0, weights / 2.0


def _rule(value: FloatArray | tuple[float, float]) -> tuple[FloatArray, FloatArray]:
    """Nodes, shape (nodes, 1) or (1, links), and weights of the mean over a uniform distribution, or what is known."""
    if not isinstance(value, tuple):
        return value[None, :], np.ones(1)
    nodes, weights = _legendre()
    return (value[0] + (value[1] - value[0]) * nodes)[:, None], weights


def _log_distance_integral(decay: FloatArray, max_distance_km: float) -> FloatArray:
    r"""Logarithm of :math:`\int_0^R x e^{-c x}\,\mathrm{d}d` with :math:`x = d^{3.76}`, up to a constant.

    By the substitution :math:`u = c x` it is :math:`c^{-s}\, \gamma(s, c R^{3.76})` with :math:`s = 1 + 1/3.76`.
    """
    from scipy.special import gammainc

    order = 1.0 + 1.0 / EXPONENT
    with np.errstate(divide="ignore", over="ignore"):
        integral: FloatArray = np.log(gammainc(order, decay * max_distance_km**EXPONENT)) - order * np.log(decay)
    return integral


def participation_probability(
    rate_bps: FloatArray,
    *,
    deadline_s: float,
    size_bit: float,
    constant_hz: FloatArray,
    workload_byte: float,
    compute_hz: FloatArray | tuple[float, float],
    bandwidth_hz: FloatArray | tuple[float, float],
    distance_km: FloatArray | float,
) -> FloatArray:
    r"""Probability of being in time given the download rate and whatever else is known, p of Qu et al. 2021, IV.

    The download takes :math:`a/r`, the computation :math:`q/y` (a cycle works on a byte, Choice B2); the upload has the
    rest of the deadline and its own fading.  What is not known is uniform and integrated out given the download rate r,
    whose density at (b, d) is :math:`\propto 2^{r/b}\, x\, e^{-A x}` with :math:`A = (2^{r/b} - 1)\, b / \kappa`.  With
    U(b, y) for the fading that the upload needs, over x,

    .. math:: p = \frac{\int 2^{r/b} \int x\, e^{-(A + U) x}\,\mathrm{d}d\,\mathrm{d}b\,\mathrm{d}y}
                       {\int 2^{r/b} \int x\, e^{-A x}\,\mathrm{d}d\,\mathrm{d}b\,\mathrm{d}y}.

    The integral over the distance is an incomplete gamma function; those over b and y take 12 Gauss-Legendre nodes.

    What is known of compute y, bandwidth b and distance d has shape (links,); else the ends of the uniform distribution
    are given, or R for distances on (0, R].  Where d is not known, :data:`MIN_DISTANCE_KM` is left out: the difference
    is below the share ``MIN_DISTANCE_KM / R`` of the links.

    Returns:
        Shape (links,), in [0, 1].

    Cost: O(links) if everything is known, 12 times that if the bandwidth is not, 144 times without the compute, too.
    """
    bandwidths, weight_b = _rule(bandwidth_hz)
    computes, weight_y = _rule(compute_hz)
    probability = np.empty_like(rate_bps)

    def fill(start: int, stop: int) -> None:
        for first in range(start, stop, _BLOCK):
            rows = slice(first, min(first + _BLOCK, stop))
            rate, constant = rate_bps[rows], constant_hz[rows]
            bandwidth = bandwidths[:, rows] if bandwidths.shape[0] == 1 else bandwidths
            compute = computes[:, rows] if computes.shape[0] == 1 else computes
            bits = _LN2 * np.minimum(rate / bandwidth, 900.0)  # no channel comes near it, and 2^r/b stays finite
            decay = np.expm1(bits) * bandwidth / constant  # A, shape (bandwidths, links)
            base = np.log(weight_b)[:, None] + bits
            if isinstance(distance_km, np.ndarray):
                power = np.maximum(distance_km[rows], MIN_DISTANCE_KM) ** EXPONENT
                log_below = base - decay * power
            else:
                log_below = base + _log_distance_integral(decay, distance_km)
            peak = log_below.max(axis=0)
            below = np.exp(log_below - peak).sum(axis=0)
            above = np.zeros_like(rate)
            for speed, weight in zip(compute, weight_y, strict=True):
                left_s = deadline_s - size_bit / rate - workload_byte / speed
                demand = _demand(size_bit, left_s, bandwidth, constant)  # U
                if isinstance(distance_km, np.ndarray):
                    log_above = base - (decay + demand) * power
                else:
                    log_above = base + _log_distance_integral(decay + demand, distance_km)
                above += weight * np.exp(log_above - peak).sum(axis=0)
            probability[rows] = np.clip(above / below, 0.0, 1.0)

    for_ranges(fill, rate_bps.shape[0])
    return probability
