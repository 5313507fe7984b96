"""``fedroster reproduce``: a paper's figures and claims."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedroster.cli.command import command
from fedroster.cli.options import SeedsOption, SetOption, Training, Workplace, check_folder, read_seeds, this_command
from fedroster.cli.terminal import kept_runs, print_table, progress, remark
from fedroster.core.errors import ConfigurationError


@command()
def reproduce(
    paper: Annotated[str, typer.Argument(help="Paper, such as rbcs-f; an unknown name lists them.")],
    *,
    figure: Annotated[
        list[str] | None,
        typer.Option(
            help="Figure, such as 2; may be repeated. All if not given; an unknown name lists them, with --scale also "
            "those with training, which need it.",
        ),
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=10, help="Rounds of each run; the paper's if not given.")] = None,
    seeds: SeedsOption = "0-9",
    set_: SetOption = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:P=V,...", help="Change parameters of a policy wherever it plays; may be repeated."),
    ] = None,
    scale: Annotated[
        str | None, typer.Option(help="With the training experiments, in this size: smoke, cpu or full.")
    ] = None,
    training_seeds: Annotated[str | None, typer.Option(help="Seeds of runs with training, with --scale.")] = None,
    folder: Annotated[Path | None, typer.Option("--out", help="Folder; runs/reproduce/PAPER if not given.")] = None,
    tables: Annotated[bool, typer.Option("--tables", help="Write the data of every figure, too.")] = False,
    width: Annotated[
        float | None, typer.Option(min=150.0, max=1e4, help="Pictures for a paper, too, as PDF in this width, points.")
    ] = None,
    data_only: Annotated[bool, typer.Option("--data-only", help="Tables only, no pictures and no page.")] = False,
    training: Training,
    workplace: Workplace,
) -> None:
    """Make a paper's figures again, with intervals, and judge its claims."""
    from rich.text import Text

    from fedroster.catalogue import parse_settings
    from fedroster.lab.verdicts.reproduce import Order
    from fedroster.lab.verdicts.reproduce import reproduce as make

    if training_seeds is not None and scale is None:
        raise ConfigurationError(
            "--training-seeds is given, and --scale is not; expected --scale smoke, cpu or full with it"
        )
    target = folder or Path("runs/reproduce") / paper
    check_folder(target)
    numbers = read_seeds(seeds)
    training_numbers = None if training_seeds is None else read_seeds(training_seeds)
    changed = parse_settings(set_ or [])
    engine, conditions = workplace.open(), training.conditions()
    what = "training" if scale else "simulating"
    with progress(what, kept=lambda: kept_runs(target)) as advance:
        verdicts = make(
            Order(paper, numbers, figure or (), rounds, scale, training_numbers, changed, policy or ()),
            target,
            command=this_command(),
            pages=not data_only,
            tables=tables or data_only,
            width=width,
            workers=workplace.workers,
            engine=engine,
            conditions=conditions,
            progress=lambda done: advance(100 * done, 100),
        )
    styles = {"holds": "green", "contradicted": "red"}
    rows = [
        (one.claim.source, one.claim.statement, Text(one.word, style=styles.get(one.word, "")), one.why)
        for one in verdicts
    ]
    if rows:
        print_table(("where", "claim", "verdict", "why"), rows, title="Claims")
    remark(f"written to {target}")
