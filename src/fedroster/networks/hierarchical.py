r"""The hierarchical network of Qu et al. 2021, section VI-A: clients, edge servers with budgets, a deadline, fading."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.parameters import Count, NotNegative, Parameters, Positive, Range, Share
from fedroster.core.problem import Outcome, ProblemSpec, RoundContext, Selection
from fedroster.core.state import kept
from fedroster.core.streams import Streams
from fedroster.core.units import MEGA
from fedroster.networks.channel import (
    channel_constant,
    mean_snr,
    pair_normal,
    participation_probability,
    shannon_rate,
)

FEATURES = ("download rate", "compute", "bandwidth", "distance")
"""What the first features of a context mean; each further one is uniform noise that has no effect (Choice B6)."""

_Level = Annotated[float, Range(least=-300.0, most=300.0)]
_Geometry = Literal["printed", "geometric"]


@dataclass(frozen=True, slots=True)
class HierarchicalState:
    """What the network remembers between rounds.

    Attributes:
        price: Price of each client's compute, per MHz, shape (clients,) (Choice B3).
        key: Seed of what is drawn once for each pair, and of the movement.
        position_km: Where the clients are, shape (2, clients), km; shape (2, 0) without geometry.
        velocity_m_s: How they move, shape (2, clients), m/s; shape (2, 0) without geometry.
    """

    price: FloatArray = kept(0.0)
    key: int = kept(fixed=True)
    position_km: FloatArray = kept(-math.inf)
    velocity_m_s: FloatArray = kept(-math.inf)


def links_in_reach(
    position_km: FloatArray, site_km: FloatArray, reach_km: float
) -> tuple[IntArray, IntArray, FloatArray]:
    r"""The pairs of :math:`\mathcal N_m^t`, (9c): clients within ``reach_km`` of a server.

    Returns:
        Client and server of each link, clients ascending, and their distances in km, each of shape (links,).
    """
    dx, dy = (position[:, None] - site for position, site in zip(position_km, site_km, strict=True))
    square = dx * dx + dy * dy
    client, server = np.nonzero(square <= reach_km * reach_km)
    return client, server, np.sqrt(square[client, server])


def server_sites(num_servers: int, side_km: float) -> FloatArray:
    """Sites of the servers: rows of nearly equal numbers, evenly spaced in a square, shape (2, servers), km."""
    num_rows = max(1, round(math.sqrt(num_servers)))
    site = np.empty((2, num_servers))
    placed = 0
    for row in range(num_rows):
        count = num_servers // num_rows + (row < num_servers % num_rows)
        site[0, placed : placed + count] = (np.arange(count) + 0.5) * (side_km / count)
        site[1, placed : placed + count] = (row + 0.5) * (side_km / num_rows)
        placed += count
    return site


def move(
    position_km: FloatArray,
    velocity_m_s: FloatArray,
    *,
    noise: FloatArray,
    memory: float,
    speed_m_s: float,
    time_s: float,
    side_km: float,
) -> tuple[FloatArray, FloatArray]:
    r"""One step of Gauss-Markov movement (Liang and Haas, INFOCOM 1999), reflected at the sides of a square.

    .. math:: v \gets a v + \sqrt{1 - a^2}\, \sigma w,\qquad p \gets p + v\,\Delta t,\qquad
        \sigma = \text{speed} / \sqrt{2}

    with memory a and standard normal noise w.  The uniform distribution of places and the normal one of velocities are
    stationary.
    """
    velocity = memory * velocity_m_s + math.sqrt((1.0 - memory * memory) / 2.0) * speed_m_s * noise
    folded = np.mod(position_km + velocity * (time_s / 1e3), 2.0 * side_km)
    beyond = folded > side_km
    return np.where(beyond, 2.0 * side_km - folded, folded), np.where(beyond, -velocity, velocity)


def _scaled(value: FloatArray, low: float, high: float) -> FloatArray:
    """Min-max scaling with fixed bounds, clipped to [0, 1]; 0 where both bounds are the same."""
    if high <= low:
        return np.zeros_like(value)
    return np.clip((value - low) / (high - low), 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class HierarchicalNetwork(Parameters):
    r"""Clients, edge servers and a cloud (Qu et al. 2021, sections III, VI-A; Table I), by default for MNIST.

    Each round every client offers compute y and is given bandwidth b, both uniform; its price per MHz is drawn once
    (Choice B3), so that a link costs :math:`c_n(y) = \text{price}_n\, y`.  An exchange takes

    .. math:: \tau = \underbrace{\frac{s}{b \log_2(1 + \gamma E)}}_{DT} + \underbrace{\frac{q}{y}}_{LC}
        + \underbrace{\frac{s}{b \log_2(1 + \gamma E')}}_{UT} \qquad\text{(5), Choice B2},

    with the channel of :mod:`fedroster.networks.channel` (Choice B4).  The download rate is the one of this round's
    download, which a server can measure; the upload's fading is not known.  Under Rayleigh fading the expectation of
    :math:`\tau` is infinite, so ``expected_time_s`` is, and ``expected_upload_s`` is 0: there is nothing to divide.

    Geometry "printed" (Choice B5): every client is in reach of every server and :math:`d \sim U(0, R]` for each pair
    and round.  Geometry "geometric": the servers stand on a grid in a square of such a size that a point is in reach of
    ``mean_reach`` servers on average (fewer near the sides), the clients move in it (:func:`move`), and only links in
    reach are rows, in the order of clients.

    Features (Choice B6), each scaled to [0, 1] with fixed bounds and clipped: download rate between 0 and
    :attr:`rate_bound_bps`, compute and bandwidth between the ends of their distributions, distance between 0 and R; a
    fifth and further ones are uniform noise without any effect (RAM and storage in the paper's words).  The first
    ``num_features`` of them are the context.

    ``participation_probability`` is the paper's :math:`p_{n,m}(\phi)`: the probability of being in time given the pair
    (its shadowing, and static resources) and its context, with what the context leaves out integrated out.  In the
    geometric variant, where distances have a history, it is given the distance as well.

    Attributes:
        num_clients: N.
        num_servers: M.
        num_features: D, >= 1.
        deadline_s: tau_dead, seconds, > 0.  A round of the geometric variant lasts as long.
        budget: B of each server, >= 0.
        update_size_bit: s, bits, of the model and of the update, > 0.
        workload_byte: q, bytes; a cycle works on one, > 0.
        bandwidth_min_hz: Lower end of b, > 0.
        bandwidth_max_hz: Upper end of b.
        compute_min_hz: Lower end of y, > 0.
        compute_max_hz: Upper end of y.
        price_min: Lower end of the price per MHz, >= 0.
        price_max: Upper end of the price per MHz.
        power_dbm: Transmit power both ways, dBm, in [-300, 300], so that powers and rates stay finite.
        noise_dbm_hz: Noise density, dBm/Hz, in [-300, 300].
        shadowing_db: Standard deviation of the shadowing, drawn once for each pair, dB, >= 0.
        reach_km: R, radius of a server, km, > 0, at most 10^6.
        geometry: "printed" or "geometric".
        mean_reach: Servers in reach of a point on average, geometric variant, > 0.
        speed_m_s: Root mean square speed of a client, geometric variant, m/s, >= 0.
        memory: Share of the velocity that stays from round to round, geometric variant, in [0, 1].
        rate_scale: Factor of :attr:`rate_bound_bps`, > 0; with 1 two of five rates on the MNIST network, and half of
            them on the CIFAR-10 network, are above the bound and look the same to a context (Choice B13).
        static_resources: Whether bandwidth, compute and printed distances are drawn once and kept, as the paper does
            for CUCB (Choice B9).  Fading and movement go on.
        dropout: Probability that a chosen client never answers, in [0, 1]; 0 in the paper.
        min_updates: Z, least number of updates that a server waits for, beyond the deadline too (6), >= 1.
        global_period: T_ES, edge rounds between global aggregations, >= 1.
        edge_time_s: EC, time of an edge aggregation, seconds, >= 0.
        cloud_time_s: Time of a global aggregation, seconds, >= 0.
    """

    num_clients: Count = 50
    num_servers: Count = 3
    num_features: Count = 2
    deadline_s: Positive = 3.0
    budget: NotNegative = 3.5
    update_size_bit: Positive = 0.18 * MEGA
    workload_byte: Positive = 2.41 * MEGA
    bandwidth_min_hz: Positive = 0.3 * MEGA
    bandwidth_max_hz: float = 1.0 * MEGA
    compute_min_hz: Positive = 2.0 * MEGA
    compute_max_hz: float = 4.0 * MEGA
    price_min: NotNegative = 0.5
    price_max: float = 2.0
    power_dbm: _Level = 23.0
    noise_dbm_hz: _Level = -174.0
    shadowing_db: NotNegative = 8.0
    reach_km: Annotated[float, Range(above=0.0, most=1e6)] = 2.0
    geometry: _Geometry = "printed"
    mean_reach: Positive = 2.0
    speed_m_s: NotNegative = 10.0
    memory: Share = 0.9
    rate_scale: Positive = 1.0
    static_resources: bool = False
    dropout: Share = 0.0
    min_updates: Count = 1
    global_period: Count = 5
    edge_time_s: NotNegative = 0.0
    cloud_time_s: NotNegative = 0.0

    @property
    def spec(self) -> ProblemSpec:
        """M servers, D features, and no limit to a cohort but the budgets."""
        return ProblemSpec(
            num_clients=self.num_clients,
            cohort_size=self.num_clients,
            num_features=self.num_features,
            num_servers=self.num_servers,
        )

    @property
    def side_km(self) -> float:
        """Side of the square of the geometric variant, km."""
        return self.reach_km * math.sqrt(math.pi * self.num_servers / self.mean_reach)

    @property
    def rate_bound_bps(self) -> float:
        """Upper bound of the scaled download rate: the widest band over half the radius, without fading, bit/s.

        Half the radius is the mean distance of the printed geometry.  ``rate_scale`` multiplies the bound.  All better
        rates are the same to a context.
        """
        constant = channel_constant(np.zeros(1), power_dbm=self.power_dbm, noise_dbm_hz=self.noise_dbm_hz)
        band = np.array([self.bandwidth_max_hz])
        snr = mean_snr(constant, np.array([self.reach_km / 2.0]), band)
        return self.rate_scale * float(shannon_rate(band, snr)[0])

    @property
    def least_cost(self) -> float:
        """c^min of Theorem 2: the least that a link can cost."""
        return self.price_min * self.compute_min_hz / MEGA

    def init(self, *, rng: Generator) -> HierarchicalState:
        """Draw prices, shadowing and places."""
        price = rng.uniform(self.price_min, self.price_max, self.num_clients)
        key = int(rng.integers(2**62))
        num_moving = self.num_clients if self.geometry == "geometric" else 0
        position = rng.uniform(0.0, self.side_km, (2, num_moving))
        velocity = rng.standard_normal((2, num_moving)) * (self.speed_m_s / math.sqrt(2.0))
        return HierarchicalState(price=price, key=key, position_km=position, velocity_m_s=velocity)

    def observe(self, state: HierarchicalState, round: int, /, *, rng: Generator) -> tuple[RoundContext, Outcome]:
        """Draw one round for the whole fleet."""
        resources = Streams(state.key).at("static") if self.static_resources else rng
        compute = resources.uniform(self.compute_min_hz, self.compute_max_hz, self.num_clients)
        bandwidth = resources.uniform(self.bandwidth_min_hz, self.bandwidth_max_hz, self.num_clients)
        if self.geometry == "geometric":
            site = server_sites(self.num_servers, self.side_km)
            client, server, distance_km = links_in_reach(state.position_km, site, self.reach_km)
        else:
            client = np.repeat(np.arange(self.num_clients), self.num_servers)
            server = np.tile(np.arange(self.num_servers), self.num_clients)
            distance_km = self.reach_km * (1.0 - resources.random(client.shape[0]))
        num_links = client.shape[0]
        fading = np.maximum(rng.standard_exponential((2, num_links)), 1e-30)
        responds = rng.random(self.num_clients) >= self.dropout
        noise = rng.random((max(self.num_features - len(FEATURES), 0), num_links))

        compute_hz, bandwidth_hz = compute[client], bandwidth[client]
        constant_hz = channel_constant(
            self.shadowing_db * pair_normal(state.key, client, server),
            power_dbm=self.power_dbm,
            noise_dbm_hz=self.noise_dbm_hz,
        )
        snr = mean_snr(constant_hz, distance_km, bandwidth_hz)
        rate_bps = shannon_rate(bandwidth_hz, snr * fading)
        time_s = self.update_size_bit / rate_bps[0] + self.workload_byte / compute_hz
        time_s += self.update_size_bit / rate_bps[1]

        def probability() -> FloatArray:
            # What never changes belongs to the pair, and is known with it.
            known = [self.static_resources or self.num_features >= number for number in (2, 3, 4)]
            return (1.0 - self.dropout) * participation_probability(
                rate_bps[0],
                deadline_s=self.deadline_s,
                size_bit=self.update_size_bit,
                constant_hz=constant_hz,
                workload_byte=self.workload_byte,
                compute_hz=compute_hz if known[0] else (self.compute_min_hz, self.compute_max_hz),
                bandwidth_hz=bandwidth_hz if known[1] else (self.bandwidth_min_hz, self.bandwidth_max_hz),
                distance_km=distance_km if known[2] or self.geometry == "geometric" else self.reach_km,
            )

        parts = [
            _scaled(rate_bps[0], 0.0, self.rate_bound_bps),
            _scaled(compute_hz, self.compute_min_hz, self.compute_max_hz),
            _scaled(bandwidth_hz, self.bandwidth_min_hz, self.bandwidth_max_hz),
            _scaled(distance_km, 0.0, self.reach_km),
            *noise,
        ]
        context = RoundContext(
            round=round,
            features=np.stack(parts[: self.num_features]).T,
            available=np.ones(num_links, np.bool_),
            cohort_size=self.num_clients,
            client=client,
            server=server,
            cost=state.price[client] * (compute_hz / MEGA),
            budget=np.full(self.num_servers, self.budget),
        )
        outcome = Outcome(
            exchange_time_s=time_s,
            expected_time_s=np.full(num_links, np.inf),
            expected_upload_s=np.zeros(num_links),
            responds=responds[client],
            deadline_s=self.deadline_s,
            participation_probability=probability,
            min_updates=self.min_updates,
            edge_time_s=self.edge_time_s,
            cloud_time_s=self.cloud_time_s,
            global_round=round % self.global_period == 0,
        )
        return context, outcome

    def advance(self, state: HierarchicalState, context: RoundContext, selection: Selection, /) -> HierarchicalState:
        """Let the clients move; the cohort does not matter."""
        if self.geometry == "printed":
            return state
        noise = Streams(state.key).at("movement", context.round).standard_normal(state.position_km.shape)
        position, velocity = move(
            state.position_km,
            state.velocity_m_s,
            noise=noise,
            memory=self.memory,
            speed_m_s=self.speed_m_s,
            time_s=self.deadline_s,
            side_km=self.side_km,
        )
        return replace(state, position_km=position, velocity_m_s=velocity)


@dataclass(frozen=True, slots=True)
class HierarchicalCifar10(HierarchicalNetwork):
    """The same network with Table I's values for CIFAR-10."""

    deadline_s: Positive = 20.0
    budget: NotNegative = 40.0
    update_size_bit: Positive = 18.7 * MEGA
    workload_byte: Positive = 28.3 * MEGA
    bandwidth_min_hz: Positive = 2.0 * MEGA
    bandwidth_max_hz: float = 4.0 * MEGA
    compute_min_hz: Positive = 8.0 * MEGA
    compute_max_hz: float = 15.0 * MEGA


@dataclass(frozen=True, slots=True)
class GeometricMnist(HierarchicalNetwork):
    """Table I's values for MNIST with moving clients and changing coverage (Choice B5)."""

    geometry: _Geometry = "geometric"


@dataclass(frozen=True, slots=True)
class GeometricCifar10(HierarchicalCifar10):
    """Table I's values for CIFAR-10 with moving clients and changing coverage (Choice B5)."""

    geometry: _Geometry = "geometric"
