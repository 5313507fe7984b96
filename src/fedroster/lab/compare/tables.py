"""What a comparison's tables hold: runs by policy, the measures that suit the scenario, and their summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
import polars as pl

from fedroster.catalogue import REFERENCE
from fedroster.errors import ConfigurationError, InvalidInputError
from fedroster.lab.pages.report import Table
from fedroster.lab.statistics import Points, mean_interval
from fedroster.lab.task import Task
from fedroster.lab.trials.measures import LEAST_CHANCES, Participation, crossing, participation
from fedroster.lab.trials.store import machine, read_json
from fedroster.lab.trials.trial import DEFAULT_RATE, Trial
from fedroster.parts import check_number
from fedroster.types import FloatArray, IntArray

_SERVED = tuple(field.name for field in fields(Participation))

Values: TypeAlias = Mapping[str, Mapping[str, FloatArray]]
"""By policy and by measure one number for each seed; NaN where there is none."""

LAST = 10
"""Final accuracy is the mean over this many last rounds: single rounds are noisy."""

EARLY = 5
"""The beginning of a run is the first of this many parts."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A comparison in one scenario: what is to be run, and what ``settings.json`` keeps.

    :func:`~fedroster.lab.compare.line_up.line_up` makes it from what a user asks for.

    Attributes:
        settings: Parameters of the scenario that are overridden, as text.
        policies: Policies as text, with the parameters that the scenario forces on them.
        seeds: Seeds; every policy meets the same worlds, partitions and first models.
        rate: beta at which participation is measured.
        task: What is trained, field by field; None for no training.
        target_accuracy: For the time to accuracy, in (0, 1).
        omniscient: Policies that know what no server can know.
        left_out: Why a policy that was asked for, by its name or by ``all``, is not compared.
        focus: Policy that the page is about.
        optimal: Policy that the regret is measured against; empty for none.
        yardstick: Policy whose updates in time the others are given as a share of; empty for none.
        has_prices: Whether clients have prices, and updates a deadline.
        read_together: With how many scenarios, this one included, the verdicts share their level.
        machine: Machine, versions, and the code that made the runs.
    """

    scenario: str
    settings: Mapping[str, str]
    policies: Sequence[str]
    seeds: Sequence[int]
    rounds: int
    omniscient: Sequence[str]
    focus: str
    optimal: str
    yardstick: str
    command: str = ""
    rate: float = DEFAULT_RATE
    task: Mapping[str, Any] | None = None
    target_accuracy: float = 0.9
    left_out: Mapping[str, str] = field(default_factory=dict)
    has_prices: bool = False
    read_together: int = 1
    machine: Mapping[str, Any] = field(default_factory=machine)

    def check(self) -> None:
        """Check everything that can be checked without a run; ConfigurationError says what is wrong."""
        check_number("target accuracy", self.target_accuracy, above=0.0, below=1.0)
        for name, values in (("policies", self.policies), ("seeds", self.seeds)):
            if not values or len(set(values)) != len(values):
                raise ConfigurationError(f"{name} are {list(values)}; expected at least one, and each once")
        for trial in self.trials()[: len(self.policies)]:
            trial.check()

    def trials(self) -> list[Trial]:
        """The runs, in the order in which they are played: policies of a seed share its division of the data."""
        task = None if self.task is None else Task(**self.task)
        return [
            Trial(self.scenario, policy, seed, self.rounds, self.settings, task, rate=self.rate)
            for seed in self.seeds
            for policy in self.policies
        ]

    @property
    def against(self) -> list[str]:
        """Policies that the others are tested against: the reference, where it takes part, and the one in focus."""
        return list(filter(None, dict.fromkeys((named(self.policies, REFERENCE), self.focus))))

    @property
    def base(self) -> str:
        """What the policy in focus is compared with at the top of the page; empty if there is no other."""
        return next((text for text in (*self.against, *self.policies) if text != self.focus), "")

    @property
    def promises_rates(self) -> bool:
        """Whether beta means something here: with prices only a policy that was given one promises a rate."""
        return not self.has_prices or any("beta=" in text for text in self.policies)

    @property
    def share_of_yardstick(self) -> tuple[Measure, ...]:
        """Updates as a share of the yardstick's, in all rounds and in the first; none where it does not take part."""
        if self.yardstick not in self.policies:
            return ()
        name = f"share_of_{self.yardstick.replace('-', '_')}"
        about = "the same, in the first fifth of the rounds"
        whole = f"updates as a share of {self.yardstick}'s with the same seed"
        return (
            Measure(name, f"of {self.yardstick}, %", 100.0, about=whole),
            Measure(f"early_{name}", "first fifth, %", 100.0, is_long=True, about=about),
        )

    @property
    def main_measures(self) -> list[Measure]:
        """What the page's first table shows.

        Where clients have prices and updates a deadline, it is how many come in time (Qu et al. 2021, Eq. 7): time says
        little, as every server stops waiting at the deadline.  Elsewhere it is the time of a round.
        """
        found = [] if self.task is None else [ACCURACY, SWAY, TIME_TO_TARGET]
        found.append(self.front_measure)
        if self.has_prices:
            found += [*self.share_of_yardstick, *[REGRET] * (self.optimal in self.policies), BUDGET]
        return [*found, LEAST_SERVED, LOWEST_SERVED, *[GOT_BETA] * self.promises_rates, DECISION]

    @property
    def fairness_measures(self) -> list[Measure]:
        """What the table of the page's part on fairness shows."""
        return [LOWEST_RATE, NEVER, *[WITH_RATE] * self.promises_rates, JAIN, JAIN_AVAILABLE]

    @property
    def simulated_measures(self) -> list[Measure]:
        """What ``fedroster simulate`` prints."""
        if self.optimal in self.policies:
            return [UTILITY, REGRET, EXPLORING, BUDGET, ROUND_TIME, COHORT]
        return [ROUND_TIME, COHORT, LOWEST_RATE, HIGHEST_RATE, JAIN, BACKLOG]

    @property
    def tested_measures(self) -> list[Measure]:
        """In what policies are tested against each other."""
        return [measure for measure in self.main_measures if measure.tested]

    @property
    def front_measure(self) -> Measure:
        """What stands against the least served in the picture of both."""
        return UPDATES if self.has_prices else ROUND_TIME

    @property
    def headline_measures(self) -> list[Measure]:
        """What the numbers at the top of the page are about."""
        third = [ACCURACY] if self.task is not None else [GOT_BETA] * self.promises_rates
        return [self.front_measure, LEAST_SERVED, *third]


