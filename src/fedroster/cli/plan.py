"""``fedroster plan``: from a wish to parameters."""

from __future__ import annotations

import dataclasses
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fedroster.cli.command import command
from fedroster.cli.options import JsonOption, PolicyOption, SetOption, read_seeds
from fedroster.cli.terminal import print_json, print_table, progress, remark, say_when_compiling
from fedroster.core.errors import ConfigurationError
from fedroster.core.outside import plain

if TYPE_CHECKING:
    from fedroster.lab.planning import Plan, Wish
    from fedroster.lab.replay.history import History
    from fedroster.lab.statistics import Interval


def _share(text: str, name: str) -> float:
    """A share from ``5%`` or ``0.05``."""
    try:
        return float(text[:-1]) / 100.0 if text.endswith("%") else float(text)
    except ValueError:
        raise ConfigurationError(f"{name} is {text!r}; expected a share such as 5% or 0.05") from None


def _span(seconds: float) -> str:
    """Seconds as people read them."""
    for unit, length in {"days": 86400.0, "h": 3600.0, "min": 60.0}.items():
        if seconds >= 2.0 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


@command()
def plan(
    where: Annotated[str, typer.Argument(help="Scenario such as rbcs-f/table-1, or folder of a log.")],
    *,
    every_client: Annotated[
        str | None, typer.Option(help="Least share of the rounds that use each client's update, such as 5%.")
    ] = None,
    rounds_under: Annotated[
        str | None, typer.Option(help="Length that rounds stay under, such as 600s or 10min.")
    ] = None,
    share: Annotated[str, typer.Option(help="Least share of the rounds that stay under it.")] = "95%",
    rules: Annotated[
        Path | None,
        typer.Option(help="TOML file of rules, in place of the log's. Without a wish: what they do to the log."),
    ] = None,
    late: Annotated[
        Literal["told", "dropped"],
        typer.Option(help="Clients that a round did not wait for: told (their times come later) or dropped."),
    ] = "told",
    policy: PolicyOption = None,
    rounds: Annotated[
        int | None, typer.Option(min=10, help="Rounds of each trial in a scenario; 300 if not given.")
    ] = None,
    seeds: Annotated[
        str, typer.Option("--seeds", help="Seeds that count; in a log, numbers of fitted worlds.")
    ] = "0-9",
    set_: SetOption = None,
    out: Annotated[Path | None, typer.Option(help="Picture of the trade-off: FILE.svg, FILE.png or FILE.pdf.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Find the policy, share, deadline and spare places that meet your requirements, or try rules on a log.

    The exit status is 1 if no setting meets them.
    """
    from fedroster.catalogue import make_policy, parse_settings
    from fedroster.core.protocols import missing_signals
    from fedroster.core.units import seconds_of
    from fedroster.lab.planning import SCREENED, LogWorld, ScenarioWorld, Wish, World, sentence
    from fedroster.lab.planning import plan as try_settings
    from fedroster.lab.replay.history import read_history
    from fedroster.record import Log
    from fedroster.rules.rules import Rules

    if out is not None and out.suffix not in (".svg", ".png", ".pdf"):
        raise ConfigurationError(f"--out is {out}; expected a file that ends in .svg, .png or .pdf")
    table = None if rules is None else Rules.load(rules).as_table()
    folder = Path(where)
    if every_client is None and rounds_under is None and table is not None and folder.is_dir():
        if len(policy or ()) > 1 or rounds or set_ or out:
            raise ConfigurationError(
                "without a wish, rules are tried on a log as it is; expected one --policy at most, and no "
                "--rounds, --set or --out"
            )
        _dry_run(read_history(Log(folder)), table, policy, as_json=as_json)
        return
    if every_client is None or rounds_under is None:
        raise ConfigurationError("expected --every-client and --rounds-under, or a log and --rules alone")
    wish = Wish(
        _share(every_client, "every-client"),
        seconds_of("rounds-under", rounds_under + "s" * rounds_under[-1:].isdigit(), expected=""),
        _share(share, "share"),
    )
    numbers = read_seeds(seeds)
    world: World
    say_when_compiling()
    if folder.is_dir():
        if rounds is not None or set_:
            raise ConfigurationError(
                f"{where!r} is a log, which has its own rounds and settings; --rounds and --set are for scenarios"
            )
        world = LogWorld(read_history(Log(folder)), num_worlds=max(numbers) + 1 + SCREENED, rules=table)
    else:
        world = ScenarioWorld(where, parse_settings(set_ or []), rounds=rounds or 300, rules=table)
    for text in policy or ():  # a plan knows no losses; a deadline is among what it tries
        if lacks := missing_signals(make_policy(text), losses=False, contexts=True, deadline=True):
            remark(f"{text} learns from {' and '.join(lacks)}, which a plan does not have")
    with progress("planning") as advance:
        found = try_settings(world, wish, seeds=numbers, late=late, only=policy or (), progress=advance)
    if out is not None:
        _draw(found, wish, out)
    if as_json:
        logged = [] if found.logged is None else [("logged", found.logged)]
        rows = [*logged, *(("tried", each) for each in found.tried)]
        print_json([{"kind": kind} | dataclasses.asdict(each) | {"is_met": each.is_met} for kind, each in rows])
    else:
        sys.stdout.write(plain(sentence(found)) + "\n\n")
        _print(found, wish)
    if not found.tried[0].is_met:
        raise typer.Exit(1)


def _draw(found: Plan, wish: Wish, file: Path) -> None:
    """Draw what settings came to; the best, or the nearest, is in focus."""
    from fedroster.lab.pages.pareto import pareto_figure
    from fedroster.lab.statistics import Interval

    points = {
        str(each.setting): (Interval(*3 * (each.round_s.mean,)), Interval(*3 * (100.0 * each.least_share.mean,)))
        for each in found.tried
        if math.isfinite(each.round_s.mean)  # else no round had a cohort
    }
    x_label = f"{wish.share:.0%} of the rounds end within, s"
    y_label = "least share of a client, %"
    title = f"Settings; wished: {wish.every_client:.1%} for each client, {wish.rounds_under_s:g} s"
    pareto_figure(points, x_label, y_label, title=title, focus=[*points][:1]).save(file)


def _print(found: Plan, wish: Wish) -> None:
    """Print the log's own numbers above those of settings."""
    from rich.text import Text

    def within(found: Interval, form: str) -> Text:
        """A mean, and below it its interval where there is one."""
        ends = f"\n{found.low:{form}} to {found.high:{form}}" if found.low < found.high else ""
        return Text(f"{found.mean:{form}}{ends}")

    columns = ["setting", "met", "least\nshare", f"{wish.share:.0%}\nunder, s", "mean\nround, s", "updates", "wasted"]
    rows: list[list[str | Text]] = [
        [
            str(each.setting) if each is not found.logged else f"the log: {each.setting}",
            f"{each.met}/{each.num_seeds}",
            within(each.least_share, ".1%"),
            within(each.round_s, ".3g"),
            within(each.mean_round_s, ".3g"),
            f"{each.updates:.3g}",
            f"{each.wasted:.0%}",
        ]
        for each in (found.logged, *found.tried[:8])
        if each is not None
    ]
    title = f"the best of {len(found.tried)} settings, with 90 % intervals"
    print_table(columns, rows, right=columns[1:], whole=columns[1:], title=title)
    if found.refused:
        setting, why = next(iter(found.refused.items()))
        remark(f"{len(found.refused)} settings could not be tried, such as {setting}: {why}")


def _dry_run(history: History, rules: dict[str, Any], policies: list[str] | None, *, as_json: bool) -> None:
    """Say what rules do to a log."""
    from fedroster.catalogue import make_policy, policy_of_label
    from fedroster.lab.replay.estimates import dry_run
    from fedroster.lab.statistics import signed
    from fedroster.rules.rules import Rules

    own = history.policy
    policy = make_policy(policies[0]) if policies else policy_of_label(own) if "(" in own else make_policy(own)
    say_when_compiling()
    for said in Rules.from_table(rules).check(history.ids, cohort_size=history.cohort_size):
        remark(said)
    found = dry_run(history, policy, rules)
    if as_json:
        print_json(found)
        return
    columns = ["under", "mean\nround, s", "changed by", "not\nbegun", "lowest\nrate", "longest\nwait"]
    cells = [
        [
            each.of,
            f"{each.mean_round_s:.3g}",
            ""
            if math.isnan(each.slower)
            else "{} ({} to {})".format(*(signed(one, ".0%") for one in (each.slower, *each.slower_ends))),
            f"{each.not_begun:.1%}",
            f"{each.least_rate:.1%}",
            _span(each.longest_wait_s),
        ]
        for each in found
    ]
    print_table(columns, cells, right=columns[1:], whole=columns, title=f"{history.num_rounds} rounds under {own}")
