"""``fedroster compare``: policies beside each other, with training or without."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from fedroster.cli.command import command
from fedroster.cli.options import (
    JsonOption,
    SeedsOption,
    SetOption,
    Training,
    Workplace,
    check_folder,
    complete,
    read_seeds,
    this_command,
)
from fedroster.cli.terminal import kept_runs, print_json, print_summary, progress, remark
from fedroster.core.errors import ConfigurationError, UnknownNameError


@dataclass(frozen=True)
class Wanted:
    """Which policies are compared, where, and what is trained and tested."""

    scenario: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|all",
            autocompletion=complete("catalogue.SCENARIOS"),
            help="Scenario; rbcs-f/table-1 if not given. May be repeated; several scenarios, or all, get a folder "
            "each and a page above them. Policies that cannot run in one of them are left out there.",
        ),
    ] = None
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "--policies",
            metavar="all|NAME[:P=V,...],...",
            autocompletion=complete("catalogue.POLICIES"),
            help="Policy, or several separated by commas; may be repeated. all: every policy of `fedroster list` that "
            "can run in the scenario, plug-ins included (two rounds are played to find out); the page names the others "
            "with the reason. An impossible rate, N beta > m, becomes m / 2N, and V fits it.",
        ),
    ] = None
    clients: Annotated[
        int | None, typer.Option(min=1, max=10_000_000, help="Clients; the cohort grows with them, up to 1,000.")
    ] = None
    rounds: Annotated[
        int | None,
        typer.Option(min=1, help="Rounds; if not given, the scenario's own number with or without training."),
    ] = None
    set_: SetOption = None

    focus: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help="Policy that the pages are about; the others are tested against it, and against random. If not given, "
            "one of fedroster's own, or the first.",
        ),
    ] = None
    seeds: SeedsOption = "0-4"
    task: Annotated[
        str,
        typer.Option(
            help="What is trained, such as digits or fashion-mnist (`fedroster list tasks`); none for no training.",
            autocompletion=complete("lab.training.tasks.TASKS"),
        ),
    ] = "digits"
    partition: Annotated[str, typer.Option(help="Clients' samples: dirichlet:GAMMA_1, labels:NUMBER or iid.")] = (
        "dirichlet:0.5"
    )
    coupling: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of a client's samples whose labels go with its speed.")
    ] = 0.0
    epochs: Annotated[int | None, typer.Option(min=1, help="Local epochs; the task's own if not given.")] = None
    samples: Annotated[int | None, typer.Option(min=1, help="Samples of a client; the task's if not given.")] = None
    memory: Annotated[
        bool, typer.Option("--memory", help="The server remembers each client's last update (FedVARP, CA2FL).")
    ] = False
    free_places: Annotated[
        bool, typer.Option("--free-places", help="Fill each place as it becomes free; a round is then one choice.")
    ] = False
    target: Annotated[float, typer.Option(help="Accuracy for the time to accuracy.")] = 0.9

    def policies(self) -> list[str]:
        """All policies that are named."""
        from fedroster.lab.compare.line_up import split_policies

        found: list[str] = []
        for text in self.policy or ():
            if not (names := split_policies(text)):
                raise ConfigurationError(f"--policy is {text!r}; expected all, or names separated by commas")
            found += names
        return found


@command()
def compare(
    *,
    asked: Wanted,
    folder: Annotated[Path, typer.Option("--out", help="Folder.")] = Path("runs/compare"),
    again: Annotated[
        bool, typer.Option("--again", help="Play nothing: draw the pages of --out again from its tables.")
    ] = False,
    training: Training,
    workplace: Workplace,
    as_json: JsonOption = False,
) -> None:
    """Compare policies over seeds, with training on real data or without, and write a report."""
    if again:
        if asked != Wanted():
            raise ConfigurationError("--again draws the tables of --out; expected no policies, scenarios or measures")
        from fedroster.lab.compare.run import render

        render(folder)
        remark(f"report: {folder / 'report.html'}")
        return
    from fedroster.catalogue import DEFAULT_SCENARIO, parse_settings
    from fedroster.lab.compare.line_up import Asked, line_ups
    from fedroster.lab.compare.run import compare_all
    from fedroster.lab.task import Task
    from fedroster.lab.training.tasks import TASKS

    check_folder(folder)
    name = asked.task.casefold()
    if name != "none" and name not in TASKS:  # known before PyTorch is loaded
        raise UnknownNameError.of("task", asked.task, [*TASKS, "none"])
    how: dict[str, Any] = {name: getattr(asked, name) for name in ("coupling", "memory", "free_places", "epochs")}
    how["samples_per_client"] = asked.samples
    if name == "none" and any(how.values()):
        raise ConfigurationError(
            "--epochs, --samples, --coupling, --memory and --free-places are about training; expected a --task"
        )
    plans = line_ups(
        asked.scenario or [DEFAULT_SCENARIO],
        Asked(
            policies=asked.policies(),
            seeds=read_seeds(asked.seeds),
            rounds=asked.rounds,
            task=None if name == "none" else Task(name, asked.partition, **how),
            target_accuracy=asked.target,
            focus=asked.focus or "",
            clients=asked.clients,
            settings=parse_settings(asked.set_ or []),
            command=this_command(),
        ),
    )
    engine, conditions = workplace.open(), training.conditions()
    what = "simulating" if name == "none" else "training"
    with progress(what, kept=lambda: kept_runs(folder)) as advance:
        found = compare_all(
            plans, folder, progress=advance, workers=workplace.workers, engine=engine, conditions=conditions
        )
    if as_json:
        rows = [
            ({"scenario": one.settings.scenario} if len(found) > 1 else {}) | row
            for one in found
            for row in one.summary().to_dicts()
        ]
        print_json(rows)
    else:
        for one in found:
            print_summary(one, [each for each in one.settings.main_measures if not each.is_long])
        for words in {f"{left}: {reason}": None for each in plans for left, reason in each.left_out.items()}:
            remark(f"not compared: {words}")
    remark(f"report: {folder / 'report.html'}")
