"""From the tables of a comparison to its summary, its figures and its page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.errors import InvalidInputError
from fedroster.study.figures import (
    MANY,
    Curve,
    Point,
    curves_figure,
    intervals_figure,
    pareto_figure,
    places,
    save_png,
    small_multiples_figure,
)
from fedroster.study.measures import LEAST_CHANCES, Participation, participation
from fedroster.study.report import Picture, Report, Section, Table, picture, write_markdown, write_report
from fedroster.study.statistics import LEVEL, Interval, band, holm, mean_interval, two_sided_p
from fedroster.study.store import read_json, read_table, write_table

_LAST = 10  # final accuracy is the mean over this many last rounds: single rounds are noisy
_BASE = "random"  # what the others are tested against
_QUANTILES = 201  # points of a line over all clients


@dataclass(frozen=True, slots=True)
class _Policy:
    """All runs of one policy, read from the tables; arrays of shape (seeds, rounds) or (seeds, clients)."""

    text: str
    elapsed_s: FloatArray
    decision_s: FloatArray
    accuracy: FloatArray
    mean_backlog: FloatArray
    chosen: IntArray
    available: IntArray
    served: tuple[Participation, ...]

    @property
    def num_rounds(self) -> int:
        return int(self.elapsed_s.shape[1])

    def final_accuracy(self) -> FloatArray:
        mean: FloatArray = self.accuracy[:, -_LAST:].mean(axis=1)
        return mean

    def mean_round_time_s(self) -> FloatArray:
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


_SETTINGS = (
    *("command", "scenario", "settings", "policies", "seeds", "rounds", "rate", "task", "target_accuracy"),
    *("omniscient", "left_out", "machine"),
)


def _check_complete(table: pl.DataFrame, key: str, seeds: Sequence[int], count: int, policy: str) -> None:
    """Check that every seed has ``count`` rows: a table with rows missing must not be read as a shorter run."""
    found = table.group_by("seed").agg(pl.col(key).n_unique().alias("keys"), pl.len().alias("rows"))
    rows = {row["seed"]: (row["keys"], row["rows"]) for row in found.iter_rows(named=True)}
    if count < 1 or rows != dict.fromkeys(seeds, (count, count)):
        raise ValueError(f"policy {policy!r} lacks some of its {count} {key}s or seeds {list(seeds)}")


def _read(folder: Path) -> tuple[dict[str, _Policy], dict[str, Any]]:
    settings = read_json(folder / "settings.json")
    for name in _SETTINGS:
        if name not in settings:
            raise InvalidInputError(
                f"{folder / 'settings.json'} has no {name!r}; expected what `fedroster compare` wrote"
            )
    rounds = read_table(folder / "rounds.csv")
    counts = read_table(folder / "participation.parquet")
    policies = {}
    try:
        for text in settings["policies"]:
            policies[text] = _policy(
                text,
                rounds.filter(pl.col("policy") == text).sort("seed", "round"),
                counts.filter(pl.col("policy") == text).sort("seed", "client"),
                settings,
            )
    except (KeyError, ValueError, pl.exceptions.PolarsError) as error:
        raise InvalidInputError(f"{folder} does not hold a complete comparison ({error})") from error
    return policies, settings


def _policy(text: str, course: pl.DataFrame, counts: pl.DataFrame, settings: Mapping[str, Any]) -> _Policy:
    seeds = len(settings["seeds"])
    _check_complete(course, "round", settings["seeds"], settings["rounds"], text)
    _check_complete(counts, "client", settings["seeds"], counts["client"].n_unique(), text)

    def by_round(name: str) -> FloatArray:
        return course[name].to_numpy().reshape(seeds, -1).astype(np.float64)

    def by_client(name: str) -> IntArray:
        return counts[name].to_numpy().reshape(seeds, -1)

    chosen, available = by_client("chosen"), by_client("available")
    return _Policy(
        text=text,
        elapsed_s=by_round("elapsed_s"),
        decision_s=by_round("decision_s"),
        accuracy=by_round("accuracy"),
        mean_backlog=by_round("mean_backlog"),
        chosen=chosen,
        available=available,
        served=tuple(
            participation(mine, there, num_rounds=settings["rounds"], rate=settings["rate"])
            for mine, there in zip(chosen, available, strict=True)
        ),
    )


def render(folder: Path) -> pl.DataFrame:
    """Make summary, tests, figures and page again from the tables in a folder.

    Args:
        folder: A folder that :func:`~fedroster.study.compare.compare` wrote.

    Returns:
        The summary, with a row for each policy.

    Raises:
        InvalidInputError: If the folder does not hold a complete comparison.
    """
    policies, settings = _read(folder)
    summary = _summary(policies, settings)
    tests = _tests(policies, settings)
    write_table(summary, folder / "summary.csv")
    if tests:
        write_table(pl.DataFrame([test.row() for test in tests]), folder / "against-random.csv")
    pictures = {}
    for name, (figure, label) in _figures(policies, settings).items():
        save_png(figure, folder / f"{name}.png")
        pictures[name] = picture(figure, label, f"{name}.png")
    page = _page(policies, settings, summary, tests, pictures)
    write_report(page, folder / "report.html")
    write_markdown(page, folder / "index.md")
    return summary


# -------------------------------------------------------------------- numbers


def _measures(runs: _Policy, settings: Mapping[str, Any]) -> dict[str, FloatArray]:
    """What is measured of a policy, for each seed; NaN where there is no number."""
    measures = {}
    if settings["task"] is not None:
        times = runs.time_to(settings["target_accuracy"])
        everywhere = bool(np.isfinite(times).all())
        measures["final_accuracy"] = runs.final_accuracy()
        measures["time_to_target_s"] = times if everywhere else np.full(times.shape[0], np.nan)
    return measures | {
        "mean_round_time_s": runs.mean_round_time_s(),
        "decision_s": runs.decision_time_s(),
        "min_participation_rate": runs.of("lowest_rate"),
        "least_served": runs.of("least_served"),
        "share_with_rate": runs.of("share_with_rate"),
        "share_served": runs.of("share_served"),
        "never_chosen": runs.of("never"),
        "jain_index": runs.of("jain_index"),
        "jain_available": runs.of("jain_available"),
    }


def _summary(policies: Mapping[str, _Policy], settings: Mapping[str, Any]) -> pl.DataFrame:
    rows = []
    for text, runs in policies.items():
        row: dict[str, Any] = {"policy": text, "seeds": len(settings["seeds"])}
        for name, values in _measures(runs, settings).items():
            interval = mean_interval(values)
            row |= {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}
        if settings["task"] is not None:
            row["reached_target"] = int(np.isfinite(runs.time_to(settings["target_accuracy"])).sum())
        rows.append(row)
    return pl.DataFrame(rows).with_columns(pl.selectors.float().fill_nan(None))


@dataclass(frozen=True, slots=True)
class _Test:
    """A policy against random in one measure, paired by seed.

    Attributes:
        policy: Policy as text.
        measure: Name of the measure.
        difference: Of the policy and random: a ratio of times, a difference of shares.
        p_value: Two-sided, Student's paired t test; of logarithms where the difference is a ratio.
        adjusted_p: After Holm's correction over all tests of the page.
        is_better: Whether the difference is in the policy's favour.
    """

    policy: str
    measure: str
    difference: Interval
    p_value: float
    adjusted_p: float
    is_better: bool

    @property
    def verdict(self) -> str:
        if self.adjusted_p >= LEVEL:
            return "not shown"
        return "better" if self.is_better else "worse"

    def row(self) -> dict[str, Any]:
        return {
            "policy": self.policy,
            "measure": self.measure,
            "difference": self.difference.mean,
            "difference_low": self.difference.low,
            "difference_high": self.difference.high,
            "p": self.p_value,
            "p_holm": self.adjusted_p,
            "verdict": self.verdict,
        }


# What is tested: heading, whether it is a ratio, whether less is better.
_TESTED: Mapping[str, tuple[str, bool, bool]] = {
    "final_accuracy": ("accuracy, points", False, False),
    "time_to_target_s": ("time to target, ratio", True, True),
    "mean_round_time_s": ("round time, ratio", True, True),
    "least_served": ("least served, points", False, False),
    "share_served": ("got beta, points", False, False),
}


def _tests(policies: Mapping[str, _Policy], settings: Mapping[str, Any]) -> list[_Test]:
    """Every policy against random in every measure, corrected together; none without random or with one seed."""
    if _BASE not in policies or len(settings["seeds"]) < 2:
        return []
    base = _measures(policies[_BASE], settings)
    found = []
    for text, runs in policies.items():
        own = _measures(runs, settings)
        for measure, (_, is_ratio, less) in _TESTED.items():
            if text == _BASE or measure not in own:
                continue
            mine, theirs = own[measure], base[measure]
            if not np.isfinite(mine).all() or not np.isfinite(theirs).all():
                continue
            if is_ratio:
                if not ((mine > 0.0) & (theirs > 0.0)).all():
                    continue
                # Ratios are averaged as logarithms: twice and half as fast cancel.
                gap = np.log(mine / theirs)
                middle = mean_interval(gap)
                shown = Interval(*(math.exp(value) for value in (middle.mean, middle.low, middle.high)))
            else:
                gap = mine - theirs
                shown = middle = mean_interval(gap)
            found.append(_Test(text, measure, shown, two_sided_p(gap), 1.0, (middle.mean < 0.0) == less))
    adjusted = holm([test.p_value for test in found])
    return [
        _Test(test.policy, test.measure, test.difference, test.p_value, p, test.is_better)
        for test, p in zip(found, adjusted, strict=True)
    ]


def pareto_front(x: Sequence[float], y: Sequence[float]) -> list[int]:
    """Which points no other beats: less of x and at least as much of y, or more of y for no more of x.

    Args:
        x: A cost of each point.
        y: A good of each point.

    Returns:
        Their positions, in order.
    """
    return [
        i
        for i in range(len(x))
        if not any(x[j] <= x[i] and y[j] >= y[i] and (x[j] < x[i] or y[j] > y[i]) for j in range(len(x)))
    ]


# -------------------------------------------------------------------- figures

Drawn = tuple[Figure, str]


def _figures(policies: Mapping[str, _Policy], settings: Mapping[str, Any]) -> dict[str, Drawn]:
    figures = {"pareto-round": _pareto(policies, settings, "mean_round_time_s")}
    if settings["task"] is not None:
        if len(_reached(policies, settings)) > 1:
            figures["pareto-target"] = _pareto(policies, settings, "time_to_target_s")
        figures["accuracy-per-round"] = _per_round(policies)
        figures["accuracy-per-second"] = _per_second(policies)
    figures["queues"] = _queues(policies, settings)
    figures["participation"] = _participation(policies, settings)
    figures["decisions"] = _decisions(policies)
    return figures


def _reached(policies: Mapping[str, _Policy], settings: Mapping[str, Any]) -> list[str]:
    """Policies that reached the target with every seed."""
    return [text for text, runs in policies.items() if np.isfinite(runs.time_to(settings["target_accuracy"])).all()]


def _points(policies: Mapping[str, _Policy], settings: Mapping[str, Any], cost: str) -> dict[str, Point]:
    """Every policy that has the cost, between it and how the least served fare, in percent."""
    found = {}
    for text, runs in policies.items():
        measures = _measures(runs, settings)
        if np.isfinite(measures[cost]).all():
            found[text] = (mean_interval(measures[cost]), mean_interval(100.0 * measures["least_served"]))
    rivals = [text for text in found if text not in settings["omniscient"]]
    best = pareto_front([found[text][0].mean for text in rivals], [found[text][1].mean for text in rivals])
    front = {rivals[i] for i in best}

    def kind(text: str) -> Literal["front", "reference", "aided", "other"]:
        if text == _BASE:
            return "reference"
        if text in settings["omniscient"]:
            return "aided"
        return "front" if text in front else "other"

    return {text: Point(x, y, kind(text), text in front) for text, (x, y) in found.items()}


_COSTS = {"mean_round_time_s": "mean time of a round, s", "time_to_target_s": "simulated time to target, s"}


def _pareto(policies: Mapping[str, _Policy], settings: Mapping[str, Any], cost: str) -> Drawn:
    label = (
        "Time of a round against the least served"
        if cost == "mean_round_time_s"
        else f"Time to {settings['target_accuracy']:.0%} accuracy against the least served"
    )
    figure = pareto_figure(
        _points(policies, settings, cost),
        x_label=_COSTS[cost],
        y_label="least served tenth: chosen in so much of the rounds\nin which they were available, %",
        title=label,
    )
    return figure, label


def _curve(x: FloatArray, values: FloatArray) -> Curve:
    return Curve(x, *band(values))


def _lines(curves: Mapping[str, Curve], *, level: tuple[float, str] | None = None, **axes: Any) -> Figure:
    """One picture, or a panel each where curves are many."""
    if len(curves) > MANY:
        return small_multiples_figure(curves, reference=_BASE, level=level, **axes)
    return curves_figure(curves, reference=level, places=places(list(curves)), **axes)


def _per_round(policies: Mapping[str, _Policy]) -> Drawn:
    curves = {
        text: _curve(np.arange(1, runs.num_rounds + 1, dtype=np.float64), runs.accuracy)
        for text, runs in policies.items()
    }
    label = "Accuracy per round"
    return _lines(curves, x_label="round", y_label="test accuracy, %", title=label, percent_y=True), label


def _per_second(policies: Mapping[str, _Policy]) -> Drawn:
    curves = {}
    for text, runs in policies.items():
        # Every seed is a step function of its own times; there is a mean from when all have begun until the first ends.
        begun = float(np.where(runs.elapsed_s > 0.0, runs.elapsed_s, np.inf).min(axis=1).max())
        ended = float(runs.elapsed_s[:, -1].min())
        grid = np.geomspace(begun, ended, 400) if begun <= ended else np.empty(0)
        values = np.stack(
            [
                np.where(grid < times[0], np.nan, accuracy[np.searchsorted(times, grid, side="right") - 1])
                for times, accuracy in zip(runs.elapsed_s, runs.accuracy, strict=True)
            ]
        )
        known = ~np.isnan(values).any(axis=0)
        curves[text] = _curve(grid[known], values[:, known])
    label = "Accuracy per simulated second"
    axes: dict[str, Any] = {
        "x_label": "simulated time, s",
        "y_label": "test accuracy, %",
        "log_x": True,
        "percent_y": True,
    }
    return _lines(curves, title=label, **axes), label


def _queues(policies: Mapping[str, _Policy], settings: Mapping[str, Any]) -> Drawn:
    curves = {
        text: _curve(np.arange(1, runs.num_rounds + 1, dtype=np.float64), runs.mean_backlog)
        for text, runs in policies.items()
    }
    label = f"Rounds owed: mean virtual queue at beta = {settings['rate']:g}"
    return _lines(curves, x_label="round", y_label="mean queue length, rounds", title=label), label


def _participation(policies: Mapping[str, _Policy], settings: Mapping[str, Any]) -> Drawn:
    share = np.linspace(0.0, 1.0, _QUANTILES)
    curves = {}
    for text, runs in policies.items():
        rates = 100.0 * np.quantile(runs.chosen / runs.num_rounds, share, axis=1).mean(axis=1)
        curves[text] = Curve(100.0 * share, rates, rates, rates)
    label = "Participation per client"
    figure = _lines(
        curves,
        level=(100.0 * settings["rate"], f"beta = {settings['rate']:g}"),
        x_label="clients, sorted, %",
        y_label="rounds taken part in, %",
        title=label,
        log_y=len(curves) > MANY,
    )
    return figure, label


def _decisions(policies: Mapping[str, _Policy]) -> Drawn:
    costs = {text: 1e3 * runs.decision_time_s() for text, runs in policies.items()}
    ranked = sorted(costs, key=lambda text: float(costs[text].mean()))
    label = "Cost of a decision"
    positive = all((cost > 0.0).all() for cost in costs.values())
    panel = {"milliseconds for deciding and learning": {text: mean_interval(costs[text]) for text in ranked}}
    return intervals_figure(panel, title=label, log_x=positive), label


# -------------------------------------------------------------------- text


def _plus_minus(row: Mapping[str, Any], name: str, digits: int, scale: float = 1.0) -> str:
    interval = Interval(*(scale * row[f"{name}{end}"] for end in ("", "_low", "_high")))
    half = interval.high - interval.mean
    return f"{interval.mean:.{digits}f}" + (f" ± {half:.{digits}f}" if row["seeds"] > 1 else "")


def _milliseconds(row: Mapping[str, Any]) -> str:
    mean, half = 1e3 * row["decision_s"], 1e3 * (row["decision_s_high"] - row["decision_s"])
    digits = 0 if mean >= 100.0 else 1 if mean >= 10.0 else 2
    return f"{mean:.{digits}f}" + (f" ± {half:.{digits}f}" if row["seeds"] > 1 else "")


def summary_table(summary: pl.DataFrame) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings and rows of the summary as text, for the terminal and the page.

    Args:
        summary: What :func:`render` returned.
    """
    has_training = "final_accuracy" in summary.columns
    columns = ("policy", *(("accuracy, %", "time to target, s") if has_training else ()), "round, s", "least served, %")
    rows = []
    for row in summary.iter_rows(named=True):
        cells = [row["policy"]]
        if has_training:
            cells.append(_plus_minus(row, "final_accuracy", 1, 100.0))
            cells.append(
                f"reached by {row['reached_target']} of {row['seeds']}"
                if row["time_to_target_s"] is None
                else _plus_minus(row, "time_to_target_s", 0)
            )
        digits = 1 if row["mean_round_time_s"] >= 100.0 else 2
        cells += [_plus_minus(row, "mean_round_time_s", digits), _plus_minus(row, "least_served", 1, 100.0)]
        cells += [_plus_minus(row, "share_served", 1, 100.0), _milliseconds(row)]
        rows.append(tuple(cells))
    return (*columns, "got beta, %", "decision, ms"), rows


