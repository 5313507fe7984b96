"""``fedroster plan``: from a wish to parameters."""

from __future__ import annotations

import dataclasses
import math
import sys
from pathlib import Path
from typing import Annotated

import typer

from fedroster.cli.command import command
from fedroster.cli.options import JsonOption, PolicyOption, SetOption, read_seeds
from fedroster.cli.terminal import print_json, print_table, progress, remark, say_when_compiling
from fedroster.core.errors import ConfigurationError


def _share(text: str, name: str) -> float:
    """A share from ``5%`` or ``0.05``."""
    try:
        return float(text[:-1]) / 100.0 if text.endswith("%") else float(text)
    except ValueError:
        raise ConfigurationError(f"{name} is {text!r}; expected a share such as 5% or 0.05") from None


def _seconds(text: str) -> float:
    """Seconds from ``600s``, ``10min``, ``2h`` or ``600``."""
    for unit, seconds in {"min": 60.0, "h": 3600.0, "s": 1.0, "": 1.0}.items():
        if text.endswith(unit):
            try:
                return float(text.removesuffix(unit)) * seconds
            except ValueError:
                break
    raise ConfigurationError(f"rounds-under is {text!r}; expected a time such as 600s, 10min or 2h")


@command()
def plan(
    where: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO|DIR", help="Scenario with one server, such as rbcs-f/table-1, or folder of a log."
        ),
    ],
    *,
    every_client: Annotated[
        str, typer.Option(help="Least share of the rounds that use each client's update, such as 5%.")
    ],
    rounds_under: Annotated[str, typer.Option(help="Length that rounds stay under, such as 600s or 10min.")],
    share: Annotated[str, typer.Option(help="Least share of the rounds that stay under it.")] = "95%",
    policy: PolicyOption = None,
    rounds: Annotated[
        int | None, typer.Option(min=10, help="Rounds of each trial in a scenario; 300 if not given.")
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            "--seeds", help="Seeds, such as 0-2, which is the default; in a log, numbers of fitted worlds: 0-9."
        ),
    ] = None,
    set_: SetOption = None,
    out: Annotated[Path | None, typer.Option(help="Picture of the trade-off: FILE.svg, FILE.png or FILE.pdf.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Find the policy, share, deadline and spare places that meet your requirements, or come nearest to them."""
    from fedroster.catalogue import parse_settings
    from fedroster.lab.planning import LogWorld, ScenarioWorld, Wish, World, sentence
    from fedroster.lab.planning import plan as try_settings
    from fedroster.record import Log

    if out is not None and out.suffix not in (".svg", ".png", ".pdf"):
        raise ConfigurationError(f"--out is {out}; expected a file that ends in .svg, .png or .pdf")
    wish = Wish(_share(every_client, "every-client"), _seconds(rounds_under), _share(share, "share"))
    folder = Path(where)
    world: World
    if folder.is_dir():
        if rounds is not None or set_:
            raise ConfigurationError(
                f"{where!r} is a log, which has its own rounds and settings; --rounds and --set are for scenarios"
            )
        numbers = read_seeds(seeds or "0-9")
        say_when_compiling()
        world = LogWorld(Log(folder), num_worlds=max(numbers) + 1)
    else:
        numbers = read_seeds(seeds or "0-2")
        world = ScenarioWorld(where, parse_settings(set_ or []), rounds=rounds or 300)
        say_when_compiling()
    with progress("planning") as advance:
        found = try_settings(world, wish, seeds=numbers, only=policy or (), progress=advance)
    tried = found.tried
    if out is not None:
        from fedroster.lab.pages.plan_figure import trade_off_figure

        trade_off_figure(tried, wish).save(out)
    if as_json:
        rows = [dataclasses.asdict(each) | {"is_met": each.is_met} for each in tried]
        for row in rows:  # JSON has neither infinity nor NaN
            row["setting"]["deadline_s"] = _finite(row["setting"]["deadline_s"])
            row |= {name: [_finite(end) for end in row[name]] for name in row if name.endswith("_ends")}
        print_json(rows)
        return
    sys.stdout.write(sentence(found, wish) + "\n\n")
    under = f"{wish.share:.0%}\nunder, s"
    columns = ["setting", "met", "least\nshare", under, "mean\nround, s", "updates", "wasted"]
    rows_shown = [
        [
            str(each.setting),
            f"{each.met}/{each.num_seeds}",
            f"{each.least_share:.1%}",
            f"{each.round_s:.3g}",
            f"{each.mean_round_s:.3g}",
            f"{each.updates:.3g}",
            f"{each.wasted:.0%}",
        ]
        for each in tried[:8]
    ]
    print_table(columns, rows_shown, right=columns[1:], whole=columns[1:], title=f"the best of {len(tried)} settings")
    if found.refused:
        setting, why = next(iter(found.refused.items()))
        remark(f"{len(found.refused)} settings could not be tried, such as {setting}: {why}")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
