r"""The flat network of Huang et al. 2021, section 6.1.1: one server, clients of four classes, linear exchange times."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.errors import ConfigurationError
from fedroster.core.parameters import Count, NotNegative, Parameters, Positive, Range, Share, ShareBelowOne
from fedroster.core.problem import Outcome, ProblemSpec, RoundContext, Selection
from fedroster.core.state import kept
from fedroster.core.units import MEGA

_Cycle = Annotated[float, Range(least=1.0)]
_NoiseShape = Literal["uniform", "half-normal", "log-normal", "bimodal"]

FEATURES = ("1/mu", "s", "M/B")
"""Context of a client: inverse compute share, cold start, model bits per hertz of bandwidth."""


def exchange_features(
    compute_share: FloatArray, cold: BoolArray, model_size_bit: float, bandwidth_hz: FloatArray
) -> FloatArray:
    r"""Context vectors :math:`c = [1/\mu,\ s,\ M/B]` (Huang et al. 2021, section 4.4.2), shape (clients, 3).

    mu is the free share of one CPU, above 1 with several; s is whether the client did not take part in the previous
    round (Choice A1).  Column-major.
    """
    features = np.empty((3, compute_share.shape[0]))
    np.divide(1.0, compute_share, out=features[0])
    features[1] = cold
    np.divide(model_size_bit, bandwidth_hz, out=features[2])
    return features.T


@dataclass(frozen=True, slots=True)
class FlatState:
    """What the network remembers between rounds.

    Attributes:
        coefficients: theta* of each client, shape (3, clients): local training time, cold start time, 1 / eta.
        cold: Whether the client did not take part in the previous round, shape (clients,).
        phase: Where each client stands in its cycles of drift and churn, shape (clients,), in [0, 1).
    """

    coefficients: FloatArray = kept(0.0)
    cold: BoolArray = kept(0)
    phase: FloatArray = kept(0.0, 1.0)


def scatter(uniform: FloatArray, amount: float, shape: _NoiseShape) -> FloatArray:
    r"""Ratios of realised to expected times: mean 1, standard deviation :math:`a/\sqrt 3`, by inverse transform.

    Args:
        uniform: Uniform numbers in [0, 1), shape (clients,).
        amount: a, in [0, 1].
        shape: "uniform" between 1 - a and 1 + a, as in the paper; "half-normal", skewed to the right from its least
            value 1 - 0.76 a; "log-normal", with a long tail; "bimodal", 1 - 0.29 a four times of five and else
            1 + 1.15 a.

    Returns:
        Shape (clients,), > 0.
    """
    deviation = amount / math.sqrt(3.0)
    if shape == "uniform":
        # 1 + a (1 - 2u) with u in [0, 1): above zero even for a = 1.
        return 1.0 + amount - 2.0 * amount * uniform
    if shape == "bimodal":
        return np.where(uniform < 0.8, 1.0 - deviation / 2.0, 1.0 + 2.0 * deviation)
    from scipy.special import ndtri  # not for the paper's own shape: it takes a third of a second to import

    tiny = np.finfo(np.float64).tiny
    if shape == "half-normal":
        normal = -ndtri(0.5 - 0.5 * uniform)  # exact near 1, where 0.5 + 0.5 u would round to 1, and give infinity
        standard: FloatArray = (normal - math.sqrt(2.0 / math.pi)) / math.sqrt(1.0 - 2.0 / math.pi)
        return 1.0 + deviation * standard
    variance = math.log1p(deviation**2)
    ratio: FloatArray = np.exp(math.sqrt(variance) * ndtri(np.maximum(uniform, tiny)) - 0.5 * variance)
    return ratio


@dataclass(frozen=True, slots=True)
class FlatNetwork(Parameters):
    r"""Clients whose exchange time is linear in their context (Huang et al. 2021, Eq. 14, Table 1 and section 6.1.1).

    .. math:: \tau_{t,n} = c_{t,n}^\top \theta_n^* + \epsilon_{t,n},\qquad
        \theta_n^* = [\tau_n^b,\ \tau_n^s,\ 1/\eta_n],\qquad \epsilon \sim U(-a\, c^\top\theta^*,\ a\, c^\top\theta^*)

    Every round, mu, B, availability and noise are drawn for the whole fleet, whatever was decided before.  Clients are
    divided equally among the classes, in blocks, for any number of clients.

    Beyond the paper, clients may scatter otherwise, drift and come and go; all is off by default.  With drift, client
    n's expected time is multiplied by :math:`\exp(d \sin 2\pi(t/P + \phi_n))`.  With churn it is no member of the
    federation for a share of each cycle.

    Attributes:
        num_clients: N.
        cohort_size: m.
        train_time_s: tau^b of each class, seconds at one full CPU.
        cold_start_s: tau^s of each class, seconds.
        snr: Signal-to-noise ratio of each class, linear.
        log_base: "2" for :math:`\eta = \log_2(1+SNR)` in bit/s/Hz, "e" for the natural logarithm (Choice A2).
        compute_share_min: Lower end of mu.
        compute_share_max: Upper end of mu.
        bandwidth_min_hz: Lower end of B.
        bandwidth_max_hz: Upper end of B.
        model_size_bit: M.
        availability: Probability of I = 1, in [0, 1].
        noise: a, in [0, 1]; 1 in the paper (Choice A7).
        dropout: Probability that a chosen client never answers, in [0, 1]; 0 in the paper.
        noise_shape: Shape of the scatter, at equal standard deviation (:func:`scatter`); "uniform" in the paper.
        drift: d, how far speeds drift, in [0, 100], so that squares of times stay finite; 0 in the paper.
        drift_rounds: P, rounds of a cycle of drift, >= 1.
        churn: Share of its cycle that a client is away from the federation, in [0, 1); 0 in the paper.
        churn_rounds: Rounds of a cycle of churn, >= 1.
    """

    num_clients: Count = 40
    cohort_size: Count = 8
    train_time_s: tuple[NotNegative, ...] = (1.0, 2.0, 3.0, 4.0)
    cold_start_s: tuple[NotNegative, ...] = (1.0, 1.0, 1.0, 1.0)
    snr: tuple[Positive, ...] = (1000.0, 100.0, 10.0, 1.0)
    log_base: Literal["2", "e"] = "2"
    compute_share_min: Positive = 0.5
    compute_share_max: float = 2.0
    bandwidth_min_hz: Positive = 2.0 * MEGA
    bandwidth_max_hz: float = 4.0 * MEGA
    model_size_bit: NotNegative = 20.0 * MEGA
    availability: Share = 0.8
    noise: Share = 1.0
    dropout: Share = 0.0
    noise_shape: _NoiseShape = "uniform"
    drift: Annotated[float, Range(least=0.0, most=100.0)] = 0.0
    drift_rounds: _Cycle = 250.0
    churn: ShareBelowOne = 0.0
    churn_rounds: _Cycle = 200.0

    def __post_init__(self) -> None:
        """Check the ranges, and that the classes are as many everywhere."""
        Parameters.__post_init__(self)
        if not len(self.train_time_s) == len(self.cold_start_s) == len(self.snr) >= 1:
            raise ConfigurationError(
                f"train_time_s, cold_start_s and snr have {len(self.train_time_s)}, {len(self.cold_start_s)} and "
                f"{len(self.snr)} entries; expected one for each client class"
            )
        if self.model_size_bit == 0.0 and min(self.train_time_s) == 0.0:
            raise ConfigurationError(
                "train_time_s and model_size_bit are both 0 for a class; expected every exchange to take time"
            )

    @property
    def spec(self) -> ProblemSpec:
        """One server, three features."""
        return ProblemSpec(num_clients=self.num_clients, cohort_size=self.cohort_size, num_features=len(FEATURES))

    @property
    def client_class(self) -> IntArray:
        """Class of each client, 0, 1, ..., in equal blocks, shape (clients,)."""
        return np.arange(self.num_clients) * len(self.snr) // self.num_clients

    @property
    def spectral_efficiency(self) -> FloatArray:
        """Eta of each class, bit/s/Hz, shape (classes,)."""
        eta: FloatArray = np.log1p(np.asarray(self.snr))
        return eta / math.log(2.0) if self.log_base == "2" else eta

    @property
    def _classes(self) -> list[tuple[float, ...]]:
        """Theta of each class."""
        return list(zip(self.train_time_s, self.cold_start_s, 1.0 / self.spectral_efficiency, strict=True))

    @property
    def _largest_context(self) -> tuple[float, ...]:
        return 1.0 / self.compute_share_min, 1.0, self.model_size_bit / self.bandwidth_min_hz

    @property
    def feature_norm(self) -> float:
        """L: the largest norm of a context."""
        return math.hypot(*self._largest_context)

    @property
    def coefficient_norm(self) -> float:
        """S: the largest norm of a client's coefficients."""
        return max(math.hypot(*theta) for theta in self._classes) * math.exp(self.drift)

    @property
    def max_expected_time_s(self) -> float:
        """K: the largest expected exchange time."""
        largest_s = max(float(np.dot(self._largest_context, theta)) for theta in self._classes)
        return largest_s * math.exp(self.drift)

    def init(self, *, rng: Generator) -> FlatState:
        """Every client is cold in round 1 (Choice A1)."""
        coefficients = np.ascontiguousarray(np.array(self._classes)[self.client_class].T)
        return FlatState(
            coefficients=coefficients, cold=np.ones(self.num_clients, np.bool_), phase=rng.random(self.num_clients)
        )

    def observe(self, state: FlatState, round: int, /, *, rng: Generator) -> tuple[RoundContext, Outcome]:
        """Draw one round for the whole fleet."""
        compute_share = rng.uniform(self.compute_share_min, self.compute_share_max, self.num_clients)
        bandwidth_hz = rng.uniform(self.bandwidth_min_hz, self.bandwidth_max_hz, self.num_clients)
        available = rng.random(self.num_clients) < self.availability
        noise = rng.random(self.num_clients)
        responds = rng.random(self.num_clients) >= self.dropout
        features = exchange_features(compute_share, state.cold, self.model_size_bit, bandwidth_hz)
        terms = state.coefficients * features.T
        if self.drift > 0.0:
            terms *= self._drifted(state.phase, round)
        members = None
        if self.churn > 0.0:
            members = (round / self.churn_rounds + state.phase) % 1.0 >= self.churn
            available &= members
        upload_s = terms[2]
        expected_s = terms[0] + terms[1]
        expected_s += upload_s
        exchange_s = scatter(noise, self.noise, self.noise_shape)
        exchange_s *= expected_s
        context = RoundContext(
            round=round, features=features, available=available, cohort_size=self.cohort_size, members=members
        )
        outcome = Outcome(
            exchange_time_s=exchange_s, expected_time_s=expected_s, expected_upload_s=upload_s, responds=responds
        )
        return context, outcome

    def _drifted(self, phase: FloatArray, round: int) -> FloatArray:
        """Factor of the times of clients with these phases."""
        factor: FloatArray = np.exp(self.drift * np.sin(2.0 * math.pi * (round / self.drift_rounds + phase)))
        return factor

    def poll_times(self, state: FlatState, context: RoundContext, links: IntArray, /) -> FloatArray:
        r"""How long clients take to be sent the model and to answer with their loss, seconds, shape (k,).

        .. math:: \tau^{\text{poll}} = \frac{\tau_n^b}{3 \mu} + s\, \tau_n^s + \frac{M}{B \eta}

        A forward pass is a third of training, FedScale's rule for one epoch; Huang et al. 2021 has no polls.  With
        drift the time drifts as that of an exchange does.  The answer itself is a number and takes no time.
        """
        client = context.clients_of(links)
        work, cold, transfer = context.features[links].T
        train_s, cold_s, _ = state.coefficients[:, client]
        efficiency = self.spectral_efficiency[self.client_class[client]]
        times_s: FloatArray = work * train_s / 3.0 + cold * cold_s + transfer / efficiency
        if self.drift > 0.0:
            times_s *= self._drifted(state.phase[client], context.round)
        return times_s

    def advance(self, state: FlatState, context: RoundContext, selection: Selection, /) -> FlatState:
        """Remember who was chosen."""
        cold = np.ones(self.num_clients, np.bool_)
        cold[context.clients_of(selection.links)] = False
        return replace(state, cold=cold)
