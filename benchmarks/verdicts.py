"""How often verdicts are wrong in worlds whose truth is known, and how often an effect that matters is found.

Run as ``python -m benchmarks.verdicts [--pages 2000] [--claims 12]``; the table is ``benchmarks/results/verdicts.md``.
A page is wrong if even one of its claims has a word that the world rules out.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.rows import RESULTS
from fedroster.core.state import write_text_atomically
from fedroster.lab.trials.measures import crossing
from fedroster.lab.verdicts.verdicts import Claim, Part, Word, accuracy_gap, judge, threshold, time_gap
from fedroster.types import FloatArray

SEEDS = (3, 5, 10, 20, 40)
SHOWN: tuple[Word, ...] = ("holds", "holds, but small")
AGAINST: tuple[Word, ...] = ("contradicted",)
SMALL: tuple[Word, ...] = ("holds, but small", "contradicted")


@dataclass(frozen=True)
class World:
    """A kind of claim at the edge of truth.

    Attributes:
        about: In words.
        parts: Draws a claim's parts with so many seeds; the last argument is the true effect in units of the smallest
            one that matters.
        effect: The effect at which no verdict of ``wrong`` may be given.
        wrong: Words that are wrong there.
        twice: An effect that matters twice, for the power; None where the claim names a threshold.
    """

    about: str
    parts: Callable[[np.random.Generator, int, float], list[Part]]
    effect: float
    wrong: tuple[Word, ...]
    twice: float | None = 2.0


def _points(rng: np.random.Generator, seeds: int, effect: float) -> list[Part]:
    """Accuracies with a spread of a point between runs of one seed, and a second part that is clearly true."""
    base = rng.normal(0.7, 0.03, seeds)
    return [accuracy_gap(base + 0.01 * (lead + rng.normal(0.0, 1.0, seeds)), base) for lead in (effect, 5.0)]


def _uneven(rng: np.random.Generator, seeds: int, effect: float) -> list[Part]:
    """Accuracies whose differences are skewed: a shifted gamma of shape 4 (skewness 1)."""
    base = rng.normal(0.7, 0.03, seeds)
    noise = (rng.gamma(4.0, 1.0, seeds) - 4.0) / 2.0
    return [accuracy_gap(base + 0.01 * (effect + noise), base)]


def _times(rng: np.random.Generator, seeds: int, effect: float) -> tuple[FloatArray, FloatArray]:
    later = 100.0 * np.exp(rng.normal(0.0, 0.3, seeds))
    return later * (1.0 - 0.05 * effect) * np.exp(rng.normal(0.0, 0.06, seeds)), later


def _censored(rng: np.random.Generator, seeds: int, effect: float) -> list[Part]:
    """Times of which about four of ten never come: independent of each other where there is no effect."""
    sooner, later = _times(rng, seeds, effect)
    end = 107.0
    return [time_gap(np.where(sooner > end, np.inf, sooner), np.where(later > end, np.inf, later))]


def _coarse(rng: np.random.Generator, seeds: int, effect: float) -> list[Part]:
    """Learning curves that are tested every five rounds and cross the target after about 20."""
    at = np.arange(5.0, 101.0, 5.0)

    def rounds(pace: FloatArray) -> FloatArray:
        curves = 1.0 - np.exp(-at / (20.0 * pace[:, None])) + rng.normal(0.0, 0.005, (seeds, at.shape[0]))
        return np.array([crossing(at, curve, 1.0 - np.exp(-1.0)) for curve in curves])

    later = np.exp(rng.normal(0.0, 0.15, seeds))
    noise = np.exp(rng.normal(-0.5 * 0.03**2, 0.03, seeds))  # of mean 1
    sooner = later * (1.0 - 0.05 * effect) * noise
    return [time_gap(rounds(sooner), rounds(later), "rounds")]


def _ratio(rng: np.random.Generator, seeds: int, effect: float) -> list[Part]:
    """Skewed times whose mean is just 0.9 of the others' mean, the threshold that the claim names."""
    later = np.exp(rng.normal(0.0, 0.4, seeds))
    noise = np.exp(rng.normal(-0.5 * 0.3**2, 0.3, seeds))
    return [time_gap((0.9 - 0.05 * effect) * later * noise, later, at_most=0.9)]