def named(policies: Sequence[str], name: str) -> str:
    """A policy by its text or, with whatever further parameters, by its beginning; empty if there is none."""
    begun = (text for text in policies if text.partition(":")[0] == name or text.startswith(f"{name},"))
    return name if name in policies else next(begun, "")


@dataclass(frozen=True, slots=True)
class Runs:
    """All runs of one policy, read from the tables; arrays of shape (seeds, rounds) or (seeds, clients)."""

    elapsed_s: FloatArray
    decision_s: FloatArray
    accuracy: FloatArray
    mean_backlog: FloatArray
    cohort_size: FloatArray
    participants: FloatArray
    budget_used: FloatArray
    exploring: FloatArray
    chosen: IntArray
    available: IntArray
    served: tuple[Participation, ...]


_BY_ROUND = tuple(field.name for field in fields(Runs) if field.name not in ("chosen", "available", "served"))

# -------------------------------------------------------------------- measures


@dataclass(frozen=True, slots=True)
class Measure:
    """A number that a run has: its column in the tables, and on the page its heading with the unit, scale and digits.

    Attributes:
        tested: Heading of the differences, with their unit; empty for one that is not tested.
        is_ratio: Whether policies are compared by their ratio; else by their difference.
        less: Whether less is better.
        is_long: Whether a narrow table leaves it out.
        about: What it is, in a few words.
        said: What a sentence says of a policy that is better than another, and of one that is worse; None for nothing.
    """

    name: str
    heading: str
    scale: float = 1.0
    digits: int = 1
    tested: str = ""
    is_ratio: bool = False
    less: bool = False
    is_long: bool = False
    about: str = ""
    said: tuple[str, str] | None = None


