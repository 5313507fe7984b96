"""The trade-off between the length of rounds and the least share, and where a wish lies in it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import altair as alt

from fedroster.lab.pages.charts import HEIGHT, WIDTH, Figure, colour_of, finished, table, tips
from fedroster.lab.pages.looks import looks_of
from fedroster.lab.planning import Tried, Wish


def trade_off_figure(tried: Sequence[Tried], wish: Wish) -> Figure:
    """Draw every setting that was tried; the wish is the shaded part.

    Args:
        tried: Settings and what came of them, the best first.
        wish: What was wanted.
    """
    rows = [
        {
            "label": each.setting.policy.partition(":")[0],
            "setting": str(each.setting),
            "deadline": "with a deadline" if math.isfinite(each.setting.deadline_s) else "without a deadline",
            "x": each.round_s.mean,
            "y": 100.0 * each.least_share.mean,
        }
        for each in tried
    ]
    right = 1.05 * max(wish.rounds_under_s, *(each.round_s.mean for each in tried))
    top = 110.0 * max(wish.every_client, *(each.least_share.mean for each in tried))
    labels = [str(row["label"]) for row in rows]
    x = alt.X(
        "x:Q", title=f"{wish.share:.0%} of the rounds end within, s", scale=alt.Scale(domain=(0.0, right), nice=False)
    )
    y = alt.Y("y:Q", title=None, scale=alt.Scale(domain=(0.0, top or 1.0), nice=False))
    wished = table({"x": 0.0, "right": wish.rounds_under_s, "y": 100.0 * wish.every_client, "top": top})
    marks = alt.Chart().mark_point(filled=True, size=70, opacity=0.8)
    told = [alt.Tooltip("setting:N", title=" "), *tips(x="s", y="%")[1:]]
    best = table(rows[0] | {"text": "best" if tried[0].is_met else "nearest"})
    chart = alt.layer(
        alt.Chart(wished).mark_rect(color="#009E73", opacity=0.12).encode(x=x, x2="right:Q", y=y, y2="top:Q"),
        marks.encode(
            x=x,
            y=y,
            color=colour_of(looks_of({each: each for each in labels}), columns=3),
            shape="deadline:N",
            tooltip=told,
        ),
        alt.Chart(best).mark_text(align="left", dx=8, dy=-8).encode(x=x, y=y, text="text:N"),
        data=table(*rows),
        width=WIDTH,
        height=HEIGHT,
    )
    return finished(chart, "Settings, and the wish (shaded)", "least share of a client, %")
