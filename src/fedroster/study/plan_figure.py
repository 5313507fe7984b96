"""The trade-off between the length of rounds and the least share, and where a wish lies in it."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from fedroster.study.looks import look
from fedroster.study.planning import Tried, Wish


def trade_off_figure(tried: Sequence[Tried], wish: Wish) -> Figure:
    """Draw every setting that was tried; the wish is the corner of the shaded part.

    Args:
        tried: Settings and what came of them, the best first.
        wish: What was wanted.
    """
    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = figure.subplots()
    named: set[str] = set()
    for each in tried:
        name = each.setting.policy.partition(":")[0]
        marker = "o" if each.setting.deadline_s == float("inf") else "s"
        label = None if name in named else name
        named.add(name)
        axes.plot(each.round_s, 100.0 * each.least_share, marker, color=look(name).colour, label=label, alpha=0.75)
    best = tried[0]
    axes.annotate(
        "best" if best.is_met else "nearest",
        (best.round_s, 100.0 * best.least_share),
        xytext=(8, 8),
        textcoords="offset points",
    )
    right = max(each.round_s for each in tried) * 1.05
    top = 100.0 * max(*(each.least_share for each in tried), wish.every_client) * 1.1
    axes.fill_between([0.0, wish.rounds_under_s], 100.0 * wish.every_client, top, color="#009E73", alpha=0.12)
    axes.set(
        xlim=(0.0, max(right, wish.rounds_under_s * 1.05)),
        ylim=(0.0, top),
        xlabel=f"{wish.share:.0%} of the rounds end within, s",
        ylabel="least share of a client, %",
        title="Settings, and the wish (shaded); squares have a deadline",
    )
    axes.legend(loc="best", fontsize=9)
    return figure
