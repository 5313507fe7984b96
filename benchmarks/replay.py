"""Whether `fedroster replay` and `fedroster plan` are right, in other worlds at each run.

Run as ``python -m benchmarks.replay [--logs 100] [--plans 20] [--seed S] [--stop-at HH:MM]``.  The seed comes from the
system's entropy if none is given, and stands in the tables.

Tables are ``replay.md`` and ``plan.md`` in ``benchmarks/results``.

* **Logs.** Each is of a federation of random size, noise, availability and rules, by a random policy, played by a loop
  of its own through a selector with a record.  It is replayed with another policy; the truth is what that policy makes
  of the same network.  An interval of 90 % should hold it in 85 to 97 of 100 logs.
* **Plans.** Each is a random wish in a random scenario.  The setting that is said to meet it is played in ten other
  runs, through the same loop; of one that is said to be out of reach, the nearest setting is.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import secrets
import warnings
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.random import Generator

from benchmarks.rows import RESULTS
from fedroster import Record, Rules, Selector
from fedroster.catalogue import make_policy
from fedroster.core.state import write_text_atomically
from fedroster.errors import ConfigurationError, FairnessWarning, RoundNotBegunError
from fedroster.lab.planning import ScenarioWorld, Wish, plan
from fedroster.lab.replay import MEASURES, replay
from fedroster.networks.flat import FlatNetwork
from fedroster.record import Log
from fedroster.types import IntArray, Selection, Streams

_NOISES = ("uniform", "half-normal", "log-normal", "bimodal")
_DAY_S = 1e9  # when federations begin


@dataclass(frozen=True, slots=True)
class Ran:
    """What a federation did: lengths of its rounds with a cohort, and choices, uses and misses of its clients."""

    lasted_s: list[float]
    chosen: IntArray
    used: IntArray
    missed: int


def federation(
    policy: str,
    network: FlatNetwork,
    folder: str | Path | None = None,
    *,
    rounds: int,
    seed: int,
    rules: dict[str, Any] | None = None,
    idle_s: float = 0.0,
    late: str = "told",
    deadline_s: float = math.inf,
    needed: int | None = None,
) -> Ran:
    """Run a federation as an engine does: a loop that shares nothing with the one that is judged.

    Args:
        policy: As text.
        network: The network.
        folder: Where its log is written; None for none.
        rounds: Rounds that are asked for.
        seed: Of the network and of the policy.
        rules: Rules, as a table.
        idle_s: Seconds between two rounds.
        late: What is told of clients that a round did not wait for: "told" for their times, "dropped" for no more.
        deadline_s: Rounds wait no longer.
        needed: Updates after which a round ends; None for those of all.
    """
    now = [_DAY_S]
    streams, names = Streams(seed), [f"c{number}" for number in range(network.num_clients)]
    record = None if folder is None else Record(folder)
    state = network.init(rng=streams.at("environment-init"))
    lasted_s, missed = [], 0
    count, used = np.zeros((2, len(names)), np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairnessWarning)
        selector = Selector(
            make_policy(policy),
            cohort_size=network.cohort_size,
            seed=seed,
            clients=names,
            rules=Rules.from_table(rules or {}),
            clock=lambda: now[0],
            observers=[] if record is None else [record],
        )
        for number in range(1, rounds + 1):
            context, outcome = network.observe(state, number, rng=streams.at("environment", number))
            cohort: tuple[Any, ...] = ()
            with contextlib.suppress(RoundNotBegunError):
                there = np.flatnonzero(context.available).tolist()
                cohort = selector.select({names[n]: context.features[n] for n in there}).clients
            slots = np.array([int(name[1:]) for name in cohort], np.int64)
            times = {name: float(outcome.exchange_time_s[int(name[1:])]) for name in cohort}
            came = sorted(times[name] for name in cohort if outcome.responds[int(name[1:])])
            end_s = 0.0
            if cohort:
                is_full = needed is not None and len(came) >= needed
                end_s = min(came[(needed or 1) - 1] if is_full else max(times.values()), deadline_s)
                lost = [name for name in cohort if not outcome.responds[int(name[1:])]]
                slow = [name for name in cohort if name not in lost and times[name] > end_s]
                good = {name: time for name, time in times.items() if name not in lost and name not in slow}
                dropped = lost + (slow if late == "dropped" else [])
                if good or dropped:
                    selector.observe(selector.round, times_s=good, dropped=dropped, round_s=end_s)
                if slow and late == "told":
                    selector.observe(selector.round, times_s={name: times[name] for name in slow}, late=slow)
                lasted_s.append(end_s)
                count[slots] += 1
                used[[int(name[1:]) for name in good]] += 1
                missed += len(lost) + len(slow)
            state = network.advance(state, context, Selection(number, np.sort(slots)))
            now[0] += end_s + idle_s
    if record is not None:
        record.close()
    return Ran(lasted_s, count, used, missed)


def drawn_network(rng: Generator) -> FlatNetwork:
    """A network of random size and noise."""
    clients = int(rng.integers(12, 41))
    return FlatNetwork(
        num_clients=clients,
        cohort_size=int(rng.integers(3, max(4, clients // 4) + 1)),
        availability=float(rng.choice([0.7, 0.9])),
        dropout=float(rng.choice([0.0, 0.05])),
        drift=float(rng.choice([0.0, 0.0, 0.5])),
        noise_shape=str(rng.choice(_NOISES)),  # type: ignore[arg-type]
        noise=float(rng.choice([0.5, 0.9])),
    )


def drawn_rules(network: FlatNetwork, rng: Generator) -> dict[str, Any]:
    """No rules, or groups, windows and separations that the network can mostly keep."""
    rules: dict[str, Any] = {}
    share = network.cohort_size / network.num_clients
    if rng.random() < 0.5:
        half = [f"c{number}" for number in range(network.num_clients // 2)]
        rules["groups"] = {"half": {"clients": half, "least": 1, "most": max(1, network.cohort_size - 1)}}
    if rng.random() < 0.5:
        window = int(rng.integers(4, 9))
        rules |= {"window": window, "most_per_window": math.ceil(2.0 * share * window)}
    if rng.random() < 0.3:
        rules["least_separation_s"] = 30.0
    return rules


def judged_log(rng: Generator) -> list[dict[str, Any]]:
    """Draw a federation, log it, replay another policy in it, and hold the estimates against the truth."""
    network = drawn_network(rng)
    rules = drawn_rules(network, rng)
    beta = round(0.4 * network.cohort_size / network.num_clients, 3)
    policies = ["random", f"floor:beta={beta}", f"rbcs-f:V=3,beta={beta}", "round-robin"]
    by, to = rng.choice(policies, 2, replace=False).tolist()
    how: dict[str, Any] = {"rounds": 120, "seed": int(rng.integers(2**31)), "rules": rules, "idle_s": 5.0}
    if rng.random() < 0.3:
        how["deadline_s"] = 12.0
    with TemporaryDirectory() as folder:
        federation(by, network, f"{folder}/log", **how)
        found = replay(Log(f"{folder}/log"), {to: make_policy(to)})
    truth = federation(to, network, **how)
    true = {
        "mean_round_time_s": float(np.mean(truth.lasted_s)),
        "min_participation_rate": float(truth.chosen.min()) / 120,
        "deadline_misses": float(truth.missed),
    }
    kind = "rules" if rules else "no rules"
    about = {"noise": network.noise_shape, "by": by.partition(":")[0], "to": to.partition(":")[0], "kind": kind}
    return [
        about
        | {"measure": one.measure, "low": one.low, "high": one.high, "estimate": one.estimate}
        | {"truth": true[one.measure], "refused": one.refused}
        for one in found
        if one.kind == "modelled"
    ]


def judged_plan(rng: Generator, late: str) -> dict[str, Any] | None:
    """Draw a wish, plan, and play the answer in ten other runs; None where no setting can be tried."""
    network = drawn_network(rng)
    settings = {name: str(getattr(network, name)) for name in ("num_clients", "cohort_size", "availability", "dropout")}
    settings |= {name: str(getattr(network, name)) for name in ("drift", "noise_shape", "noise")}
    share = round(float(rng.uniform(0.2, 0.7)) * network.cohort_size / network.num_clients, 3)
    wish = Wish(share, float(rng.uniform(8.0, 25.0)), float(rng.choice([0.9, 0.95])))
    try:
        found = plan(ScenarioWorld("rbcs-f/table-1", settings, rounds=120), wish, seeds=range(10), late=late)  # type: ignore[arg-type]
    except ConfigurationError:
        return None
    best = found.tried[0]
    policy, spare, deadline_s = best.setting.policy, best.setting.spare, best.setting.deadline_s
    size = network.cohort_size
    wider = replace(network, cohort_size=size + spare)
    met = 0
    for seed in rng.integers(2**31, size=10).tolist():
        ran = federation(policy, wider, rounds=120, seed=seed, late=late, deadline_s=deadline_s, needed=size)
        under = np.quantile(ran.lasted_s, wish.share, method="inverted_cdf")
        met += bool(ran.used.min() / 120 >= wish.every_client and under <= wish.rounds_under_s)
    return {"late": late, "said": best.is_met, "met": met}


def log_table(rows: list[dict[str, Any]]) -> str:
    """Coverage by kind of log and measure, as Markdown."""
    lines = [
        "| logs | measure | logs | refused | held | above | below | half width |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    parts = [("all", "", "")] + [("kind", each, each) for each in ("rules", "no rules")]
    parts += [("noise", each, f"{each} noise") for each in _NOISES]
    parts += [(what, each, f"{words} `{each}`") for what, words in (("by", "by"), ("to", "replayed with"))
              for each in ("random", "floor", "rbcs-f", "round-robin")]  # fmt: skip
    for what, value, words in parts:
        for measure in MEASURES if what == "all" else MEASURES[:1]:
            own = [row for row in rows if row["measure"] == measure and (not value or row[what] == value)]
            told = [row for row in own if row["refused"] is None]
            if not told:
                continue
            above = sum(row["truth"] > row["high"] + 1e-9 for row in told)
            below = sum(row["truth"] < row["low"] - 1e-9 for row in told)
            held = f"{len(told) - above - below} of {len(told)} ({1.0 - (above + below) / len(told):.0%})"
            width = float(np.median([0.5 * (row["high"] - row["low"]) / max(row["estimate"], 1e-9) for row in told]))
            counts = f"{len(own)} | {len(own) - len(told)} | {held} | {above} | {below} | {width:.1%}"
            lines.append(f"| {words or 'all'} | `{measure}` | {counts} |")
    reasons: dict[str, int] = {}
    for row in rows:
        if row["refused"] is not None and row["measure"] == MEASURES[0]:
            reason = "".join("#" if each.isdigit() else each for each in row["refused"])[:70]
            reasons[reason] = reasons.get(reason, 0) + 1
    said = [f"* {count} logs: {reason} ..." for reason, count in sorted(reasons.items(), key=lambda each: -each[1])]
    return "\n".join(lines) + "\n\nHalf widths are medians, of the estimate. Refused:\n\n" + "\n".join(said) + "\n"


def plan_table(rows: list[dict[str, Any]]) -> str:
    """How often what is said of wishes is so, as Markdown."""
    lines = [
        "| late clients | wishes | said to be met | unseen runs of these that meet them | said to be out of reach | "
        "of these, met in all unseen runs |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for late in ("told", "dropped"):
        own = [row for row in rows if row["late"] == late]
        met, out = [row for row in own if row["said"]], [row for row in own if not row["said"]]
        held = sum(row["met"] for row in met)
        missed = sum(row["met"] == 10 for row in out)
        share = f"{held} of {10 * len(met)}" + (f" ({held / (10 * len(met)):.0%})" if met else "")
        lines.append(f"| {late} | {len(own)} | {len(met)} | {share} | {len(out)} | {missed} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Draw worlds, judge, and write the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay", description=__doc__)
    parser.add_argument("--logs", type=int, default=0)
    parser.add_argument("--plans", type=int, default=0, help="wishes for each way to tell of late clients")
    parser.add_argument("--seed", type=int, default=None, help="other worlds at each run if not given")
    parser.add_argument("--stop-at", help="HH:MM, UTC")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    seed = secrets.randbits(31) if given.seed is None else given.seed
    streams, logs, plans = Streams(seed), list[dict[str, Any]](), list[dict[str, Any]]()

    def is_late() -> bool:
        return bool(given.stop_at) and f"{datetime.now(UTC):%H:%M}" >= given.stop_at

    def write() -> None:
        for name, rows, table in (("replay", logs, log_table), ("plan", plans, plan_table)):
            if rows:
                count = f"--{'logs' if name == 'replay' else 'plans'} {number + 1}"
                about = (
                    f"Made by `python -m benchmarks.replay {count} --seed {seed}`; without `--seed`, worlds are others."
                )
                write_text_atomically(given.out / f"{name}.md", f"{about}\n\n{table(rows)}")

    given.out.mkdir(parents=True, exist_ok=True)
    for number in range(max(given.logs, given.plans)):
        if is_late():
            break
        if number < given.logs:
            logs += judged_log(streams.at("log", number))
        for late in ("told", "dropped"):
            if number < given.plans and not is_late() and (row := judged_plan(streams.at("plan", number), late)):
                plans.append(row)
        write()
    print(log_table(logs), plan_table(plans), sep="\n")


if __name__ == "__main__":
    main()
