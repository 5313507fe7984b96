"""How a paper's figures are described: the runs that each needs, how it is drawn, what is claimed about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl
from matplotlib.figure import Figure

from fedroster.study.experiment import Cell
from fedroster.study.measures import Trajectory
from fedroster.study.statistics import Claim


@dataclass(frozen=True, slots=True)
class Need:
    """Runs of one policy in one scenario, one for each seed.

    Attributes:
        policy: Policy as text.
        scenario: Name of the scenario.
        settings: Parameters of the scenario that are overridden, as (name, text).
        stretch: The runs are this many times as long as asked for.
    """

    policy: str
    scenario: str
    settings: tuple[tuple[str, str], ...] = ()
    stretch: float = 1.0

    def cells(self, *, seeds: Sequence[int], num_rounds: int) -> list[Cell]:
        """The runs."""
        rounds = round(num_rounds * self.stretch)
        return [Cell(self.scenario, self.policy, seed, rounds, dict(self.settings)) for seed in seeds]


Runs = Mapping[str, Sequence[Trajectory]]
"""Trajectories by the recipe's own labels, one for each seed, in the same order of seeds."""


@dataclass(frozen=True, slots=True)
class Product:
    """A figure with the data that it shows.

    Attributes:
        figure: The picture.
        data: Tidy table.
    """

    figure: Figure
    data: pl.DataFrame


@dataclass(frozen=True, slots=True)
class FigureRecipe:
    """How a figure is made.

    Attributes:
        title: What it shows.
        needs: The runs that it needs, by its own labels.
        draw: Makes it from these runs.
        claims: The paper's claims about it, measured on these runs.
        findings: What a reader should know beside the verdicts, in sentences.
    """

    title: str
    needs: Mapping[str, Need]
    draw: Callable[[Runs], Product]
    claims: Callable[[Runs], list[Claim]] = lambda _: []
    findings: Callable[[Runs], list[str]] = lambda _: []


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper's figures.

    Attributes:
        title: Heading of the page.
        figures: Recipes by the names that the command line uses.
        num_rounds: Rounds of a run unless asked for otherwise.
    """

    title: str
    figures: Mapping[str, FigureRecipe]
    num_rounds: int
