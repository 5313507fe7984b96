"""What a comparison's tables hold: runs by policy, the measures that suit the scenario, and their summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.errors import InvalidInputError
from fedroster.study.measures import Participation, participation
from fedroster.study.statistics import mean_interval
from fedroster.study.store import read_json, read_table

Settings: TypeAlias = Mapping[str, Any]
"""What ``settings.json`` holds."""

Values: TypeAlias = Mapping[str, Mapping[str, FloatArray]]
"""By policy and by measure one number for each seed; NaN where there is none."""

LAST = 10
"""Final accuracy is the mean over this many last rounds: single rounds are noisy."""

ORACLE = "oracle-p"
"""Of all policies that could exist the one with the most updates in time, as far as contexts tell."""

EARLY = 5
"""The beginning of a run is the first of so many parts."""

_SETTINGS = (
    *("command", "scenario", "settings", "policies", "seeds", "rounds", "rate", "task", "target_accuracy"),
    *("omniscient", "left_out", "against", "has_prices", "optimal", "machine"),
)


@dataclass(frozen=True, slots=True)
class Runs:
    """All runs of one policy, read from the tables; arrays of shape (seeds, rounds) or (seeds, clients)."""

    text: str
    elapsed_s: FloatArray
    decision_s: FloatArray
    accuracy: FloatArray
    mean_backlog: FloatArray
    participants: FloatArray
    budget_used: FloatArray
    chosen: IntArray
    available: IntArray
    served: tuple[Participation, ...]

    @property
    def num_rounds(self) -> int:
        """Number of rounds T."""
        return int(self.elapsed_s.shape[1])

    def final_accuracy(self) -> FloatArray:
        """Mean over the last rounds, shape (seeds,)."""
        mean: FloatArray = self.accuracy[:, -LAST:].mean(axis=1)
        return mean

    def mean_round_time_s(self) -> FloatArray:
        """Mean over all rounds, shape (seeds,)."""
        mean: FloatArray = self.elapsed_s[:, -1] / self.num_rounds
        return mean

    def time_to(self, target: float) -> FloatArray:
        """Simulated seconds until the accuracy is first reached; infinite where it never is."""
        reached: BoolArray = self.accuracy >= target
        first = reached.argmax(axis=1)
        times = self.elapsed_s[np.arange(reached.shape[0]), first]
        return np.where(reached.any(axis=1), times, np.inf)

    def decision_time_s(self) -> FloatArray:
        """Median over rounds: the first rounds compile, and the machine does other things, too."""
        median: FloatArray = np.median(self.decision_s, axis=1)
        return median

    def of(self, name: str) -> FloatArray:
        """A measure of participation, for each seed."""
        return np.array([getattr(one, name) for one in self.served])


# -------------------------------------------------------------------- measures


@dataclass(frozen=True, slots=True)
class Measure:
    """A number that a run has, and how it is shown.

    Attributes:
        name: Name of the column in the tables.
        heading: Of its column on the page, with the unit.
        scale: What it is multiplied with there.
        digits: After the point.
        tested: Heading of the differences, with their unit; empty for one that is not tested.
        is_ratio: Whether policies are compared by their ratio; else by their difference.
        less: Whether less is better.
    """

    name: str
    heading: str
    scale: float = 1.0
    digits: int = 1
    tested: str = ""
    is_ratio: bool = False
    less: bool = False


ACCURACY = Measure("final_accuracy", "accuracy, %", 100.0, 1, "accuracy, points")
TIME_TO_TARGET = Measure("time_to_target_s", "time to target, s", 1.0, 0, "time to target, ratio", True, True)
ROUND_TIME = Measure("mean_round_time_s", "round, s", 1.0, 2, "round time, ratio", True, True)
UPDATES = Measure("updates_per_round", "updates a round", 1.0, 2, "updates, ratio", True)
OF_ORACLE = Measure("share_of_oracle_p", f"of {ORACLE}, %", 100.0, 1)
EARLY_OF_ORACLE = Measure("early_share_of_oracle_p", "first fifth, %", 100.0, 1)
REGRET = Measure("regret", "regret", 1.0, 0)
BUDGET = Measure("budget_used", "budget used, %", 100.0, 1)
LEAST_SERVED = Measure("least_served", "least served, %", 100.0, 1, "least served, points")
LOWEST_SERVED = Measure("lowest_served", "lowest, %", 100.0, 1)
GOT_BETA = Measure("share_served", "got beta, %", 100.0, 1, "got beta, points")
LOWEST_RATE = Measure("min_participation_rate", "lowest rate, %", 100.0, 2)
NEVER = Measure("never_chosen", "never chosen, %", 100.0, 1)
WITH_RATE = Measure("share_with_rate", "rate >= beta, %", 100.0, 1)
JAIN = Measure("jain_index", "Jain", 1.0, 3)
JAIN_AVAILABLE = Measure("jain_available", "Jain, available rounds", 1.0, 3)
DECISION = Measure("decision_s", "decision, ms", 1e3)


def promises_rates(settings: Settings) -> bool:
    """Whether beta means something here: with prices only a policy that was given one promises a rate."""
    return not settings["has_prices"] or any("beta=" in text for text in settings["policies"])


def main_measures(settings: Settings) -> list[Measure]:
    """What the page's first table shows.

    Where clients have prices and updates a deadline, it is how many come in time, the utility of paper B, (7): time
    says little, as every server stops waiting at the deadline.  Elsewhere it is the time of a round.
    """
    found = [ACCURACY, TIME_TO_TARGET] if settings["task"] is not None else []
    if settings["has_prices"]:
        found.append(UPDATES)
        found += [OF_ORACLE, EARLY_OF_ORACLE] if ORACLE in settings["policies"] else []
        found += [REGRET] if settings["optimal"] in settings["policies"] else []
        found.append(BUDGET)
    else:
        found.append(ROUND_TIME)
    return [*found, LEAST_SERVED, LOWEST_SERVED, *([GOT_BETA] if promises_rates(settings) else []), DECISION]


def fairness_measures(settings: Settings) -> list[Measure]:
    """What the table of the page's part on fairness shows."""
    return [LOWEST_RATE, NEVER, *([WITH_RATE] if promises_rates(settings) else []), JAIN, JAIN_AVAILABLE]