def _met(rng: np.random.Generator, seeds: int, effect: float) -> list[Part]:
    return [threshold(effect + rng.normal(0.0, 1.0, seeds))]


def _panels(rng: np.random.Generator, seeds: int, effect: float) -> list[Part]:
    """A general sentence that is true in five panels, and less than a point, or none, in a sixth."""
    leads = (2.0, 2.0, 2.0, 2.0, 2.0, effect)
    gaps = [0.01 * (lead + rng.normal(0.0, 1.0, seeds)) for lead in leads]
    return [replace(accuracy_gap(gap, np.zeros(seeds)), panel=f"panel {place}") for place, gap in enumerate(gaps)]


WORLDS = {
    "false": World("no effect in one of two parts", _points, 0.0, (*SHOWN, *AGAINST)),
    "true": World("twice the margin", _points, 2.0, SMALL),
    "at the margin": World("just the margin, in one of two parts", _points, 1.0, SMALL),
    "threshold": World("a threshold that is just met", _met, 0.0, (*SHOWN, *AGAINST), None),
    "censored": World("no effect, four of ten runs never get there", _censored, 0.0, (*SHOWN, *AGAINST)),
    "censored, margin": World("just the margin, the same", _censored, 1.0, SMALL),
    "coarse": World("no effect, 20 rounds, tested every 5", _coarse, 0.0, (*SHOWN, *AGAINST)),
    "coarse, margin": World("just the margin (one round), the same", _coarse, 1.0, SMALL),
    "skewed": World("no effect, skewness 1", _uneven, 0.0, (*SHOWN, *AGAINST)),
    "skewed, margin": World("just the margin, the same", _uneven, 1.0, SMALL),
    "skewed ratio": World("a mean of just 0.9 times, log-normal", _ratio, 0.0, (*SHOWN, *AGAINST), None),
    "panels": World("the margin twice in five panels, 0.6 of it in one", _panels, 0.6, AGAINST),
}


def share_wrong(world: World, seeds: int, *, pages: int, claims: int, seed: int = 28) -> float:
    """Share of pages with even one wrong word."""
    rng = np.random.default_rng([seed, seeds])
    wrong = 0
    for _ in range(pages):
        words = {verdict.word for verdict in judge(_page(world, rng, seeds, claims, world.effect))}
        wrong += bool(words & set(world.wrong))
    return wrong / pages


def share_found(world: World, seeds: int, *, pages: int, claims: int, seed: int = 29) -> float:
    """Share of true effects, each twice as large as matters, that hold."""
    rng = np.random.default_rng([seed, seeds])
    twice = world.twice or 0.0
    found = [verdict.holds for _ in range(pages) for verdict in judge(_page(world, rng, seeds, claims, twice))]
    return float(np.mean(found))


def _page(world: World, rng: np.random.Generator, seeds: int, claims: int, effect: float) -> list[Claim]:
    return [Claim(str(i), "", "", "", tuple(world.parts(rng, seeds, effect))) for i in range(claims)]


def main() -> None:
    """Make the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=2000)
    parser.add_argument("--claims", type=int, default=12)
    given = parser.parse_args()
    lines = [
        f"Pages of {given.claims} claims with a wrong verdict, per cent of {given.pages:,}; in brackets, per",
        "cent of true effects of twice the smallest one that matters that hold. Made by",
        f"`python -m benchmarks.verdicts --pages {given.pages} --claims {given.claims}`.",
        "",
        f"| world | truth | {' | '.join(f'{seeds} seeds' for seeds in SEEDS)} |",
        f"| --- | --- | {' | '.join('---' for _ in SEEDS)} |",
    ]
    for name, world in WORLDS.items():
        cells = []
        for seeds in SEEDS:
            cell = f"{100 * share_wrong(world, seeds, pages=given.pages, claims=given.claims):.1f}"
            if world.twice is not None:
                found = share_found(world, seeds, pages=max(given.pages // 20, 1), claims=given.claims)
                cell += f" ({100 * found:.0f})"
            cells.append(cell)
        lines.append(f"| {name} | {world.about} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    write_text_atomically(RESULTS / "verdicts.md", "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
