"""FLOOR without each of its parts, and with other settings."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from fedroster.core.arrays import FloatArray
from fedroster.papers.floor.worlds import TABLE_1, WORLDS, least_chosen, mean_time
from fedroster.policies.floor import Floor, Parts
from fedroster.study.courses import each
from fedroster.study.figures import intervals_figure
from fedroster.study.paper import FigureRecipe, Need, Runs
from fedroster.study.statistics import mean_interval


class NoPrices(Floor):
    """All prices are 0."""

    parts = Parts(price=0.0)


class HalfPrices(Floor):
    """All prices are half."""

    parts = Parts(price=0.5)


class DoublePrices(Floor):
    """All prices are double."""

    parts = Parts(price=2.0)


class NoScatter(Floor):
    """The largest of the means is minimised and not the expected maximum."""

    parts = Parts(scatter=False)


class NoPooling(Floor):
    """No client learns from others."""

    parts = Parts(pooling=False)


def _without(name: str) -> str:
    return f"{__name__}.{name}"


ABLATION = {
    "FLOOR": "floor",
    "no prices": _without("NoPrices"),
    "largest mean, no scatter": _without("NoScatter"),
    "no learning from others": _without("NoPooling"),
    "no client is ever urgent (c = 1,000)": "floor:slack=1000",
    "no patience (c = 0)": "floor:slack=0",
}
SENSITIVITY = {
    "FLOOR": "floor",
    "prices x 1/2": _without("HalfPrices"),
    "prices x 2": _without("DoublePrices"),
    "memory 25": "floor:memory=25",
    "memory 1,000": "floor:memory=1000",
    "absence 0": "floor:absence=0",
    "absence 6": "floor:absence=6",
    "c = 1": "floor:slack=1",
    "c = 4": "floor:slack=4",
}
_VARIANT_WORLDS = ("table-1", "drift", "two-classes")


def _variants(title: str, policies: Mapping[str, str]) -> FigureRecipe:
    def time_s(runs: Runs, label: str, world: str) -> FloatArray:
        return each(runs, f"{label} / {world}", mean_time)

    def least(runs: Runs, label: str, world: str) -> FloatArray:
        return each(runs, f"{label} / {world}", least_chosen)

    def draw(runs: Runs) -> Figure:
        panels = {
            f"{world}\n% more time": {
                label: mean_interval(100.0 * (time_s(runs, label, world) / time_s(runs, "FLOOR", world) - 1.0))
                for label in policies
            }
            for world in _VARIANT_WORLDS
        }
        return intervals_figure(panels, title=title)

    def findings(runs: Runs) -> list[str]:
        def told(label: str, world: str) -> str:
            return f"{label} {time_s(runs, label, world).mean():.2f} s, lowest {least(runs, label, world).mean():.1f}"

        return [f"{world}: {'; '.join(told(label, world) for label in policies)}." for world in _VARIANT_WORLDS]

    needs = {
        f"{label} / {world}": Need(policy, TABLE_1, WORLDS[world][1])
        for world in _VARIANT_WORLDS
        for label, policy in policies.items()
    }
    return FigureRecipe(title, needs, draw, findings=findings)


ABLATED = _variants("Without each part", ABLATION)
OTHER_SETTINGS = _variants("Other settings", SENSITIVITY)
