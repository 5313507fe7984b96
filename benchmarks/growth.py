"""What a decision costs, for each policy, as the number of clients grows from 100 to a million.

Run as ``python -m benchmarks.growth``.  All policies meet the same rounds and decide in turn; a cost is the median of
the rounds that count.  What is fixed and what grows:

* Flat: ``rbcs-f/table-1`` with N clients and k = 20, so that the slope is N's alone.  Before the first round that
  counts everybody has taken part once (a round with k = N), and ten more are played.  beta is half of what can be
  promised.
* Hierarchical: the geometric ``cocs/mnist`` with 10 servers, each client in reach of 3, budgets of 10; the solver may
  leave the gap that it may by default.  Ten rounds are played before.

A policy stops growing where its next decision, by the growth so far, would take longer than :data:`LONGEST_S`, or its
state more than :data:`LARGEST_GIB`.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import polars as pl

from benchmarks.rows import Row, Session, figure
from fedroster.catalogue import make_policy, make_scenario
from fedroster.core.arrays import FloatArray
from fedroster.core.problem import Feedback, Outcome, RoundContext, Selection
from fedroster.core.protocols import AnyPolicy, wants_losses
from fedroster.core.state import pack, write_text_atomically
from fedroster.core.streams import Streams
from fedroster.lab.compare.line_up import ALL, Asked, line_up
from fedroster.lab.pages.charts import GREY, Figure, colour_of, dash_of, finished, table
from fedroster.lab.pages.looks import Look, in_order
from fedroster.lab.trials.store import write_table

LONGEST_S = 4.0
LARGEST_GIB = 2.0
SPENT_S = 8.0  # on one policy at one N; then fewer rounds count, though never fewer than two
BEFORE, LEAST_COUNTED = 10, 7  # rounds
FITTED_FROM = 10_000  # the slope is that of the decades above
SORT = "np.sort"


@dataclass(frozen=True, slots=True)
class Ladder:
    """A scenario whose number of clients grows.

    Attributes:
        name: Of the family.
        scenario: Name in the catalogue.
        settings: What is overridden.
        sizes: N.
        taught: Whether everybody takes part once before.
        rounds_of: Rounds that count, times N: short decisions need many, to settle and to be told from noise.
        most_counted: Though no more rounds than this.
    """

    name: str
    scenario: str
    settings: Mapping[str, str]
    sizes: Sequence[int]
    taught: bool = False
    rounds_of: int = 300_000
    most_counted: int = 200

    def counted(self, num_clients: int) -> int:
        """How many rounds count at a size."""
        return max(LEAST_COUNTED, min(self.most_counted, self.rounds_of // num_clients))


FLAT = Ladder(
    name="flat",
    scenario="rbcs-f/table-1",
    settings={"cohort_size": "20"},
    sizes=(100, 316, 1_000, 3_162, 10_000, 31_623, 100_000, 316_228, 1_000_000),
    taught=True,
)
HIERARCHICAL = Ladder(
    name="hierarchical",
    scenario="cocs/mnist-geometric",
    settings={"num_servers": "10", "mean_reach": "3", "budget": "10"},
    sizes=(100, 316, 1_000, 3_162, 10_000, 31_623, 100_000),
    rounds_of=30_000,
    most_counted=50,
)

PANELS: Mapping[str, Sequence[str]] = {
    "one server, policies that learn": (
        "rbcs-f",
        "floor",
        "p3",
        "oort",
        "tifl",
        "e3cs",
        "cs-ucb",
        "by-speed",
        "afl",
        "refl",
        "pisces",
        "f3ast",
        "clustered-sampling",
        "fedcor",
        "optimal-client-sampling",
        "divfl",
        "hics-fl",
    ),
    "one server, simpler ones": (
        "random",
        "round-robin",
        "size-weighted",
        "power-of-choice",
        "dirichlet",
        "fedcs",
        "fedcs-greedy",
    ),
}
"""Flat policies by panel; those that are not named here share the second one."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a policy cost at one size.

    Attributes:
        family: Name of the ladder.
        policy: Its name.
        num_clients: N.
        decision_s: Median seconds of ``select`` and ``commit``.
        update_s: Median seconds of ``update``.
        rounds: How many rounds count.
        chosen: Mean number of links that were chosen.
    """

    family: str
    policy: str
    num_clients: int
    decision_s: float
    update_s: float
    rounds: int
    chosen: float


@dataclass
class _Player:
    """A policy in the middle of its rounds."""

    policy: AnyPolicy
    state: Any
    decisions_s: list[float] = field(default_factory=list)
    updates_s: list[float] = field(default_factory=list)
    chosen: list[int] = field(default_factory=list)
    spent_s: float = 0.0

    @property
    def is_done(self) -> bool:
        return self.spent_s > SPENT_S and len(self.decisions_s) >= 2

    def play(self, context: RoundContext, outcome: Outcome, streams: Streams, *, counted: bool) -> Selection:
        """Decide one round and learn from it."""
        known = context.with_truth(outcome) if self.policy.omniscient else context
        rng = streams.at("policy", context.round)
        start = time.perf_counter()
        selection = self.policy.select(self.state, known, rng=rng)
        self.state = self.policy.commit(self.state, context, selection)
        decided = time.perf_counter()
        feedback = outcome.reveal(context, selection)
        if wants_losses(self.policy):
            feedback = _with_losses(feedback, streams)
        told = time.perf_counter()
        self.state = self.policy.update(self.state, feedback)
        learned = time.perf_counter()
        self.spent_s += learned - start
        if counted:
            self.decisions_s.append(decided - start)
            self.updates_s.append(learned - told)
            self.chosen.append(int(selection.links.shape[0]))
        return selection


def _with_losses(feedback: Feedback, streams: Streams) -> Feedback:
    """Feedback with made-up losses; the cost of learning does not depend on their values."""
    size = feedback.client.shape[0]
    loss: FloatArray = streams.at("losses", feedback.round).gamma(2.0, 1.0, size=(size,))
    return replace(feedback, loss=loss, squared_loss=1.5 * loss**2, num_samples=np.full(size, 500.0))


def contenders(ladder: Ladder) -> tuple[list[str], dict[str, str]]:
    """Policies of the catalogue that can run on a ladder, and why the others cannot."""
    found = line_up(ladder.scenario, Asked([ALL], clients=ladder.sizes[0], settings=ladder.settings))
    names = [text.partition(":")[0] for text in found.policies]
    left_out = dict(found.left_out)
    if ladder is FLAT:  # what chooses among servers is measured where there are some
        others = set(line_up(HIERARCHICAL.scenario, Asked([ALL], settings=HIERARCHICAL.settings)).policies) - {"random"}
        left_out |= {name: "measured with 10 servers" for name in names if name in others}
        names = [name for name in names if name not in others]
    return names, left_out


def _make(name: str, ladder: Ladder, num_clients: int) -> AnyPolicy:
    (fitted,) = line_up(ladder.scenario, Asked([name], clients=num_clients, settings=ladder.settings)).policies
    return make_policy(fitted)


def measure(
    ladder: Ladder, num_clients: int, names: Sequence[str], *, before: int = BEFORE, counted: int | None = None
) -> Iterator[tuple[Cost, float]]:
    """Costs at one size, and the size of each policy's state in GiB.

    Args:
        ladder: The scenario.
        num_clients: N.
        names: Policies.
        before: Rounds that do not count.
        counted: Rounds that count; None for the ladder's.
    """
    num_counted = ladder.counted(num_clients) if counted is None else counted
    settings = {**ladder.settings, "num_clients": str(num_clients)}
    environment = make_scenario(ladder.scenario, settings)
    streams = Streams(0)
    network = environment.init(rng=streams.at("environment-init"))
    players = {}
    for name in names:
        policy = _make(name, ladder, num_clients)
        policy.check(environment.spec)
        players[name] = _Player(policy, policy.init(environment.spec, rng=streams.at("policy-init")))
    sorts_s = []
    first = 0 if ladder.taught else 1
    for number in range(first, before + num_counted + 1):
        context, outcome = environment.observe(network, number + 1, rng=streams.at("environment", number))
        if number == 0:
            everybody = np.ones(context.num_links, np.bool_)
            context = replace(context, available=everybody, cohort_size=num_clients)
        selection = Selection(context.round, np.zeros(0, np.int64))
        for player in players.values():
            if not player.is_done:
                is_slow = player.spent_s > SPENT_S / 2
                selection = player.play(context, outcome, streams, counted=number > before or is_slow)
        values = streams.at("sort", number).random(num_clients)
        start = time.perf_counter()
        np.sort(values)
        sorts_s.append(time.perf_counter() - start)
        network = environment.advance(network, context, selection)
    for name, player in players.items():
        cost = Cost(
            ladder.name,
            name,
            num_clients,
            statistics.median(player.decisions_s),
            statistics.median(player.updates_s),
            len(player.decisions_s),
            float(statistics.mean(player.chosen)),
        )
        yield cost, sum(array.nbytes for array in pack(player.state).values()) / 2**30
    yield Cost(ladder.name, SORT, num_clients, statistics.median(sorts_s), 0.0, len(sorts_s), 0.0), 0.0


def climb(ladder: Ladder, names: Sequence[str], *, sizes: Sequence[int]) -> tuple[list[Cost], dict[str, str]]:
    """Costs at all sizes, and where and why a policy stopped growing."""
    costs: list[Cost] = []
    stopped: dict[str, str] = {}
    last: dict[str, float] = {}
    for place, num_clients in enumerate(sizes):
        here = [name for name in names if name not in stopped]
        following = sizes[place + 1] if place + 1 < len(sizes) else None
        for cost, state_gib in measure(ladder, num_clients, here):
            costs.append(cost)
            if following is None or cost.policy == SORT:
                continue
            growth = max(cost.decision_s / last.get(cost.policy, cost.decision_s), following / num_clients)
            next_s, next_gib = cost.decision_s * growth, state_gib * following / num_clients
            last[cost.policy] = cost.decision_s
            if next_s > LONGEST_S:
                stopped[cost.policy] = f"N = {following:,}: a decision would take about {figure(next_s)} s"
            elif next_gib > LARGEST_GIB:
                stopped[cost.policy] = f"N = {following:,}: its state would take about {figure(next_gib)} GiB"
        gc.collect()
        print(f"{ladder.name}, N = {num_clients:,}: {len(here)} policies", flush=True)
    return costs, stopped


def slope(num_clients: Sequence[int] | FloatArray, seconds: Sequence[float] | FloatArray) -> float:
    """Exponent b of the least-squares fit of seconds = a N^b in logarithms; NaN with fewer than two sizes.

    Args:
        num_clients: Sizes N, > 0.
        seconds: Costs, > 0.
    """
    if len(num_clients) < 2:
        return float("nan")
    return float(np.polyfit(np.log(num_clients), np.log(seconds), 1)[0])


def slope_above(costs: Sequence[Cost], of: str = "decision_s", *, least: int = FITTED_FROM) -> float:
    """Slope of a policy's cost over the upper decades; over its last three sizes where it did not get there.

    Args:
        costs: Of one policy, by size.
        of: "decision_s" or "update_s".
        least: Smallest N that counts.
    """
    upper = [cost for cost in costs if cost.num_clients >= least]
    upper = upper if len(upper) >= 3 else list(costs[-3:])
    found = slope([cost.num_clients for cost in upper], [getattr(cost, of) for cost in upper])
    return round(found, 2) + 0.0  # no negative zero


def by_policy(costs: Sequence[Cost]) -> dict[tuple[str, str], list[Cost]]:
    """Costs of each (family, policy)."""
    found: dict[tuple[str, str], list[Cost]] = {}
    for cost in costs:
        found.setdefault((cost.family, cost.policy), []).append(cost)
    return found


def panels(costs: Sequence[Cost]) -> dict[str, dict[str, list[Cost]]]:
    """What is drawn together, by title and policy."""
    first, second = PANELS
    found: dict[str, dict[str, list[Cost]]] = {first: {}, second: {}, "10 servers": {}}
    for (family, policy), own in by_policy(costs).items():
        if family == HIERARCHICAL.name:
            found["10 servers"][policy] = own
        elif policy == SORT:
            found[first][policy] = found[second][policy] = own
        else:
            found[first if policy in PANELS[first] else second][policy] = own
    return {title: drawn for title, drawn in found.items() if drawn}


def picture(costs: Sequence[Cost]) -> Figure:
    """Decisions against N on logarithmic axes, a panel for each group, the slopes in the legends."""
    drawn: list[alt.Chart] = []
    for title, group in panels(costs).items():
        names = {policy: f"{policy}: slope {slope_above(own):.2f}" for policy, own in group.items()}
        looks = in_order(names[policy] for policy in sorted(set(group) - {SORT}))  # whatever the costs
        looks |= {names[SORT]: Look(GREY, ":")} if SORT in group else {}
        ranked = sorted(group, key=lambda policy: (policy == SORT, -_cost_at_the_end(group[policy])))
        rows = [
            {"label": names[policy], "x": cost.num_clients, "ms": 1e3 * cost.decision_s}
            for policy in ranked
            for cost in group[policy]
        ]
        log = alt.Scale(type="log", nice=False)
        marks = alt.Chart(table(*rows), width=380, height=480, title=alt.Title(title, fontSize=13))
        drawn.append(
            marks.mark_line(point={"size": 25, "filled": True}).encode(
                x=alt.X("x:Q", title="clients N", scale=log, axis=_POWERS),
                y=alt.Y("ms:Q", title="a decision, ms (median)" if not drawn else None, scale=log, axis=_POWERS),
                color=colour_of({names[policy]: looks[names[policy]] for policy in ranked}, columns=2),
                strokeDash=dash_of({names[policy]: looks[names[policy]] for policy in ranked}, legend=True),
            )
        )
    whole: Figure = alt.concat(*drawn).resolve_scale(y="shared", color="independent", strokeDash="independent")
    return finished(whole, f"Cost of a decision, and its slope in logarithms from N = {FITTED_FROM:,}")


_POWERS = alt.Axis(values=[10.0**power for power in range(-3, 7)], format=",~g")


def _cost_at_the_end(costs: Sequence[Cost]) -> float:
    return costs[-1].decision_s


def page(costs: Sequence[Cost], stopped: Mapping[str, str]) -> str:
    """The costs as tables in Markdown, decisions and updates."""
    lines = []
    for ladder in (FLAT, HIERARCHICAL):
        own = {policy: found for (family, policy), found in by_policy(costs).items() if family == ladder.name}
        if not own:
            continue
        sizes = sorted({cost.num_clients for found in own.values() for cost in found})
        for what, attribute in (("decision (select and commit)", "decision_s"), ("update", "update_s")):
            lines += ["", f"## {ladder.name}: {what}, ms", ""]
            lines.append(f"| policy | {' | '.join(f'{size:,}' for size in sizes)} | slope |")
            lines.append(f"| --- |{' ---: |' * (len(sizes) + 1)}")
            for policy, found in own.items():
                if policy == SORT and attribute == "update_s":
                    continue
                at = {cost.num_clients: figure(1e3 * getattr(cost, attribute)) for cost in found}
                spent = " | ".join(at.get(size, "-") for size in sizes)
                lines.append(f"| {policy} | {spent} | {slope_above(found, attribute):.2f} |")
    if stopped:
        lines += ["", "Left out:", "", *(f"* {who}: {why}" for who, why in stopped.items())]
    return "\n".join(lines) + "\n"


def rows_of(costs: Sequence[Cost]) -> Iterator[Row]:
    """Our own policies beside the published ones, at every decade; and what a million clients cost."""
    found = by_policy(costs)
    for family, ours, peer, target in (
        (FLAT.name, "floor", "rbcs-f", "floor-cost"),
        (HIERARCHICAL.name, "partial-pooling", "cocs", "pooling-cost"),
    ):
        theirs = {cost.num_clients: cost.decision_s for cost in found.get((family, peer), ())}
        for cost in found.get((family, ours), ()):
            if cost.num_clients in theirs and cost.num_clients in (10**2, 10**3, 10**4, 10**5, 10**6):
                what = f"decision of {ours}, {family}, N = {cost.num_clients:,}"
                yield Row(what, 1e3 * cost.decision_s, "ms", target, 1e3 * theirs[cost.num_clients], peer)


def main() -> None:
    """Measure everything and publish it, with the picture and the tables."""
    session = Session("growth", __doc__, seed="0")
    session.parser.add_argument("--most", type=int, default=1_000_000, help="largest N")
    given = session.parser.parse_args()
    most = min(given.most, 10_000) if given.quick else given.most
    costs: list[Cost] = []
    left: dict[str, str] = {}
    for ladder in (FLAT, HIERARCHICAL):
        names, left_out = contenders(ladder)
        left |= {f"{name}, {ladder.name}": why for name, why in left_out.items()}
        own, stopped = climb(ladder, names, sizes=[size for size in ladder.sizes if size <= most])
        costs += own
        left |= {f"{name}, {ladder.name}": why for name, why in stopped.items()}
    folder: Path = given.out
    tidy = pl.DataFrame(
        {
            "family": [cost.family for cost in costs],
            "policy": [cost.policy for cost in costs],
            "num_clients": [cost.num_clients for cost in costs],
            "decision_ms": [1e3 * cost.decision_s for cost in costs],
            "update_ms": [1e3 * cost.update_s for cost in costs],
            "rounds": [cost.rounds for cost in costs],
            "mean_chosen": [cost.chosen for cost in costs],
        }
    )
    write_table(tidy.with_columns(pl.selectors.float().round_sig_figs(4)), folder / "growth.csv")
    picture(costs).save(folder / "growth.svg")
    session.publish(list(rows_of(costs)), extra={"left_out": left})
    report = folder / "growth.md"
    write_text_atomically(report, f"{report.read_text(encoding='utf-8')}\n![](growth.svg)\n{page(costs, left)}")


if __name__ == "__main__":
    main()
