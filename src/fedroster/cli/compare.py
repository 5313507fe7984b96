"""``fedroster compare``: policies beside each other, with training or without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedroster.cli.command import command
from fedroster.cli.options import (
    JsonOption,
    PolicyOption,
    SeedsOption,
    SetOption,
    Training,
    Workplace,
    check_folder,
    read_seeds,
    this_command,
)
from fedroster.cli.terminal import (
    interrupted,
    kept_runs,
    print_json,
    print_table,
    progress,
    remark,
    say_when_compiling,
)
from fedroster.core.errors import ConfigurationError

if TYPE_CHECKING:
    import polars as pl

    from fedroster.study.compare.line_up import LineUp
    from fedroster.study.compare.page import Compared
    from fedroster.study.compare.run import Design


@dataclass(frozen=True)
class Competitors:
    """Which policies are compared, and where."""

    scenario: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|all",
            help="Scenario; rbcs-f/table-1 if not given. May be repeated; with several, or all, there is a folder for "
            "each and a page above them, and policies that cannot run in one of them are left out there.",
        ),
    ] = None
    policy: PolicyOption = None
    policies: Annotated[
        list[str] | None,
        typer.Option(
            metavar="all|NAME[:P=V,...],...",
            help="Policies, separated by commas; may be repeated. all: every policy of `fedroster list`, plug-ins "
            "included, that can run in the scenario (two rounds are played to find out); the page names the others "
            "with the reason. A rate beta that so many clients cannot have, N beta > m, becomes m / 2N, and V fits it.",
        ),
    ] = None
    without: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Leave this policy out of all; may be repeated.")
    ] = None
    clients: Annotated[
        int | None, typer.Option(min=1, max=10_000_000, help="Clients; the cohort grows with them, up to 1,000.")
    ] = None
    beta: Annotated[
        float | None, typer.Option(help="Participation rate that is owed to every client, for all policies with one.")
    ] = None
    rounds: Annotated[
        int | None,
        typer.Option(min=1, help="Rounds; if not given, the scenario's own number with or without training."),
    ] = None
    set_: SetOption = None

    def line_ups(self, *, is_trained: bool) -> tuple[list[LineUp], bool]:
        """What is compared in each scenario, and whether one single scenario was asked for."""
        from fedroster.catalogue import DEFAULT_SCENARIO, parse_settings
        from fedroster.study.compare.line_up import ALL, Wanted, line_up, scenarios_of, split_policies

        for text in self.policies or ():
            if not split_policies(text):
                raise ConfigurationError(f"--policies is {text!r}; expected all, or names separated by commas")
        asked = self.scenario or [DEFAULT_SCENARIO]
        is_one = len(asked) == 1 and asked[0] != ALL
        wanted = Wanted(
            policies=[*(name for text in self.policies or () for name in split_policies(text)), *(self.policy or ())],
            without=self.without or [],
            clients=self.clients,
            rate=self.beta,
            num_rounds=self.rounds,
            settings=parse_settings(self.set_ or []),
            is_trained=is_trained,
            must_run=is_one,
        )
        return [line_up(name, wanted) for name in scenarios_of(asked)], is_one


@dataclass(frozen=True)
class Measured:
    """What is trained and tested."""

    against: Annotated[
        list[str] | None,
        typer.Option(
            metavar="POLICY",
            help="Policy that the others are tested against; may be repeated. If not given, uniform random selection "
            "and the policy in focus.",
        ),
    ] = None
    focus: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help="Policy from whose side the pages are told. If not given, one of fedroster's own, or the first.",
        ),
    ] = None
    seeds: SeedsOption = "0-4"
    task: Annotated[
        str, typer.Option(help="What is trained, such as digits or fashion-mnist; none for no training.")
    ] = "digits"
    partition: Annotated[str, typer.Option(help="Clients' samples: dirichlet:GAMMA_1, labels:NUMBER or iid.")] = (
        "dirichlet:0.5"
    )
    target: Annotated[float, typer.Option(help="Accuracy for the time to accuracy.")] = 0.9


@command()
def compare(
    *,
    competitors: Competitors,
    measured: Measured,
    folder: Annotated[Path, typer.Option("--out", help="Folder.")] = Path("runs/compare"),
    training: Training,
    workplace: Workplace,
    as_json: JsonOption = False,
) -> None:
    """Compare policies over seeds, with training on real data or without, and write a report."""
    from fedroster.study.compare.run import Design
    from fedroster.task import Task

    check_folder(folder)
    task = None if measured.task == "none" else Task(measured.task, measured.partition)
    design = Design(
        seeds=read_seeds(measured.seeds),
        task=task,
        target_accuracy=measured.target,
        against=measured.against or (),
        focus=measured.focus or "",
        command=this_command(),
    )
    options = {"workers": workplace.workers, "engine": workplace.open(), "conditions": training.conditions()}
    say_when_compiling()
    lines, is_one = competitors.line_ups(is_trained=task is not None)
    summary, found = _run(lines, is_one, design, folder, options)
    if as_json:
        print_json(summary.to_dicts())
    else:
        for one in found:
            title = f"{one.settings.scenario}, {one.settings.rounds} rounds, seeds {measured.seeds}"
            _print(one, title if task is None else f"{title}, target {measured.target:.0%}")
        for words in {f"{left}: {reason}": None for line in lines for left, reason in line.left_out.items()}:
            remark(f"not compared: {words}")
    remark(f"report: {folder / 'report.html'}")


def _run(
    lines: Sequence[LineUp], is_one: bool, design: Design, folder: Path, options: Mapping[str, Any]
) -> tuple[pl.DataFrame, list[Compared]]:
    from fedroster.study.compare.overview import compare_all
    from fedroster.study.compare.run import compare as compare_one

    total = sum(len(line.policies) for line in lines) * len(design.seeds)
    what = "simulating" if design.task is None else "training"
    with interrupted(lambda: kept_runs(folder)), progress(what, total) as advance:
        if not is_one:
            return compare_all(lines, design, folder, progress=advance, **options)
        found = compare_one(lines[0], design, folder, progress=advance, **options)
        return found.summary, [found]


def _print(found: Compared, title: str) -> None:
    from fedroster.study.compare.page import summary_table

    table = summary_table(found.summary, [one for one in found.settings.main_measures if not one.is_long])
    print_table(table.columns, table.rows, title=title, right=table.columns[1:], whole=table.columns[1:], name_width=18)
