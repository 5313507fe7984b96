"""What a comparison found, as an object: frames, a summary, tests, figures and the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import polars as pl

from fedroster.catalogue import REFERENCE, make_policy
from fedroster.errors import InvalidInputError, UnknownNameError
from fedroster.lab.compare.contrasts import COLUMNS, TEST_NOTE, Contrast, contrasts_of
from fedroster.lab.compare.tables import (
    DECISION,
    TIME_TO_TARGET,
    Measure,
    Runs,
    Settings,
    Values,
    points_of,
    read_settings,
    runs_of,
    summary_table,
    values_of,
)
from fedroster.lab.pages.looks import MANY
from fedroster.lab.pages.report import Number, Picture, Report, Section, Table, latex_table, picture, write_page
from fedroster.lab.statistics import FEWEST, mean_interval, pareto_front, signed
from fedroster.lab.trials.store import read_table, write_json, write_table
from fedroster.parts import counted, missing_signals

if TYPE_CHECKING:
    from fedroster.lab.pages.charts import Figure


_MINUS = "\u2212"


@dataclass(frozen=True)
class Comparison:
    """What policies did in one scenario, each with every seed.

    Attributes:
        settings: What was compared, and how.
        rounds: A row for each policy, seed and round.
        clients: A row for each policy, seed and client: in how many rounds it was chosen and available.
    """

    settings: Settings
    rounds: pl.DataFrame
    clients: pl.DataFrame

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read what :meth:`write` wrote; InvalidInputError if the folder does not hold a complete comparison."""
        settings = read_settings(folder)
        found = cls(settings, read_table(folder / "rounds.csv"), read_table(folder / "participation.parquet"))
        try:
            found.runs  # noqa: B018
        except (KeyError, ValueError, pl.exceptions.PolarsError) as error:
            raise InvalidInputError(f"{folder} does not hold a complete comparison ({error})") from error
        return found

    @cached_property
    def runs(self) -> dict[str, Runs]:
        """The course of every run, by policy."""
        return runs_of(self.rounds, self.clients, self.settings)

    @cached_property
    def values(self) -> Values:
        """By policy and measure one number for each seed."""
        return {text: values_of(own, self.runs, self.settings) for text, own in self.runs.items()}

    @cached_property
    def tests(self) -> dict[str, list[Contrast]]:
        """By the policy that they are tested against, all others in every tested measure, judged as one family."""
        return contrasts_of(self.values, self.settings)

    @property
    def frame(self) -> pl.DataFrame:
        """A row for each policy and seed, a column for each measure."""
        seeds = sorted(self.settings.seeds)
        return pl.concat(pl.DataFrame({"policy": text, "seed": seeds, **own}) for text, own in self.values.items())

    def summary(self) -> pl.DataFrame:
        """A row for each policy: the mean of each measure, and the ends of its 95 % interval."""
        rows = []
        for text, measures in self.values.items():
            row: dict[str, Any] = {"policy": text, "seeds": len(self.settings.seeds)}
            for name, each in measures.items():
                if name == "reached_target":
                    row[name] = int(each.sum())
                    continue
                interval = mean_interval(each if np.isfinite(each).all() else np.full(1, np.nan))
                row |= {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}
            rows.append(row)
        return pl.DataFrame(rows).with_columns(pl.selectors.float().fill_nan(None))

    def to_latex(self) -> str:
        """The summary as a table for LaTeX with the package booktabs: means, and half of their 95 % intervals."""
        return latex_table(summary_table(self.summary(), self.settings.main_measures))

    def contrasts(self) -> pl.DataFrame:
        """A row for each policy, each that it is tested against, and each tested measure: difference and verdict."""
        tests = (test for base in self.settings.against for test in self.tests[base])
        return pl.DataFrame([test.row() for test in tests], schema=COLUMNS)

    def headline(self) -> tuple[str, list[Number]]:
        """What the policy in focus does against the reference, in a sentence and three numbers; nothing without rivals.

        If another that is shown to be better than the reference has a better mean, the sentence says at which price.
        """
        focus = self.settings.focus
        base = self.settings.base
        front = self.settings.front_measure
        if not base:
            return "", []
        said, numbers = self._against(focus, base)
        tests = [one for one in self.tests[base] if one.measure == front and one.policy not in self.settings.omniscient]
        found = {one.policy: one.difference.mean for one in tests if one.policy == focus or "better" in one.verdict}
        best = (min if front.less else max)(found, key=found.__getitem__, default=focus)
        if best != focus:
            said += f"; {'fastest' if front.less else 'most updates'} is {self._against(best, base)[0]}"
        if len(numbers) < 3:
            cost = 1e3 * self.values[focus][DECISION.name].mean()
            numbers.append(Number(f"{cost:.2g} ms", "for a decision", "median over rounds, on this machine"))
        return said, numbers

    def _against(self, policy: str, base: str) -> tuple[str, list[Number]]:
        """A policy against another, in words and numbers."""
        tests = {test.measure: test for test in self.tests[base] if test.policy == policy}
        words, numbers = list[str](), list[Number]()
        for measure in self.settings.headline_measures:
            test, name = tests.get(measure), measure.tested.partition(", ")[0]
            mine, theirs = (float(self.values[text][measure.name].mean()) for text in (policy, base))
            unit = measure.heading.partition(", ")[2] or "a round"
            note = " against ".join(f"{measure.scale * mean:.{measure.digits}f} {unit}" for mean in (mine, theirs))
            if test is None:
                size = mine / theirs if measure.is_ratio and theirs else mine - theirs
                verdict = why = "not tested"
            else:
                size, verdict = test.difference.mean, test.verdict
                why = ": ".join(filter(None, (verdict, test.needed)))
            percent, form, of = (size - 1.0, ".0f", "%") if measure.is_ratio else (size, ".1f", "points")
            value = f"{signed(100.0 * percent, form)} {of}".replace("-", _MINUS)
            is_better = verdict.startswith("better")
            is_worse = verdict.startswith("worse")
            tone = "holds" if is_better else "fails" if is_worse else ""
            numbers.append(Number(value, name, f"{note} of {base}; {why}", tone))
            if measure.said and tone:
                many = f"{value} " * measure.is_ratio
                small = " (small)" * verdict.endswith("small")
                words.append(f"{many.lstrip(f'+{_MINUS}')}{measure.said[is_worse]}{small}")
            elif measure.said and (test is not None or measure.is_ratio):
                words.append(f"{name} {'undecided' if test is None else verdict}")
        words[0] += f" than {base}" if " % " in words[0] else f" against {base}"
        return f"{policy}: {', '.join(words)}", numbers

    def front(self) -> list[str]:
        """The policies of the best trade-offs by the means, the fastest or that with the most updates first."""
        measure = self.settings.front_measure
        points = points_of(self.values, measure)
        return pareto_front(points, more_x=not measure.less, aided=self.settings.omniscient)

    def plot(self, name: str = "", *, width: float | None = None) -> Figure:
        """Draw a figure, which ``.save("figure.pdf")`` writes.

        Args:
            name: Such as "participation"; the time of a round, or the updates in time, against the least served if
                empty.
            width: For a paper, in points, such as 250 for a column; None for a page.

        Raises:
            UnknownNameError: If there is no figure of that name; names those that there are.
        """
        figures = self._figures()
        if name and name not in figures:
            raise UnknownNameError.of("figure", name, figures)
        found = figures[name or next(iter(figures))]
        if width is None:
            return found
        from fedroster.lab.pages.charts import narrow  # loads Altair

        return narrow(found, width)

    def _figures(self) -> dict[str, Figure]:
        from fedroster.lab.compare.figures import figures_of  # loads Altair

        return figures_of(self.runs, self.values, self.settings)

    def write(self, folder: Path) -> None:
        """Write what :meth:`read` reads."""
        write_table(self.rounds, folder / "rounds.csv")
        write_table(self.clients, folder / "participation.parquet")
        write_json(folder / "settings.json", asdict(self.settings))

    def report(self, folder: str | Path) -> Path:
        """Write the page, its pictures and its tables into a folder; return the page, which needs no other file."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        figures = self._figures().items()
        pictures = {
            name: picture(one, str(one.description), folder, name, _TABS.get(name, "")) for name, one in figures
        }
        write_table(self.frame, folder / "measures.csv")
        write_table(self.summary(), folder / "summary.csv")
        write_table(self.contrasts(), folder / "contrasts.csv")
        write_page(_page(self, pictures), folder)
        return folder / "report.html"

    @property
    def blind(self) -> str:
        """Which policies choose by losses or updates where nothing is trained, in a sentence; empty for none."""
        if self.settings.task is not None:
            return ""
        signals = {"losses": False, "contexts": True, "deadline": True}
        blind = [text for text in self.settings.policies if missing_signals(make_policy(text), **signals)]
        said = "These choose by losses or updates, which there are none of without training, so blindly:"
        return f"{said} {joined(blind)}." if blind else ""

    def __str__(self) -> str:
        """One line."""
        settings = self.settings
        trained = "" if settings.task is None else f", task {settings.task['name']}"
        return (
            f"{counted(len(settings.policies), 'policy')} in {settings.scenario}, {counted(settings.rounds, 'round')}, "
            f"{counted(len(settings.seeds), 'seed')}{trained}"
        )

    def __repr__(self) -> str:
        """The summary as text."""
        with pl.Config(tbl_rows=-1, tbl_cols=6, tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True):
            summary = self.summary()
            names = [one.name for one in self.settings.main_measures if one.name in summary.columns]
            return f"{self}\n{summary.select('policy', *names)}"


# -------------------------------------------------------------------- the page

_TABS = {
    "pareto-round": "Time of a round",
    "pareto-updates": "Updates",
    "pareto-target": "Time to target",
    "accuracy-per-round": "By round",
    "accuracy-per-second": "By simulated time",
}
"""What tells figures of one section from each other."""


def _page(found: Comparison, pictures: Mapping[str, Picture]) -> Report:
    settings, policies = found.settings, found.settings.policies
    first = {
        "scenario": settings.scenario,
        "overridden": ", ".join(f"{name}={value}" for name, value in settings.settings.items()) or "nothing",
        "policies": ", ".join(policies),
        "rounds": settings.rounds,
        "seeds": ", ".join(map(str, settings.seeds)),
        "beta": settings.rate,
    }
    headline, numbers = found.headline()
    told = {settings.focus, settings.yardstick, *settings.against, *found.front()}
    return Report(
        f"Policies compared on {settings.scenario}",
        list(_lead(found)),
        list(_sections(found, pictures)),
        settings.command,
        details_of(first, settings),
        headline,
        numbers,
        [text for text in policies if text not in told] if len(policies) > MANY else [],
    )


def details_of(first: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """What the numbers of a page depend on."""
    trained = {f"task: {name}": value for name, value in (settings.task or {}).items() if value is not None}
    return {**first, **trained, **settings.machine}


def _lead(found: Comparison) -> Iterable[str]:
    """What was played, and the best trade-offs."""
    settings, seeds = found.settings, counted(len(found.settings.seeds), "seed")
    what = "Rounds without training"
    if settings.task is not None:
        what = f"Federated training, task {settings.task['name']}"
        what += ", with an update memory" * bool(settings.task.get("memory"))
        what += ", in free places (a round is one choice)" * bool(settings.task.get("free_places"))
    policies = counted(len(settings.policies), "policy")
    clients = counted(found.clients["client"].n_unique(), "client")
    rounds = counted(settings.rounds, "round")
    yield f"{what}: {policies}, {clients}, {rounds}, {seeds}, scenario {settings.scenario}."
    if len(settings.seeds) < FEWEST:
        yield f"{seeds} can decide nothing, whatever comes out: take {FEWEST} or more."
    if found.blind:
        yield found.blind
    if len(settings.policies) > 1:
        less = settings.front_measure.less
        what, order = ("speed", "fastest") if less else ("updates in time", "most updates")
        yield (
            f"Best trade-offs between {what} and fairness, {order} first, by the means: {joined(found.front())}. "
            "(Policies that know the truth are not counted.)"
        )


def _sections(found: Comparison, pictures: Mapping[str, Picture]) -> Iterable[Section]:
    settings = found.settings
    values = found.values
    summary = found.summary()

    def shown(*begins: str) -> list[Picture]:
        return [picture for name, picture in pictures.items() if name.startswith(begins)]

    there = values if settings.task is None else points_of(values, TIME_TO_TARGET)
    missing = [text for text in values if text not in there]
    grey = [f"Grey: {REFERENCE}."] if len(values) > MANY and REFERENCE in values else []
    lacking = f"No point for the time to the target, as some seeds did not reach it: {joined(missing)}."
    what, side = ("Updates", "right") if settings.has_prices else ("Time", "left")
    yield Section(
        f"{what} against fairness",
        text=[lacking] * bool(missing),
        figures=shown("pareto"),
        notes=[f"Up and {side} is better. Bars: 95 % intervals over seeds. Line: the Pareto front of the means."],
    )
    yield Section("Summary", table=summary_table(summary, settings.main_measures))
    if settings.task is not None:
        yield Section("Accuracy", figures=shown("accuracy"), notes=grey, folded=True)
    for base in settings.against:
        if tests := found.tests[base]:
            note = (
                f"Differences from {base} with the same seed. {TEST_NOTE} All numbers: `contrasts.csv`, which the "
                "command below writes."
            )
            yield Section(
                f"Against {base}", table=_tests_table(tests, settings.tested_measures), notes=[note], folded=True
            )
    if settings.has_prices:
        yield Section("Learning", figures=shown("updates"), notes=grey, folded=True)
    owed = (
        "The virtual queues (Huang et al. 2021, Eq. 6) and the rates are measured at beta = "
        f"{settings.rate:g} for every policy, whether it keeps queues or not."
    )
    yield Section(
        "Fairness",
        text=[owed] * settings.promises_rates,
        figures=shown("queues", "participation"),
        table=summary_table(summary, settings.fairness_measures),
        notes=grey,
        folded=True,
    )
    if settings.left_out:
        columns = ("policy", "why")
        table = Table(columns, list(settings.left_out.items()), columns)
        yield Section("Policies that are not compared", table=table, folded=True)
    yield Section("How to read the tables", _notes(settings), folded=True)


def _tests_table(tests: Sequence[Contrast], measures: Sequence[Measure]) -> Table:
    """A row for each policy, a column for each measure."""
    cells: dict[str, dict[str, str]] = {}
    for test in tests:
        cells.setdefault(test.policy, {})[test.measure.tested] = test.shown()
    columns = [one.tested for one in measures if any(one.tested in own for own in cells.values())]
    rows = [(policy, *(own.get(name, "-") for name in columns)) for policy, own in cells.items()]
    return Table(("policy", *columns), rows, text=("policy",))


def _notes(settings: Settings) -> list[str]:
    """What the columns of the summary mean."""
    columns = (f"{one.heading.partition(', ')[0].capitalize()}: {one.about}." for one in settings.main_measures)
    notes = [
        " ".join(columns),
        "Bands in figures, and numbers behind ± and in brackets, are 95 % intervals (Student's t over "
        f"{counted(len(settings.seeds), 'seed')}). Every policy meets the same devices, partitions and first models.",
    ]
    if aided := [text for text in settings.policies if text in settings.omniscient]:
        notes.append(f"Possible in a simulation only, because they know the network's true times: {joined(aided)}.")
    return notes


def joined(names: Sequence[str]) -> str:
    """Names as a list in a sentence."""
    return "".join(names) if len(names) < 2 else f"{', '.join(names[:-1])} and {names[-1]}"
