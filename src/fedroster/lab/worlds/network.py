r"""A network of real devices: sessions, speeds and a clock that every round moves on."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.random import Generator

from fedroster.errors import ConfigurationError, InvalidInputError
from fedroster.lab.worlds.availability import Timetable, look_up, timetable
from fedroster.lab.worlds.population import NUM_PATTERNS, Fleet, calibrated_sessions, calibrated_speeds, draw_fleet
from fedroster.lab.worlds.table import read_table
from fedroster.parts import MEGA, Count, NotNegative, Parameters, Positive, Share, for_ranges, njit
from fedroster.types import BoolArray, FloatArray, IntArray, Outcome, ProblemSpec, RoundContext, Selection, kept

FEATURES = ("work", "s", "M/B")
"""Context of a client: seconds of computing, cold start, seconds of transfer at the speeds that it reports."""

BACKWARD_FACTOR = 3.0
"""Training on a sample takes as long as inference on this many: FedScale's rule."""


@dataclass(frozen=True, slots=True)
class TraceState:
    """What the network remembers between rounds.

    Attributes:
        fleet: The devices of the clients.
        table: When devices are available.
        time_s: The clock: when the next round starts, seconds.
        end_s: Up to which time the traces say something, seconds; infinite where they repeat.
        key: Seed of what varies from round to round.
        cold: Whether the client did not take part in the previous round, shape (clients,).
    """

    fleet: Fleet
    table: Timetable
    time_s: float = kept(0.0)
    end_s: float = kept(fixed=True)
    key: int = kept(fixed=True)
    cold: BoolArray = kept(0)

    def flaw(self, spec: ProblemSpec) -> str:
        """Why it is impossible, so that kernels would look beyond its tables; empty if it is possible."""
        sessions = self.table.sessions
        is_sound = sessions.offsets[-1] == sessions.start_s.shape[0] and (np.diff(sessions.offsets) >= 1).all()
        has_devices = (self.fleet.device < sessions.num_devices).all()
        return "" if is_sound and has_devices else "a client has no device, or a device no sessions"


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_DROPOUT = np.uint64(0xD1B54A32D192ED03)
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)


def _uniform(key: np.uint64, client: Any) -> Any:
    """A number in [0, 1) of a client, or of each of an array, and a key: SplitMix64, a counter-based generator."""
    word = np.uint64(client) * _GOLDEN + key
    word = (word ^ (word >> _S30)) * _FIRST
    word = (word ^ (word >> _S27)) * _SECOND
    word = (word ^ (word >> _S31)) + key
    word = (word ^ (word >> _S30)) * _FIRST
    word = (word ^ (word >> _S27)) * _SECOND
    return ((word ^ (word >> _S31)) >> _S11) * 2.0**-53


_uniform_of = njit(cache=True, nogil=True)(_uniform)


@njit(cache=True, nogil=True)
def _play(
    remaining, session, by_session, compute, bandwidth, cold,
    samples, total_bit, upload_bit, cold_start_s, noise, dropout, key,
    features, expected, upload, exchange, available, responds, begin, stop,
):  # fmt: skip
    lost = key ^ _DROPOUT
    for n in range(begin, stop):
        i = session[n] if by_session else n
        work_s = samples * compute[i]
        transfer_s = total_bit / bandwidth[i]
        features[0, n] = work_s
        features[1, n] = cold[n]
        features[2, n] = transfer_s
        upload[n] = upload_bit / bandwidth[i]
        expected[n] = work_s + cold_start_s * features[1, n] + transfer_s
        exchange[n] = expected[n] * (1.0 + noise * (1.0 - 2.0 * _uniform_of(key, n)))
        available[n] = remaining[n] > 0.0
        stays = exchange[n] <= remaining[n]
        if stays and dropout > 0.0:
            stays = _uniform_of(lost, n) >= dropout
        responds[n] = stays


def round_key(key: int, round: int) -> np.uint64:
    """Seed of what happens in one round of the network with this key."""
    mask = 2**64 - 1
    word = (key * 0xD6E8FEB86659FD93 + round * 0x9E3779B97F4A7C15) & mask
    word = ((word ^ (word >> 32)) * 0xD6E8FEB86659FD93) & mask
    return np.uint64(word ^ (word >> 32))


def exchange_times(
    client: IntArray, features: FloatArray, *, cold_start_s: float, noise: float, key: np.uint64
) -> FloatArray:
    r"""What the exchanges of a round take, :math:`\tau = c^\top \theta^* (1 + a (1 - 2u))`, shape (k,), seconds.

    :math:`\theta^* = [1, \tau^s, 1]`; u is a function of the client and the round's key.
    """
    expected_s = features[:, 0] + cold_start_s * features[:, 1] + features[:, 2]
    time_s: FloatArray = expected_s * (1.0 + noise * (1.0 - 2.0 * _uniform(key, client)))
    return time_s


