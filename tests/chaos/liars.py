"""Liars and absentees in the fleet of Huang et al. 2021, at the defaults of a live selector: what they cost."""

from __future__ import annotations

import time

import numpy as np
from benchmarks.guard import FIRST, LIARS, LIES, POLICIES, Lie, play

from chaos.rows import Row
from fedroster.catalogue import make_policy

_LARGEST_COST = 25.0  # percent, wherever the server can know better
# Participations that liars may cost an honest client in all, beyond what it is behind without them.  By (6) of Huang
# et al. 2021 a client is behind by its queue, which does not grow with the number of rounds.
_LARGEST_LACK = 3.0


def run(size: float, seed: int) -> list[Row]:
    rounds, seeds = (300, 3) if size >= 0.5 else (250, 1)
    lies = LIES if size >= 0.5 else (LIES[0], LIES[5], LIES[9], LIES[11])
    policies = POLICIES if size >= 0.5 else POLICIES[:2]
    rows = [_lies(policy, lies, rounds, range(seed, seed + seeds)) for policy in policies]
    away = 1000 if size >= 0.5 else 120
    return [*rows, *(_absence(policy, away, 200 if size >= 0.5 else 80, seed) for policy in policies)]


def _lies(policy: str, lies: tuple[Lie, ...], rounds: int, seeds: range) -> Row:
    row = Row(f"{LIARS} liars of 40 under {policy.partition(':')[0]}, {rounds} rounds, the server's clock is told")
    is_judged = "oort" not in policy
    honest, bare, lack = [], [], 0.0
    beta = getattr(make_policy(policy), "beta", 0.0)
    for seed in seeds:
        lengths, chosen, _ = play(policy, rounds, seed)
        honest.append(lengths[FIRST:].mean())
        lack = max(lack, _lack(chosen, beta))
        off = {"guarded": False, "longest_s": None}
        bare.append(play(policy, rounds, seed, **off)[0][FIRST:].mean())
    cost_of_guard = 100.0 * (np.mean(honest) / np.mean(bare) - 1.0)
    if is_judged and len(seeds) > 1 and cost_of_guard > 2.0:
        row.fault(f"the guard costs {cost_of_guard:.1f} % where all are honest")
    costs, least, lacks = {}, {}, {}
    for lie in lies:
        row.tries += 1
        begin = time.perf_counter()
        name = " ".join((lie[1], lie[0], lie[2]))
        runs = [play(policy, rounds, seed, lie) for seed in seeds]
        costs[name] = 100.0 * (np.mean([lengths[FIRST:].mean() for lengths, _, _ in runs]) / np.mean(bare) - 1.0)
        told = [np.delete(chosen, liars, axis=1) for _, chosen, liars in runs]
        least[name] = min(chosen.mean(axis=0).min() for chosen in told)
        lacks[name] = max(_lack(chosen, beta) for chosen in told)
        row.timed(begin)
        if is_judged and costs[name] > _LARGEST_COST:
            row.fault(f"{name}: rounds take {costs[name]:.0f} % longer, expected {_LARGEST_COST:.0f} % at most")
        if is_judged and lacks[name] > lack + _LARGEST_LACK:
            row.lose(
                1, f"{name}: an honest client is {lacks[name]:.0f} participations behind, {lack:.0f} without liars"
            )
    worst = max(costs, key=costs.__getitem__)
    row.note = (
        f"honest {np.mean(bare):.1f} s unguarded, the guard costs {cost_of_guard:+.1f} %; "
        f"worst {costs[worst]:+.0f} % ({worst}); least honest rate {min(least.values()):.3f}, beta {beta}, "
        f"{max(lacks.values()):.0f} participations behind, {lack:.0f} without liars; "
        + ", ".join(f"{name} {cost:+.0f} %" for name, cost in costs.items())
    )
    return row.done()


def _lack(chosen: np.ndarray, beta: float) -> float:
    """Most participations that a client is behind its promise, of rounds x clients."""
    return max(0.0, float((beta * chosen.shape[0] - chosen.sum(axis=0)).max()))


def _absence(policy: str, away: int, after: int, seed: int) -> Row:
    name = policy.partition(":")[0]
    row = Row(f"{LIARS} slow clients away for {away} rounds under {name}, the {after} rounds after")
    row.tries += 1
    begin = time.perf_counter()
    first = 100
    rounds = first + away + after
    beta = getattr(make_policy(policy), "beta", 0.0)
    usual, usually, _ = play(policy, rounds, seed)
    lack = _lack(usually, beta)  # a promise counts from the first round: who is ahead may rest when others come back
    lengths, chosen, absentees = play(policy, rounds, seed, away=range(first, first + away))
    cost = 100.0 * (lengths[-after:].mean() / usual[-after:].mean() - 1.0)
    rates = chosen[-after:].mean(axis=0)
    least = np.delete(rates, absentees).min()
    lacks = _lack(np.delete(chosen, absentees, axis=1), beta)
    row.timed(begin)
    if "oort" not in policy:
        if cost > _LARGEST_COST:
            row.fault(f"rounds take {cost:.0f} % longer, expected {_LARGEST_COST:.0f} % at most")
        if lacks > lack + _LARGEST_LACK:
            row.lose(1, f"an honest client is {lacks:.0f} participations behind, {lack:.0f} without absentees")
    row.note = (
        f"{cost:+.0f} %; least honest rate {least:.3f}, beta {beta}, {lacks:.0f} participations behind, {lack:.0f} "
        f"without absentees; absentees' {rates[absentees].mean():.2f}"
    )
    return row.done()