ACCURACY = Measure(
    *("final_accuracy", "accuracy, %", 100.0, 1, "accuracy, points"),
    about=f"test accuracy, mean of the last {LAST} tests",
    said=("more accurate", "less accurate"),
)
SWAY = Measure(
    *("sway", "sway, points", 100.0, 1),
    is_long=True,
    about=f"standard deviation of the last {2 * LAST} tests: how far the model swings from cohort to cohort",
)
TIME_TO_TARGET = Measure(
    *("time_to_target_s", "time to target, s", 1.0, 0, "time to target, ratio", True, True),
    about="simulated time until the target accuracy is first reached",
)
ROUND_TIME = Measure(
    *("mean_round_time_s", "round, s", 1.0, 2, "round time, ratio", True, True),
    about="mean simulated time of a round",
    said=("shorter rounds", "longer rounds"),
)
UPDATES = Measure(
    *("updates_per_round", "updates a round", 1.0, 2, "updates, ratio", True),
    about="updates that are in time at any server (Qu et al. 2021, Eq. 7)",
    said=("more updates in time", "fewer updates in time"),
)
REGRET = Measure("regret", "regret", 1.0, 0, about="updates that the scenario's optimal policy has more, in all rounds")
BUDGET = Measure(
    *("budget_used", "budget used, %", 100.0, 1), is_long=True, about="what the cohorts cost, of all servers' budgets"
)
LEAST_SERVED = Measure(
    *("least_served", "least served, %", 100.0, 1, "least served, points"),
    about="share of their available rounds in which clients were chosen, mean of the tenth that has least of it; "
    f"clients that were available, at a price that a server can pay, in fewer than {LEAST_CHANCES} rounds are left out",
    said=("fairer", "less fair"),
)
LOWEST_SERVED = Measure(
    "lowest_served", "lowest, %", 100.0, 1, is_long=True, about="the same share, of the least served client"
)
GOT_BETA = Measure(
    *("share_served", "got beta, %", 100.0, 1, "got beta, points"),
    about="clients that were chosen in at least beta of all rounds, or whenever they were available",
)
LOWEST_RATE = Measure("min_participation_rate", "lowest rate, %", 100.0, 2, about="rounds with the client chosen least")
NEVER = Measure("never_chosen", "never chosen, %", 100.0, 1, about="clients that were available and never chosen")
WITH_RATE = Measure(
    "share_with_rate", "rate >= beta, %", 100.0, 1, about="clients chosen in beta of all rounds or more"
)
JAIN = Measure("jain_index", "Jain", 1.0, 3, about="Jain's index of how often clients were chosen, 1 for all alike")
JAIN_AVAILABLE = Measure(
    "jain_available", "Jain, available rounds", 1.0, 3, about="the same index of the shares of their available rounds"
)
DECISION = Measure(
    *("decision_s", "decision, ms", 1e3),
    about="time to decide and to learn, without polls, median over rounds; measured beside other work on this machine",
)

COHORT = Measure("mean_cohort_size", "cohort", about="clients chosen in a round, mean")
HIGHEST_RATE = Measure("max_participation_rate", "highest rate, %", 100.0, 1, about="of the client chosen most")
BACKLOG = Measure("final_mean_backlog", "owed", 1.0, 2, about="rounds that a client is owed in the end, mean")
UTILITY = Measure("cumulative_utility", "updates", 1.0, 0, about="updates that are in time, in all rounds")
EXPLORING = Measure("explore_share", "exploring, %", 100.0, about="rounds in which the policy explored")


