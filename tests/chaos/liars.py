"""Liars and absentees in the fleet of Huang et al. 2021, at the defaults of a live selector: what they cost."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np

from chaos.rows import Row
from fedroster import Selector
from fedroster.catalogue import make_policy, make_scenario
from fedroster.core.problem import Selection
from fedroster.core.streams import Streams

POLICIES = ("rbcs-f:V=1", "floor", "oort")
_LIARS = 4
FIRST = 50  # rounds that are not judged
_LARGEST_COST = 25.0  # percent, wherever the server can know better
# Participations that liars may cost an honest client in all, beyond what it is behind without them.  By (6) of Huang
# et al. 2021 a client is behind by its queue, which does not grow with the number of rounds.
_LARGEST_LACK = 3.0
LIES = (
    # what, which clients, how
    ("contexts", "slow", "/100"), ("contexts", "slow", "0"), ("contexts", "slow", "random"),
    ("contexts", "fast", "x100"), ("contexts", "slow", "/100 until round 50"), ("times", "slow", "/100"),
    ("times", "fast", "x100"), ("times", "fast", "random"), ("times", "slow", "/100 until round 50"),
    ("times", "fast", "1e8 once"), ("times", "fast", "1e12"), ("times", "any", "1e9 in round 1, no clock"),
)  # fmt: skip
Lie = tuple[str, str, str]


def run(size: float, seed: int) -> list[Row]:
    rounds, seeds = (300, 3) if size >= 0.5 else (250, 1)
    lies = LIES if size >= 0.5 else (LIES[0], LIES[5], LIES[9], LIES[11])
    policies = POLICIES if size >= 0.5 else POLICIES[:2]
    rows = [_lies(policy, lies, rounds, range(seed, seed + seeds)) for policy in policies]
    away = 1000 if size >= 0.5 else 120
    return [*rows, *(_absence(policy, away, 200 if size >= 0.5 else 80, seed) for policy in policies)]


def _factor(how: str, rng: np.random.Generator, round_: int) -> float:
    if how == "random":
        return float(10.0 ** rng.uniform(-2.0, 2.0))
    if how.endswith("until round 50") and round_ > 50:
        return 1.0
    return {"0": 0.0, "x100": 100.0, "x1e12": 1e12, "/1e12": 1e-12}.get(how, 0.01)


def play(policy: str, rounds: int, seed: int, lie: Lie | None = None, *, away: range = range(0), **options: Any) -> Any:
    """Rounds of a fleet of which some lie, or are away; returns true round lengths, choices, and who lies."""
    scenario = make_scenario("rbcs-f/table-1")
    streams = Streams(seed)
    net = scenario.init(rng=streams.at("environment-init"))
    rng = np.random.default_rng(seed + 99)
    expected = sum(scenario.observe(net, t, rng=streams.at("environment", t))[1].expected_time_s for t in range(1, 31))
    order = np.argsort(expected)
    which = order[:_LIARS] if lie and lie[1] == "fast" else order[-_LIARS:]
    clients = list(range(scenario.num_clients))
    options |= {"cohort_size": scenario.cohort_size, "num_features": 3, "clients": clients, "seed": seed}
    selector = Selector(make_policy(policy), **options)
    lengths, chosen, once = [], np.zeros((rounds, scenario.num_clients), bool), False
    for number in range(1, rounds + 1):
        context, outcome = scenario.observe(net, number, rng=streams.at("environment", number))
        told, available = np.array(context.features), context.available.copy()
        if number in away:
            available[which] = False
        if lie and lie[0] == "contexts":
            for client in which:
                told[client] *= _factor(lie[2], rng, number)
        cohort = selector.select(told, available=available)
        members = np.array(sorted(cohort.clients), int)
        true_s = outcome.exchange_time_s[members]
        times_s = true_s.copy()
        for row, client in enumerate(members):
            if lie and lie[0] == "times" and lie[1] != "any" and client in which:
                if lie[2].startswith("1e12"):
                    times_s[row] = 1e12
                elif lie[2].startswith("1e8 once"):
                    times_s[row], once = (times_s[row] if once else 1e8), True
                else:
                    times_s[row] *= _factor(lie[2], rng, number)
        if lie and lie[1] == "any" and number == 1:
            times_s[0], which = 1e9, members[:1]
        length = float(true_s.max(initial=0.0))
        if members.shape[0]:
            told_times = {int(client): float(time_s) for client, time_s in zip(members, times_s, strict=True)}
            is_clocked = not (lie and lie[2].endswith("no clock"))
            selector.observe(cohort.round, times_s=told_times, round_s=length if is_clocked else None)
        selection = Selection(number, members)
        net = scenario.advance(net, dataclasses.replace(context, available=available), selection)
        lengths.append(length)
        chosen[number - 1, members] = True
    return np.array(lengths), chosen, which


def _lies(policy: str, lies: tuple[Lie, ...], rounds: int, seeds: range) -> Row:
    row = Row(f"{_LIARS} liars of 40 under {policy.partition(':')[0]}, {rounds} rounds, the server's clock is told")
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
    row = Row(f"{_LIARS} slow clients away for {away} rounds under {name}, the {after} rounds after")
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
