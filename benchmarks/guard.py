"""What each duty of the guard is worth against liars: alone, together, and all but one.

Run as ``python -m benchmarks.guard``: four of 40 clients lie, at the defaults of a live selector.  A cost is by how
many per cent the mean round is longer than where all are honest and every word is believed.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.rows import RESULTS
from fedroster import Selector
from fedroster.catalogue import make_policy, make_scenario
from fedroster.selector.guard import Guard
from fedroster.types import Selection, Streams

POLICIES = ("rbcs-f:V=1", "floor", "oort")
LIARS = 4
FIRST = 50  # rounds that are not judged
LIES = (
    # what, which clients, how
    ("contexts", "slow", "/100"), ("contexts", "slow", "0"), ("contexts", "slow", "random"),
    ("contexts", "fast", "x100"), ("contexts", "slow", "/100 until round 50"), ("times", "slow", "/100"),
    ("times", "fast", "x100"), ("times", "fast", "random"), ("times", "slow", "/100 until round 50"),
    ("times", "fast", "1e8 once"), ("times", "fast", "1e12"), ("times", "any", "1e9 in round 1, no clock"),
)  # fmt: skip
Lie = tuple[str, str, str]
DUTIES = {
    "trust": "contexts that predict worse than the client's mean time give way to the fleet's median",
    "cap": "a time counts as ten times the median of recent ones at most",
    "clock": "no time counts as longer than the round",
    "blame": "a round that is longer than all its times is laid on the member of most such rounds",
    "rest": "debts of a client rest while it is away for more than 20 rounds",
}
AWAY: Lie = ("presence", "slow", "away for 1,000 rounds")
ALL_LIES = (
    *LIES,
    ("contexts", "slow", "/1e12"),
    ("contexts", "fast", "x1e12"),
    ("times", "fast", "1e8 once, no clock"),
    ("times", "fast", "1e12, no clock"),
    AWAY,
)


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
    which = order[:LIARS] if lie and lie[1] == "fast" else order[-LIARS:]
    size = scenario.spec.num_clients
    options |= {"cohort_size": scenario.spec.cohort_size, "num_features": 3, "clients": range(size), "seed": seed}
    selector = Selector(make_policy(policy), **options)
    lengths, chosen, once = list[float](), np.zeros((rounds, size), np.bool_), False
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
            told_times: dict[str | int, float] = dict(zip(members.tolist(), times_s.tolist(), strict=True))
            is_clocked = not (lie and lie[2].endswith("no clock"))
            selector.observe(cohort.round, times_s=told_times, round_s=length if is_clocked else None)
        selection = Selection(number, members)
        net = scenario.advance(net, dataclasses.replace(context, available=available), selection)
        lengths.append(length)
        chosen[number - 1, members] = True
    return np.array(lengths), chosen, which


def run(policy: str, duties: frozenset[str], lie: Lie | None, seed: int) -> float:
    """Mean length of the rounds that are judged, under some duties only."""
    with ExitStack() as stack:
        if "trust" not in duties:
            stack.enter_context(patch.object(Guard, "trust", lambda self, slots: np.ones(slots.shape[0])))
        if not {"clock", "blame"} <= duties:
            whole = Guard._explained

            def explained(self: Any, client: Any, time_s: Any, round_s: float, whole_: bool, changes: Any) -> Any:
                if "blame" not in duties:
                    return np.minimum(time_s, round_s) if "clock" in duties else time_s
                short = whole(self, client, time_s, round_s, whole_, changes)
                return np.where((short == round_s) & (time_s < round_s), short, time_s)

            stack.enter_context(patch.object(Guard, "_explained", explained))
        options: dict[str, Any] = {} if "cap" in duties else {"longest_s": None}
        options |= {} if "rest" in duties else {"longest_absence": None}
        if lie == AWAY:
            return float(play(policy, 1300, seed, away=range(100, 1100), **options)[0][-200:].mean())
        return float(play(policy, 300, seed, lie, **options)[0][FIRST:].mean())


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guard", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=RESULTS / "guard.md")
    given = parser.parse_args()
    everything = frozenset(DUTIES)
    sets = {"none": frozenset[str](), "all": everything}
    sets |= {f"{duty} alone": frozenset([duty]) for duty in DUTIES}
    sets |= {f"all but {duty}": everything - {duty} for duty in DUTIES}

    def same(name: str, lie: Lie | None) -> str:
        """A set of duties that does the same against a lie: only absence needs rest, and nothing else."""
        if (lie == AWAY) == ("rest" in name) or name in ("none", "all"):
            return name
        return "none" if name.endswith("alone") else "all"

    asked = list(itertools.product(POLICIES, sets, [None, *ALL_LIES], range(given.seeds)))
    asked = [each for each in asked if same(each[1], each[2]) == each[1]]
    with ProcessPoolExecutor(given.jobs) as pool:
        found = pool.map(run, *zip(*((p, sets[s], lie, seed) for p, s, lie, seed in asked), strict=True), chunksize=8)
        mean_s = dict(zip(asked, found, strict=True))

    def cost(policy: str, duties: str, lie: Lie | None) -> float:
        ours, bare = (
            np.mean([mean_s[policy, same(each, what), what, seed] for seed in range(given.seeds)])
            for each, what in ((duties, lie), ("none", None))
        )
        return float(100.0 * (ours / bare - 1.0))

    lines = [
        "# guard",
        "",
        f"Made by `python -m benchmarks.guard --seeds {given.seeds}`: the fleet of Huang et al. 2021 with "
        "four liars of forty. A number is by how many per cent a mean round is longer than where all are honest and "
        "the guard is off; the worst of the lies, and which it is.",
        "",
        *(f"* {duty}: {what}" for duty, what in DUTIES.items()),
        "",
        "| duties | " + " | ".join(policy.partition(":")[0] for policy in POLICIES) + " |",
        "| --- " * (1 + len(POLICIES)) + "|",
    ]
    for name in sets:
        cells = []
        for policy in POLICIES:
            costs = {lie: cost(policy, name, lie) for lie in ALL_LIES}
            worst = max(costs, key=costs.__getitem__)
            cells.append(f"{costs[worst]:+.1f} ({' '.join((worst[1], worst[0], worst[2]))})")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    for policy in POLICIES:
        lines += ["", f"## {policy.partition(':')[0]}, each lie", "", "| lie | " + " | ".join(sets) + " |"]
        lines += ["| --- " * (1 + len(sets)) + "|"]
        for lie in (None, *ALL_LIES):
            name = "all are honest" if lie is None else " ".join((lie[1], lie[0], lie[2]))
            lines.append(f"| {name} | " + " | ".join(f"{cost(policy, each, lie):+.1f}" for each in sets) + " |")
    given.out.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