@dataclass(frozen=True, slots=True)
class TraceNetwork(Parameters):
    r"""Clients that follow traces of real devices, on a virtual clock.

    A client may be chosen while its device is in a session.  Its exchange takes (FedScale's rule, in the linear form of
    Huang et al. 2021, Eq. 14)

    .. math:: \tau_{t,n} = c_{t,n}^\top \theta^* (1 + \epsilon),\qquad
        c_{t,n} = \Bigl[3 W \kappa_n,\ s_{t,n},\ \frac{M_\downarrow + M_\uparrow}{B_n}\Bigr],\qquad
        \theta^* = [1,\ \tau^s,\ 1],\qquad \epsilon \sim U(-a, a)

    with W samples, :math:`\kappa_n` seconds for inference on one, cold start s (Choice A1), model sizes M and link
    speed B.  The true coefficients are the same for every client; a policy does not know that.  Speeds that change from
    session to session are reported and used as they are when the round starts.

    The clock starts at ``start_time_s`` and moves on by the round's duration
    (:func:`fedroster.simulation.round_time`), by ``idle_step_s`` after a round without clients, and in any case by
    ``round_interval_s``.  A chosen client whose session ends before its exchange does drops out; the round waits for it
    as long as its answer was due.  So it is with one that is asked for its loss (:func:`~fedroster.simulate`),
    and exchanges start when the answers have arrived.  The clock depends on the cohorts: policies meet the same devices
    and the same sessions, but look at them at times of their own.  Where that must not be, choose a ``deadline_s`` and
    an ``idle_step_s`` of at most ``round_interval_s``: rounds then start at fixed times for every policy.

    Without ``traces`` the fleet is drawn from a mixture that is calibrated to the published quantiles of FedScale's
    capacities and of the FLASH trace (:mod:`fedroster.lab.worlds.population`): every client has speeds of its own; its
    sessions are one of up to 4,096 patterns of a week, shifted by whole days and by up to ``jitter_s``.  With
    traces, devices are dealt out to the clients in the same way; ``resample = false`` makes client n the n-th device,
    unshifted.

    Cost of a round: O(N log(sessions of a device)), in parallel, and 74 bytes a client; state: 33 bytes a client.

    Attributes:
        num_clients: N.
        cohort_size: m.
        traces: A table of device traces, ``.csv`` or ``.parquet`` (:mod:`fedroster.lab.worlds.table`); empty for the
            calibrated mixture.
        resample: Whether the devices of ``traces`` are dealt out to any number of clients.
        jitter_s: Largest shift of a client beside whole days, seconds, >= 0.
        at_end: "wrap" to repeat traces with their period, "stop" to raise an error when the clock passes their end;
            clients are then not shifted.
        start_time_s: The clock in round 1, seconds, >= 0.
        idle_step_s: How long a round lasts on the clock in which no client is available, seconds, > 0.
        round_interval_s: Rounds start at least so far apart, seconds, >= 0.
        deadline_s: Later updates do not count and are not waited for, seconds, > 0; 0 for no deadline.
        samples: W, samples that a client trains on in a round, local epochs counted, >= 1.
        download_bit: Size of the model on its way down, bits, >= 0.
        upload_bit: Size of the update, bits, >= 0.
        cold_start_s: tau^s, seconds, >= 0; 0 in FedScale.
        noise: a, in [0, 1]; 0 in FedScale.
        dropout: Probability that a client whose session lasts never answers either, in [0, 1].
    """

    num_clients: Count = 1000
    cohort_size: Count = 20
    traces: str = ""
    resample: bool = True
    jitter_s: NotNegative = 1800.0
    at_end: Literal["wrap", "stop"] = "wrap"
    start_time_s: NotNegative = 300.0
    idle_step_s: Positive = 300.0
    round_interval_s: NotNegative = 0.0
    deadline_s: NotNegative = 0.0
    samples: Count = 500
    download_bit: NotNegative = 20.0 * MEGA
    upload_bit: NotNegative = 20.0 * MEGA
    cold_start_s: NotNegative = 1.0
    noise: Share = 0.1
    dropout: Share = 0.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        Parameters.__post_init__(self)
        if not self.resample and not self.traces:
            raise ConfigurationError("resample is False without traces; expected traces whose devices are the clients")

    @property
    def spec(self) -> ProblemSpec:
        """One server, three features."""
        return ProblemSpec(num_clients=self.num_clients, cohort_size=self.cohort_size, num_features=len(FEATURES))

    def init(self, *, rng: Generator) -> TraceState:
        """Draw the fleet; all clients are cold in round 1 (Choice A1)."""
        n, wraps = self.num_clients, self.at_end == "wrap"
        if self.traces:
            sessions, speeds = read_table(Path(self.traces).expanduser())
        else:
            sessions = calibrated_sessions(min(n, NUM_PATTERNS), rng=rng)
            speeds = calibrated_speeds(n, rng=rng)
        how = {"paired": bool(self.traces), "resample": self.resample, "shift": self.resample and wraps}
        fleet = draw_fleet(sessions, speeds, n, **how, jitter_s=self.jitter_s, rng=rng)
        return TraceState(
            time_s=self.start_time_s,
            end_s=math.inf if wraps else sessions.period_s,
            key=int(rng.integers(2**62)),
            cold=np.ones(n, np.bool_),
            fleet=fleet,
            table=timetable(sessions, wraps=wraps),
        )

    def observe(self, state: TraceState, round: int, /, *, rng: Generator) -> tuple[RoundContext, Outcome]:
        """Look at every client at the clock's time.  What varies is a function of the round; ``rng`` is not used."""
        fleet, num_clients = state.fleet, self.num_clients
        if state.time_s >= state.end_s:
            raise InvalidInputError(
                f"round {round} would start at {state.time_s:.12g} s, and the traces end at {state.end_s:.12g} s; "
                "expected fewer rounds, or at_end = wrap"
            )
        remaining_s, session = look_up(state.table, fleet.device, fleet.shift_s, state.time_s)
        features = np.empty((len(FEATURES), num_clients))
        expected_s, upload_s, exchange_s = np.empty((3, num_clients))
        available, responds = np.empty((2, num_clients), np.bool_)
        clients = (remaining_s, session, fleet.by_session, fleet.compute_s, fleet.bandwidth_bps, state.cold)
        sizes = (BACKWARD_FACTOR * self.samples, float(self.download_bit + self.upload_bit), float(self.upload_bit))
        chances = (float(self.cold_start_s), float(self.noise), float(self.dropout), round_key(state.key, round))
        written = (features, expected_s, upload_s, exchange_s, available, responds)
        for_ranges(_play, num_clients, *clients, *sizes, *chances, *written)
        context = RoundContext(round=round, features=features.T, available=available, cohort_size=self.cohort_size)
        outcome = Outcome(
            exchange_time_s=exchange_s,
            expected_time_s=expected_s,
            expected_upload_s=upload_s,
            responds=responds,
            deadline_s=self.deadline_s or math.inf,
            stay_s=remaining_s,
        )
        return context, outcome

    def at(self, state: TraceState, elapsed_s: float, /) -> TraceState:
        """The state so many seconds after the first round began: in free places the clock is the simulation's."""
        return replace(state, time_s=self.start_time_s + elapsed_s)

    def poll_times(self, state: TraceState, context: RoundContext, links: IntArray, /) -> FloatArray:
        r"""How long clients take to be sent the model and to answer with their loss, seconds, shape (k,).

        .. math:: \tau^{\text{poll}} = W \kappa_n + s\, \tau^s + \frac{M_\downarrow}{B_n}

        W counts local epochs, and a loss needs one pass: with several epochs this is too long.  The answer itself is a
        number and takes no time.
        """
        work_s, cold, transfer_s = context.features[links].T
        total_bit = self.download_bit + self.upload_bit
        down = self.download_bit / total_bit if total_bit else 0.0
        times_s: FloatArray = work_s / BACKWARD_FACTOR + self.cold_start_s * cold + down * transfer_s
        return times_s

    def advance(self, state: TraceState, context: RoundContext, selection: Selection, /) -> TraceState:
        """Move the clock on, and remember the cohort."""
        client = context.clients_of(selection.links)
        duration_s = self.idle_step_s
        if not selection.is_empty:
            time_s = exchange_times(
                client,
                context.features[selection.links],
                cold_start_s=float(self.cold_start_s),
                noise=float(self.noise),
                key=round_key(state.key, context.round),
            )
            duration_s = min(float(time_s.max()), self.deadline_s or math.inf)
        if selection.polled is not None:
            duration_s += float(self.poll_times(state, context, selection.polled).max())
        cold = np.ones(self.num_clients, np.bool_)
        cold[client] = False
        return replace(state, time_s=state.time_s + max(duration_s, self.round_interval_s), cold=cold)
