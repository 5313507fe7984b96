"""``fedroster simulate``: rounds without training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedroster.cli.command import command
from fedroster.cli.options import JsonOption, SeedsOption, SetOption, Workplace, complete, read_seeds
from fedroster.cli.terminal import print_json, print_summary, progress
from fedroster.core.errors import ConfigurationError


@command()
def simulate(
    scenario: Annotated[
        str, typer.Argument(help="Scenario, such as rbcs-f/table-1.", autocompletion=complete("catalogue.SCENARIOS"))
    ],
    *,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:P=V,...]",
            help="Policy; may be repeated. If not given, random and two or three that suit the scenario.",
            autocompletion=complete("catalogue.POLICIES"),
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds.")] = 500,
    seeds: SeedsOption = "0",
    set_: SetOption = None,
    record: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep the log of each run there, as `fedroster log` and `replay` read it."),
    ] = None,
    workplace: Workplace,
    as_json: JsonOption = False,
) -> None:
    """Play rounds without training; print what each policy costs and which clients take part."""
    from fedroster.catalogue import parse_settings
    from fedroster.lab.compare.run import simulate_many

    if record is not None and workplace.engine == "ray":
        raise ConfigurationError("--record keeps logs on this machine; expected --engine local with it")
    numbers, settings = read_seeds(seeds), parse_settings(set_ or [])
    with progress("simulating", kept=lambda: "simulate keeps no runs; run the same command to start again") as advance:
        found = simulate_many(
            policy or (),
            scenario,
            seeds=numbers,
            rounds=rounds,
            settings=settings,
            progress=advance,
            record=record,
            workers=workplace.workers,
            engine=workplace.open(),
        )
    if not as_json:
        print_summary(found, found.settings.simulated_measures)
        return
    first = {"scenario": found.settings.scenario}
    more = {"settings": dict(found.settings.settings), "rounds": rounds}
    rows = found.frame.drop("decision_s").to_dicts()  # the rest is the same on every machine
    print_json([{**first, "policy": row.pop("policy"), "seed": row.pop("seed"), **more, **row} for row in rows])