def values_of(own: Runs, runs: Mapping[str, Runs], settings: Settings) -> dict[str, FloatArray]:
    """Measure a policy with every seed, shape (seeds,) each."""
    found = {}
    if settings.task is not None:
        tests = zip(own.elapsed_s, np.nan_to_num(own.accuracy), strict=True)
        times = np.array([crossing(*run, settings.target_accuracy) for run in tests])
        # In free places a test counts for as many choices as there are places, which the first round fills.
        last = LAST * (int(own.cohort_size.max()) if settings.task.get("free_places") else 1)
        found["final_accuracy"] = np.nanmean(own.accuracy[:, -last:], axis=1)  # no test comes before all are filled
        found["sway"] = np.nanstd(own.accuracy[:, -2 * last :], axis=1)
        found["time_to_target_s"] = times  # infinite where it was not reached
        found["reached_target"] = np.isfinite(times).astype(np.float64)
    if settings.has_prices:
        # With other parameters it is a policy of its own, and no yardstick.
        early = -(-settings.rounds // EARLY)
        for measure, end in zip(settings.share_of_yardstick, (settings.rounds, early), strict=False):
            mine, best = (each.participants[:, :end].sum(axis=1) for each in (own, runs[settings.yardstick]))
            found[measure.name] = np.divide(mine, best, out=np.full(best.shape, np.nan), where=best > 0.0)
        if settings.optimal in runs:
            found["regret"] = (runs[settings.optimal].participants - own.participants).sum(axis=1)
        found["budget_used"] = own.budget_used.mean(axis=1)
    return found | {
        "mean_round_time_s": own.elapsed_s[:, -1] / settings.rounds,
        "total_time_s": own.elapsed_s[:, -1],
        "mean_cohort_size": own.cohort_size.mean(axis=1),
        "empty_rounds": (own.cohort_size == 0).sum(axis=1).astype(np.float64),
        "cumulative_utility": own.participants.sum(axis=1),
        "updates_per_round": own.participants.mean(axis=1),
        "deadline_misses": (own.cohort_size - own.participants).sum(axis=1),
        "explore_share": own.exploring.mean(axis=1),
        "final_mean_backlog": own.mean_backlog[:, -1],
        "max_participation_rate": own.chosen.max(axis=1) / settings.rounds,
        # The first rounds compile, and the machine does other things, too.
        "decision_s": np.asarray(np.median(own.decision_s, axis=1)),
        **{name: np.array([getattr(one, name) for one in own.served]) for name in _SERVED},
    }


def points_of(values: Values, measure: Measure) -> Points:
    """Every policy that has the measure with every seed, between it and how the least served fare."""
    return {
        text: (mean_interval(own[measure.name]), mean_interval(100.0 * own[LEAST_SERVED.name]))
        for text, own in values.items()
        if np.isfinite(own[measure.name]).all()
    }


# -------------------------------------------------------------------- tables


def read_settings(folder: Path) -> Settings:
    """Read the settings of a comparison; InvalidInputError if they are missing, damaged or not complete."""
    file = folder / "settings.json"
    found = read_json(file)
    if lacks := [each.name for each in fields(Settings) if each.name not in found]:
        raise InvalidInputError(f"{file} has no {lacks[0]!r}; expected what `fedroster compare` writes")
    try:
        settings = msgspec.convert(found, Settings)
    except msgspec.ValidationError as error:
        raise InvalidInputError(f"{file}: {error}; expected what `fedroster compare` writes") from error
    if settings.focus not in settings.policies:
        raise InvalidInputError(f"{file}: focus is {settings.focus!r}; expected one of {settings.policies}")
    if settings.task is not None and "name" not in settings.task:
        raise InvalidInputError(f"{file}: the task has no name")
    return settings


def runs_of(rounds: pl.DataFrame, clients: pl.DataFrame, settings: Settings) -> dict[str, Runs]:
    """All runs by policy, from tables with a row for each round and each client; ValueError if they lack some."""
    found = {}
    for text in settings.policies:
        course = rounds.filter(pl.col("policy") == text).sort("seed", "round")
        counts = clients.filter(pl.col("policy") == text).sort("seed", "client")
        _check_complete(course, "round", settings.seeds, settings.rounds, text)
        _check_complete(counts, "client", settings.seeds, counts["client"].n_unique(), text)
        shape = (len(settings.seeds), -1)
        chosen, available = (counts[name].to_numpy().reshape(shape) for name in ("chosen", "available"))
        found[text] = Runs(
            **{name: course[name].to_numpy().reshape(shape).astype(np.float64) for name in _BY_ROUND},
            chosen=chosen,
            available=available,
            served=tuple(
                participation(mine, there, num_rounds=settings.rounds, rate=settings.rate)
                for mine, there in zip(chosen, available, strict=True)
            ),
        )
    return found


def _check_complete(table: pl.DataFrame, key: str, seeds: Sequence[int], count: int, policy: str) -> None:
    """Check that every seed has ``count`` rows: a table with rows missing must not be read as a shorter run."""
    found = table.group_by("seed").agg(pl.col(key).n_unique().alias("keys"), pl.len().alias("rows"))
    rows = {row["seed"]: (row["keys"], row["rows"]) for row in found.iter_rows(named=True)}
    if count < 1 or rows != dict.fromkeys(seeds, (count, count)):
        raise ValueError(f"policy {policy!r} lacks some of its {count} {key}s or seeds {list(seeds)}")


def summary_table(summary: pl.DataFrame, measures: Sequence[Measure]) -> Table:
    """Measures of the summary as text, for the terminal and the pages."""
    rows = [(row["policy"], *(measured(row, measure) for measure in measures)) for row in summary.iter_rows(named=True)]
    about = {measure.heading: measure.about for measure in measures}
    return Table(("policy", *about), rows, ("policy",), about)


def measured(row: Mapping[str, Any], measure: Measure) -> str:
    """A policy's mean with half of its interval, as text."""
    mean = row[measure.name]
    if mean is None:
        reached = measure == TIME_TO_TARGET
        return f"reached by {row['reached_target']} of {row['seeds']}" if reached else "-"
    mean, half = measure.scale * mean, measure.scale * (row[f"{measure.name}_high"] - mean)
    digits = measure.digits
    if measure == ROUND_TIME:
        digits = 1 if mean >= 100.0 else 2
    elif measure == DECISION:
        digits = 0 if mean >= 100.0 else 1 if mean >= 10.0 else 2
    return f"{mean:.{digits}f}" + (f" ± {half:.{digits}f}" if row["seeds"] > 1 else "")