def tested_measures(settings: Settings) -> list[Measure]:
    """In what policies are tested against each other."""
    return [measure for measure in main_measures(settings) if measure.tested]


def front_measure(settings: Settings) -> Measure:
    """What stands against the least served in the picture of both."""
    return UPDATES if settings["has_prices"] else ROUND_TIME


def values_of(runs: Mapping[str, Runs], settings: Settings) -> Values:
    """Measure every policy with every seed.

    Args:
        runs: By policy.
        settings: Of the comparison.
    """
    # With other parameters it is a policy of its own, and no yardstick.
    best = runs.get(ORACLE)
    optimal = runs.get(settings["optimal"])
    return {text: _values(own, settings, best, optimal) for text, own in runs.items()}


def _values(runs: Runs, settings: Settings, best: Runs | None, optimal: Runs | None) -> dict[str, FloatArray]:
    found = {}
    if settings["task"] is not None:
        times = runs.time_to(settings["target_accuracy"])
        everywhere = bool(np.isfinite(times).all())
        found["final_accuracy"] = runs.final_accuracy()
        found["time_to_target_s"] = times if everywhere else np.full(times.shape[0], np.nan)
        found["reached_target"] = np.isfinite(times).astype(np.float64)
    if settings["has_prices"]:
        found["updates_per_round"] = runs.participants.mean(axis=1)
        if best is not None:
            early = -(-runs.num_rounds // EARLY)
            found["share_of_oracle_p"] = _shares(runs.participants, best.participants)
            found["early_share_of_oracle_p"] = _shares(runs.participants[:, :early], best.participants[:, :early])
        if optimal is not None:
            found["regret"] = (optimal.participants - runs.participants).sum(axis=1)
        found["budget_used"] = runs.budget_used.mean(axis=1)
    return found | {
        "mean_round_time_s": runs.mean_round_time_s(),
        "decision_s": runs.decision_time_s(),
        "min_participation_rate": runs.of("lowest_rate"),
        "least_served": runs.of("least_served"),
        "lowest_served": runs.of("lowest_served"),
        "share_with_rate": runs.of("share_with_rate"),
        "share_served": runs.of("share_served"),
        "never_chosen": runs.of("never"),
        "jain_index": runs.of("jain_index"),
        "jain_available": runs.of("jain_available"),
    }


def _shares(mine: FloatArray, theirs: FloatArray) -> FloatArray:
    """Of the sums over rounds, for each seed; NaN where there is nothing to have a share of."""
    whole = theirs.sum(axis=1)
    shares = np.full(whole.shape[0], np.nan)
    np.divide(mine.sum(axis=1), whole, out=shares, where=whole > 0.0)
    return shares


def summary_of(values: Values, settings: Settings) -> pl.DataFrame:
    """Means with their intervals, a row for each policy.

    Args:
        values: Of every policy and seed.
        settings: Of the comparison.
    """
    rows = []
    for text, measures in values.items():
        row: dict[str, Any] = {"policy": text, "seeds": len(settings["seeds"])}
        for name, each in measures.items():
            if name == "reached_target":
                row[name] = int(each.sum())
                continue
            interval = mean_interval(each)
            row |= {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}
        rows.append(row)
    return pl.DataFrame(rows).with_columns(pl.selectors.float().fill_nan(None))


# -------------------------------------------------------------------- tables


def values_table(values: Values, settings: Settings) -> pl.DataFrame:
    """A row for each policy and seed, a column for each measure; :func:`read_values` reads it."""
    return pl.concat(
        pl.DataFrame({"policy": text, "seed": sorted(settings["seeds"]), **measures})
        for text, measures in values.items()
    )


def read_values(folder: Path) -> tuple[Values, dict[str, Any]]:
    """Read the measures of a comparison, and its settings.

    Args:
        folder: A folder that holds ``measures.csv`` and ``settings.json``.

    Raises:
        InvalidInputError: If one is missing or damaged.
    """
    settings = read_settings(folder)
    table = read_table(folder / "measures.csv")
    found: dict[str, dict[str, FloatArray]] = {}
    try:
        for text in settings["policies"]:
            own = table.filter(pl.col("policy") == text).sort("seed")
            if own["seed"].to_list() != sorted(settings["seeds"]):
                raise ValueError(f"policy {text!r} lacks some of the seeds {settings['seeds']}")
            found[text] = {name: own[name].cast(pl.Float64).fill_null(np.nan).to_numpy() for name in own.columns[2:]}
    except (KeyError, ValueError, pl.exceptions.PolarsError) as error:
        raise InvalidInputError(f"{folder / 'measures.csv'} is not complete ({error})") from error
    return found, settings


def read_settings(folder: Path) -> dict[str, Any]:
    """Read the settings of a comparison.

    Args:
        folder: Its folder.

    Raises:
        InvalidInputError: If they are missing, damaged or not complete.
    """
    settings = read_json(folder / "settings.json")
    for name in _SETTINGS:
        if name not in settings:
            raise InvalidInputError(
                f"{folder / 'settings.json'} has no {name!r}; expected what `fedroster compare` wrote"
            )
    if not settings["policies"]:
        raise InvalidInputError(f"{folder / 'settings.json'}: policies are []; expected at least one")
    if not set(settings["against"]) <= set(settings["policies"]):
        raise InvalidInputError(
            f"{folder / 'settings.json'}: against is {settings['against']}; expected some of {settings['policies']}"
        )
    return settings


def read_runs(folder: Path) -> tuple[dict[str, Runs], dict[str, Any]]:
    """Read all runs of a comparison, and its settings.

    Args:
        folder: A folder that :func:`~fedroster.study.compare.run.compare` wrote.

    Raises:
        InvalidInputError: If it does not hold a complete comparison.
    """
    settings = read_settings(folder)
    rounds = read_table(folder / "rounds.csv")
    counts = read_table(folder / "participation.parquet")
    found = {}
    try:
        for text in settings["policies"]:
            found[text] = _runs(
                text,
                rounds.filter(pl.col("policy") == text).sort("seed", "round"),
                counts.filter(pl.col("policy") == text).sort("seed", "client"),
                settings,
            )
    except (KeyError, ValueError, pl.exceptions.PolarsError) as error:
        raise InvalidInputError(f"{folder} does not hold a complete comparison ({error})") from error
    return found, settings


def _runs(text: str, course: pl.DataFrame, counts: pl.DataFrame, settings: Settings) -> Runs:
    seeds = len(settings["seeds"])
    _check_complete(course, "round", settings["seeds"], settings["rounds"], text)
    _check_complete(counts, "client", settings["seeds"], counts["client"].n_unique(), text)

    def by_round(name: str) -> FloatArray:
        return course[name].to_numpy().reshape(seeds, -1).astype(np.float64)

    def by_client(name: str) -> IntArray:
        return counts[name].to_numpy().reshape(seeds, -1)

    chosen, available = by_client("chosen"), by_client("available")
    return Runs(
        text=text,
        elapsed_s=by_round("elapsed_s"),
        decision_s=by_round("decision_s"),
        accuracy=by_round("accuracy"),
        mean_backlog=by_round("mean_backlog"),
        participants=by_round("participants"),
        budget_used=by_round("budget_used"),
        chosen=chosen,
        available=available,
        served=tuple(
            participation(mine, there, num_rounds=settings["rounds"], rate=settings["rate"])
            for mine, there in zip(chosen, available, strict=True)
        ),
    )


def _check_complete(table: pl.DataFrame, key: str, seeds: Sequence[int], count: int, policy: str) -> None:
    """Check that every seed has ``count`` rows: a table with rows missing must not be read as a shorter run."""
    found = table.group_by("seed").agg(pl.col(key).n_unique().alias("keys"), pl.len().alias("rows"))
    rows = {row["seed"]: (row["keys"], row["rows"]) for row in found.iter_rows(named=True)}
    if count < 1 or rows != dict.fromkeys(seeds, (count, count)):
        raise ValueError(f"policy {policy!r} lacks some of its {count} {key}s or seeds {list(seeds)}")
