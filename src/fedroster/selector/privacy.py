"""Claims about privacy that a selection allows, and those that it does not.

Selection alone protects no one.  Two things about it enter the accounting of a mechanism that adds noise:

* *Amplification by sampling.*  A sample of m of N clients, drawn uniformly without replacement and kept secret, makes a
  mechanism more private than its run on all (Balle, Barthe and Gaboardi, "Privacy Amplification by Subsampling: Tight
  Analyses via Couplings and Divergences", NeurIPS 2018, arXiv:1807.01647).
* *How often each client may take part.*  Mechanisms with correlated noise are calibrated for at most k participations
  of a client, b rounds or more apart (Choquette-Choo et al., "Multi-Epoch Matrix Factorization Mechanisms for Private
  Machine Learning", ICML 2023, arXiv:2211.06530; the same and others, "(Amplified) Banded Matrix Factorization",
  NeurIPS 2023, arXiv:2306.08153, which defines the separation of rounds i < j as j - i).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedroster.core.protocols import AnyPolicy, Draws, deciding, draws, expects_times, polls, signs, wants_losses
from fedroster.policies import (
    COCS,
    CUCB,
    CUCBPairs,
    Dirichlet,
    FedCS,
    FedCSGreedy,
    LinUCB,
    LinUCBPairs,
    Oracle,
    OracleP,
    Uniform,
)

Reads = Literal["nothing", "system", "losses", "signatures", "labels", "unknown"]
"""What decisions depend on: nothing that clients send; times, contexts and whether clients answer; also losses or
numbers of samples, which are facts about their data; signatures of updates, which tell whose data are alike; or the
updates of the output layer's bias, which tell which classes a client holds, nearly as a histogram of its data."""

_NOTHING = (Uniform, Dirichlet)
_SYSTEM = (COCS, CUCB, CUCBPairs, LinUCB, LinUCBPairs, FedCS, FedCSGreedy, Oracle, OracleP)


@dataclass(frozen=True, slots=True)
class Privacy:
    """The claims for the rounds so far, and for the next ones as long as nothing changes.

    Attributes:
        reads: What the decisions depend on.
        draws: How chance decides: "never", "uniform", or "unknown".
        amplification: Whether sampling may be counted: m of N clients, uniformly and without replacement.
        sampled: m and N; None where sampling may not be counted.
        separation: b, a client that took part in round t takes part again in round t + b at the earliest, >= 1.
        participations: k, how often a client takes part at most; None where nothing limits it.
        reasons: Why sampling may not be counted, or what else must be so for it, in sentences.
    """

    reads: Reads
    draws: Draws
    amplification: bool
    sampled: tuple[int, int] | None
    separation: int
    participations: int | None
    reasons: tuple[str, ...]

    def participations_in(self, rounds: int) -> int:
        """K of a run of this many rounds: what the rules allow, and at most every b-th round.

        Args:
            rounds: Rounds, >= 0.
        """
        most = -(-rounds // self.separation)
        return most if self.participations is None else min(most, self.participations)


def reads(policy: AnyPolicy) -> Reads:
    """What a policy's decisions depend on: as it declares in ``reads``, or as its interface shows."""
    if (inside := deciding(policy)) is not policy:  # its weights depend on who answers
        return "system" if (found := reads(inside)) == "nothing" else found
    declared: Reads | None = getattr(policy, "reads", None)
    if declared is not None:
        return declared
    if (signature := signs(policy)) is not None:
        return "labels" if signature.of == "bias" else "signatures"
    if wants_losses(policy) or polls(policy):
        return "losses"
    if expects_times(policy) or isinstance(policy, _SYSTEM):
        return "system"
    return "nothing" if isinstance(policy, _NOTHING) else "unknown"


def privacy_of(
    policy: AnyPolicy,
    circumstances: list[str],
    *,
    sampled: tuple[int, int],
    separation: int,
    participations: int | None,
) -> Privacy:
    """Collect the claims, against which circumstances speak; ``sampled`` are m and N, and then come b and k."""
    how, name = draws(policy), type(policy).__name__
    against = []
    if how != "uniform":
        why = "it draws nothing at random" if how == "never" else "clients may have different probabilities"
        against.append(f"{name} does not draw uniformly: {why}")
    if callable(getattr(policy, "weights", None)):
        against.append(f"{name} weighs updates: one client's may count for more than another's")
    against += circumstances
    conditions = (
        "every member is available in every round, and none is left out because it is busy",
        "the seed and the cohorts stay secret (draws are of a generator for simulation, not for cryptography)",
        "every chosen client's update counts or fails for unrelated reasons: no first k of m",
    )
    return Privacy(
        reads=reads(policy),
        draws=how,
        amplification=not against,
        sampled=None if against else (min(sampled), sampled[1]),
        separation=separation,
        participations=participations,
        reasons=tuple(against) if against else conditions,
    )