def _fairness_table(summary: pl.DataFrame) -> Table:
    columns = ("policy", "lowest rate, %", "never chosen, %", "rate >= beta, %", "Jain", "Jain, available rounds")
    rows = [
        (
            row["policy"],
            _plus_minus(row, "min_participation_rate", 2, 100.0),
            _plus_minus(row, "never_chosen", 1, 100.0),
            _plus_minus(row, "share_with_rate", 1, 100.0),
            _plus_minus(row, "jain_index", 3),
            _plus_minus(row, "jain_available", 3),
        )
        for row in summary.iter_rows(named=True)
    ]
    return Table(columns, rows, text=("policy",))


def _tests_table(tests: Sequence[_Test]) -> Table:
    """A row for each policy, a column for each measure."""
    measures = [measure for measure in _TESTED if any(test.measure == measure for test in tests)]
    cells = {(test.policy, test.measure): test for test in tests}
    rows = []
    for policy in dict.fromkeys(test.policy for test in tests):
        row = [policy]
        for measure in measures:
            test = cells.get((policy, measure))
            if test is None:
                row.append("-")
                continue
            scale, form = (1.0, ".2f") if _TESTED[measure][1] else (100.0, "+.1f")
            ends = (test.difference.mean, test.difference.low, test.difference.high)
            mean, low, high = (format(scale * value, form) for value in ends)
            word = "" if test.verdict == "not shown" else f" {test.verdict}"
            row.append(f"{mean}{word}\n({low} to {high})")
        rows.append(tuple(row))
    columns = ("policy", *(_TESTED[measure][0] for measure in measures))
    return Table(columns, rows, text=("policy",))


