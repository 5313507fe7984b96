"""``fedroster simulate``: rounds without training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedroster.cli.command import command
from fedroster.cli.options import JsonOption, SeedsOption, SetOption, Workplace, read_seeds
from fedroster.cli.terminal import interrupted, print_json, print_table, progress, say_when_compiling

if TYPE_CHECKING:
    from fedroster.catalogue import Entry
    from fedroster.study.trial import Trial

_COSTS = {"mean_round_time_s": "round, s", "mean_cohort_size": "cohort"}
_MEASURES = _COSTS | {
    "min_participation_rate": "lowest",
    "max_participation_rate": "highest",
    "jain_index": "Jain",
    "final_mean_backlog": "backlog",
}
_UTILITY_MEASURES = {
    "cumulative_utility": "utility",
    "regret": "regret",
    "explore_share": "exploring",
    "budget_used": "spent",
} | _COSTS


@command()
def simulate(
    scenario: Annotated[str, typer.Argument(help="Scenario, such as rbcs-f/table-1.")],
    *,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:P=V,...]",
            help="Policy; may be repeated. If not given, random and two or three that suit the scenario.",
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds.")] = 500,
    seeds: SeedsOption = "0",
    set_: SetOption = None,
    workplace: Workplace,
    as_json: JsonOption = False,
) -> None:
    """Play rounds without training; print what each policy costs and which clients take part."""
    from fedroster.catalogue import find_scenario, make_scenario, parse_settings
    from fedroster.study.rehearsal import rehearse
    from fedroster.study.trial import Trial

    settings, entry, numbers = parse_settings(set_ or []), find_scenario(scenario), read_seeds(seeds)
    chosen = list(dict.fromkeys(policy or entry.policies))
    environment = make_scenario(scenario, settings)
    say_when_compiling()
    for text in chosen:
        rehearse(text, scenario, environment)
    # The regret is measured against the optimal policy, which is played too, once for each seed.
    extra = [entry.optimal] if entry.optimal and entry.optimal not in chosen else []
    trials = [Trial(scenario, text, seed, rounds, settings) for text in (*chosen, *extra) for seed in numbers]
    results = [row for row in _play(trials, entry, workplace) if row["policy"] in chosen]
    if as_json:
        print_json(results)
    else:
        _print(results, f"{scenario}, {rounds} rounds, seeds {seeds}")


def _play(trials: list[Trial], entry: Entry, workplace: Workplace) -> list[dict[str, Any]]:
    """Run the trials; what is printed of each."""
    from fedroster.study.run import run_trials

    engine = workplace.open()
    summaries: list[dict[str, Any]] = [{} for _ in trials]
    with (
        interrupted(lambda: "simulate keeps no runs; run the same command to start again"),
        progress("simulating", len(trials)) as advance,
    ):
        advance(0)
        for finished, done in enumerate(run_trials(trials, workers=workplace.workers, engine=engine), start=1):
            summaries[done.index] = done.run.summary()
            advance(finished)
    best = {
        trial.seed: summary["cumulative_utility"]
        for trial, summary in zip(trials, summaries, strict=True)
        if trial.policy == entry.optimal
    }
    return [
        {
            "scenario": trial.scenario,
            "scenario_version": entry.version,
            "policy": trial.policy,
            "seed": trial.seed,
            "settings": dict(trial.settings),
            **summary,
            **({"regret": best[trial.seed] - summary["cumulative_utility"]} if best else {}),
        }
        for trial, summary in zip(trials, summaries, strict=True)
    ]


def _print(results: list[dict[str, Any]], title: str) -> None:
    from fedroster.study.statistics import mean_interval

    measures = _UTILITY_MEASURES if "regret" in results[0] else _MEASURES
    rows = []
    for policy in dict.fromkeys(result["policy"] for result in results):
        own = [result for result in results if result["policy"] == policy]
        rows.append([policy, *(_with_interval(mean_interval([row[name] for row in own])) for name in measures)])
    headings = [*measures.values()]
    print_table(["policy", *headings], rows, title=title, right=headings, whole=["policy", *headings])


def _with_interval(interval: Any) -> str:
    half = interval.high - interval.mean
    return f"{interval.mean:.3g}" if half == 0.0 else f"{interval.mean:.3g} ± {half:.2g}"
