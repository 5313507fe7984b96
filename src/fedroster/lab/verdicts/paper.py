"""How a paper's figures are described: the runs that each needs, how it is drawn, what is claimed about it.

Papers are found through the entry point group ``fedroster.papers``; other packages may add to it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from fedroster.errors import ConfigurationError, UnknownNameError
from fedroster.lab.task import Task
from fedroster.lab.trials.measures import Run
from fedroster.lab.trials.trial import Trial
from fedroster.lab.verdicts.verdicts import Claim
from fedroster.types import FloatArray

if TYPE_CHECKING:
    from fedroster.lab.pages.charts import Figure


@dataclass(frozen=True, slots=True)
class Need:
    """Runs of one policy in one scenario, one for each seed.

    Attributes:
        policy: Policy as text.
        scenario: Name of the scenario.
        settings: Parameters of the scenario that are overridden, as (name, text).
        stretch: The runs are this many times as long as asked for.
        task: What is trained; None for no training.
        rounds: T unless asked for otherwise; None for the paper's.
        evaluate_every: Rounds from one test of the model to the next.
        rate: beta at which participation is measured; None for the policy's own.
    """

    policy: str
    scenario: str
    settings: tuple[tuple[str, str], ...] = ()
    stretch: float = 1.0
    task: Task | None = None
    rounds: int | None = None
    evaluate_every: int = 1
    rate: float | None = None

    def trials(self, *, seeds: Sequence[int], rounds: int) -> list[Trial]:
        """The runs, described."""
        rounds = round(rounds * self.stretch)
        settings = dict(self.settings)
        return [
            Trial(self.scenario, self.policy, seed, rounds, settings, self.task, self.evaluate_every, self.rate)
            for seed in seeds
        ]


Runs = Mapping[str, Sequence[Run]]
"""Runs by the recipe's own labels, one for each seed, in the same order of seeds."""

Numbers = Mapping[str, Mapping[str, FloatArray]]
"""By column and row of a table, a value of each seed, shape (seeds,); infinite where a run did not get there."""


@dataclass(frozen=True, slots=True)
class FigureRecipe:
    """How a figure is made, from simulated runs or from runs with training.

    Attributes:
        title: What it shows.
        needs: The runs that it needs, by its own labels.
        draw: Makes it from these runs.
        claims: The paper's claims about it, measured on these runs.
        numbers: What a reader should know beside the verdicts, as a table.
        notes: The same in sentences, whatever the runs say.
        on_request: Whether it is made only when it is named, for it takes long.
    """

    title: str
    needs: Mapping[str, Need]
    draw: Callable[[Runs], Figure]
    claims: Callable[[Runs], list[Claim]] = lambda _: []
    numbers: Callable[[Runs], Numbers] = lambda _: {}
    notes: Sequence[str] = ()
    on_request: bool = False

    @property
    def trains(self) -> bool:
        """Whether its runs train a model."""
        return any(need.task is not None for need in self.needs.values())


@dataclass(frozen=True, slots=True)
class Scale:
    """The training experiments of a paper in one size: recipes by their names, and seeds if no others are asked for."""

    figures: Mapping[str, FigureRecipe]
    seeds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper's figures.

    Attributes:
        title: Heading of the page.
        figures: Recipes of the figures without training, by the names that the command line uses.
        rounds: Rounds of a run without training unless asked for otherwise.
        citation: Authors, title, venue, year and address; empty where nothing is published.
        scales: The figures with training, in the sizes that the command line offers.
    """

    title: str
    figures: Mapping[str, FigureRecipe]
    rounds: int
    citation: str = ""
    scales: Mapping[str, Scale] = field(default_factory=dict)


GROUP = "fedroster.papers"
"""The entry point group."""


def papers() -> dict[str, EntryPoint]:
    """All papers by name, those of other packages included; none is loaded.  A name of fedroster's stays its own."""
    points = sorted(
        entry_points(group=GROUP), key=lambda point: (not point.value.startswith("fedroster."), point.value)
    )
    return {point.name: point for point in reversed(points)}


def find_paper(name: str) -> Paper:
    """Load a paper; UnknownNameError names the nearest if there is none, ConfigurationError why it cannot be loaded."""
    known = papers()
    if name not in known:
        raise UnknownNameError.of("paper", name, sorted(known))
    point = known[name]
    try:
        with redirect_stdout(sys.stderr):  # what it prints is no result of ours
            paper = point.load()
    except (Exception, SystemExit) as error:  # whatever another package's module does when it is imported
        raise ConfigurationError(f"paper {name} cannot be loaded from {point.value} ({error!r})") from error
    if not isinstance(paper, Paper):
        raise ConfigurationError(
            f"paper {name} is {type(paper).__name__} in {point.value}; expected {Paper.__qualname__}"
        )
    return paper