def _join(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _findings(policies: Mapping[str, _Policy], settings: Mapping[str, Any], tests: Sequence[_Test]) -> list[str]:
    """What a reader in a hurry should know."""
    sentences = []
    points = _points(policies, settings, "mean_round_time_s")
    front = sorted((text for text in points if points[text].on_front), key=lambda text: points[text].x.mean)
    if len(policies) > 1:
        sentences.append(
            f"By round time and by how the least served fare, no other policy beats {_join(front)} "
            "(in order of round time; means, and without those who know the truth)."
        )
    for measure, what in (
        ("mean_round_time_s", "shorter rounds than random"),
        ("time_to_target_s", "a shorter time to the target than random"),
        ("least_served", "a better deal than random for the least served"),
    ):
        better = [test.policy for test in tests if test.measure == measure and test.verdict == "better"]
        if better:
            sentences.append(f"Shown to have {what}: {_join(better)}.")
    if settings["task"] is not None and len(policies) <= MANY:
        for test in tests:
            if test.measure == "time_to_target_s":
                shown = test.difference
                sentences.append(
                    f"{test.policy} reaches {settings['target_accuracy']:.0%} in {shown.mean:.2f} times random's "
                    f"simulated time (95 % interval {shown.low:.2f} to {shown.high:.2f}, paired by seed)."
                )
    return sentences


def _notes(settings: Mapping[str, Any], summary: pl.DataFrame) -> list[str]:
    notes = []
    if settings["task"] is not None:
        last = min(_LAST, settings["rounds"])
        notes.append(
            f"Accuracy is the mean over the last {last} rounds; time to target is simulated time until "
            f"{settings['target_accuracy']:.0%} is first reached."
        )
    notes.append(
        f"Least served: of the clients that were available in at least {LEAST_CHANCES} rounds, the tenth that was "
        "chosen in the smallest share of them; this share. Got beta: clients that were chosen in at least "
        f"beta = {settings['rate']:g} of all rounds or, if they were there for fewer, in all of these. Decision: "
        "select, commit and update of a round, median over rounds, measured on this machine while the runs were made, "
        "so other work on it is in there; polls are not."
    )
    notes.append(
        f"Behind ± and in brackets: 95 % intervals, Student's t over {len(settings['seeds'])} seeds. Every policy "
        "meets the same devices, partitions and first models."
    )
    aided = [text for text in summary["policy"] if text in settings["omniscient"]]
    if aided:
        notes.append(f"{_join(aided)}: in a simulation only, as they know the network's true times.")
    return notes


_TEST_NOTE = (
    "Differences from random with the same seed: ratios of times, percentage points of shares; 95 % intervals. "
    "Two-sided paired t tests over seeds, with Holm's correction over all tests of this table: better and worse are "
    f"wrong with probability below {LEVEL:.0%} for all together. Where neither is said, these seeds do not tell. "
    "Intervals are not corrected. All numbers and p-values: against-random.csv."
)


def _page(
    policies: Mapping[str, _Policy],
    settings: Mapping[str, Any],
    summary: pl.DataFrame,
    tests: Sequence[_Test],
    pictures: Mapping[str, Picture],
) -> Report:
    clients = next(iter(policies.values())).chosen.shape[1]
    what = (
        "Rounds without training"
        if settings["task"] is None
        else f"Federated training, task {settings['task']['name']}"
    )
    lead = [
        f"{what}: {len(policies)} {'policy' if len(policies) == 1 else 'policies'}, {clients:,} clients, "
        f"{settings['rounds']} rounds, {len(settings['seeds'])} seeds, scenario {settings['scenario']}.",
        *_findings(policies, settings, tests),
    ]
    columns, rows = summary_table(summary)
    trade = []
    if settings["task"] is not None:
        reached = _reached(policies, settings)
        missing = [text for text in policies if text not in reached]
        if missing:
            trade.append(f"Not every seed reached the target, so without a point in that picture: {_join(missing)}.")
    sections = [
        Section(
            "Time against fairness",
            text=trade,
            figures=[pictures[name] for name in ("pareto-round", "pareto-target") if name in pictures],
            notes=["Down and right is worse. Bars: 95 % intervals over seeds. Line: the Pareto front of the means."],
        ),
        Section("Summary", table=Table(columns, rows, text=("policy",)), notes=_notes(settings, summary)),
    ]
    if tests:
        sections.append(Section("Against random", table=_tests_table(tests), notes=[_TEST_NOTE]))
    grey = ["Grey: random."] if len(policies) > MANY and _BASE in policies else []
    if settings["task"] is not None:
        names = ("accuracy-per-round", "accuracy-per-second")
        sections.append(Section("Accuracy", figures=[pictures[name] for name in names], notes=grey))
    owed = (
        f"The virtual queues (6) and the rates are measured at beta = {settings['rate']:g} for every policy, whether "
        "it keeps queues or not."
    )
    fairness = [pictures["queues"], pictures["participation"]]
    sections.append(Section("Fairness", text=[owed], figures=fairness, table=_fairness_table(summary), notes=grey))
    sections.append(Section("Cost of a decision", figures=[pictures["decisions"]]))
    if settings["left_out"]:
        table = Table(("policy", "why"), list(settings["left_out"].items()), text=("policy", "why"))
        sections.append(Section("Policies that are not compared", table=table))
    task = settings["task"] or {}
    details = {
        "scenario": settings["scenario"],
        "overridden": ", ".join(f"{name}={value}" for name, value in settings["settings"].items()) or "nothing",
        "policies": ", ".join(settings["policies"]),
        "rounds": settings["rounds"],
        "seeds": ", ".join(map(str, settings["seeds"])),
        "beta": settings["rate"],
        **{f"task: {name}": value for name, value in task.items() if value is not None},
        **settings["machine"],
    }
    version = str(settings["machine"].get("fedroster", ""))
    return Report("Who trains? Policies compared", lead, sections, settings["command"], details, version)
