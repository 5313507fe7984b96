"""What a comparison found, as an object: frames, a summary, tests, figures and the page."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

import polars as pl

from fedroster.errors import InvalidInputError, UnknownNameError
from fedroster.lab.compare.contrasts import COLUMNS, Contrast, contrasts_of
from fedroster.lab.compare.tables import (
    Runs,
    Settings,
    Values,
    read_settings,
    runs_of,
    summary_of,
    summary_table,
    values_of,
    values_table,
)
from fedroster.lab.pages.report import as_html, latex_table, picture, write_page
from fedroster.lab.trials.store import read_table, write_json, write_table
from fedroster.parts import counted, write_text_atomically

if TYPE_CHECKING:
    from fedroster.lab.pages.charts import Figure


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
        """Read what :meth:`write` wrote.

        Raises:
            InvalidInputError: If the folder does not hold a complete comparison.
        """
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
        return values_of(self.runs, self.settings)

    @cached_property
    def tests(self) -> dict[str, list[Contrast]]:
        """By the policy that they are tested against, all others in every tested measure, judged as one family."""
        return contrasts_of(self.values, self.settings)

    @property
    def frame(self) -> pl.DataFrame:
        """A row for each policy and seed, a column for each measure."""
        return values_table(self.values, self.settings)

    def summary(self) -> pl.DataFrame:
        """A row for each policy: the mean of each measure, and the ends of its 95 % interval."""
        return summary_of(self.values, self.settings)

    def to_latex(self) -> str:
        """The summary as a table for LaTeX with the package booktabs: means, and half of their 95 % intervals."""
        return latex_table(summary_table(self.summary(), self.settings.main_measures))

    def contrasts(self) -> pl.DataFrame:
        """A row for each policy, each that it is tested against, and each tested measure: difference and verdict."""
        tests = (test for base in self.settings.against for test in self.tests[base])
        return pl.DataFrame([test.row() for test in tests], schema=COLUMNS)

    def plot(self, name: str = "") -> Figure:
        """Draw a figure.

        Args:
            name: Such as "participation"; the time of a round, or the updates in time, against the least served if
                empty.

        Raises:
            UnknownNameError: If there is no figure of that name; names those that there are.
        """
        from fedroster.lab.compare.figures import figures_of  # loads Altair

        figures = figures_of(self.runs, self.values, self.settings)
        if name and name not in figures:
            raise UnknownNameError.of("figure", name, figures)
        return figures[name or next(iter(figures))][0]

    def write(self, folder: Path) -> None:
        """Write what :meth:`read` reads."""
        write_table(self.rounds, folder / "rounds.csv")
        write_table(self.clients, folder / "participation.parquet")
        write_json(folder / "settings.json", asdict(self.settings))

    def report(self, path: str | Path) -> Path:
        """Write the page, its pictures and its tables.

        Args:
            path: A folder, or the name of one page, which ends in .html and is then written alone.

        Returns:
            The page.
        """
        from fedroster.lab.compare.figures import figures_of  # loads Altair
        from fedroster.lab.compare.page import page_of

        path = Path(path)
        is_alone = path.suffix == ".html"
        folder = path.parent if is_alone else path
        summary = self.summary()
        pictures = {
            name: picture(figure, label, None if is_alone else folder, name)
            for name, (figure, label) in figures_of(self.runs, self.values, self.settings).items()
        }
        page = page_of(self.values, self.settings, summary, self.tests, pictures, self.clients["client"].n_unique())
        folder.mkdir(parents=True, exist_ok=True)
        if is_alone:
            write_text_atomically(path, as_html(page))
            return path
        write_table(self.frame, folder / "measures.csv")
        write_table(summary, folder / "summary.csv")
        write_table(self.contrasts(), folder / "contrasts.csv")
        write_page(page, folder)
        return folder / "report.html"

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
