"""From the tables of a comparison to its summary, its figures and its page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from fedroster.catalogue import REFERENCE
from fedroster.study.compare.contrasts import TEST_NOTE, Contrast, file_of
from fedroster.study.compare.figures import panel_of
from fedroster.study.compare.tables import (
    DECISION,
    LAST,
    LEAST_SERVED,
    ROUND_TIME,
    TIME_TO_TARGET,
    UPDATES,
    Measure,
    Settings,
    Values,
)
from fedroster.study.figures import MANY
from fedroster.study.measures import LEAST_CHANCES
from fedroster.study.report import Picture, Report, Section, Table


def page_of(
    values: Values,
    settings: Settings,
    summary: pl.DataFrame,
    tests: Mapping[str, Sequence[Contrast]],
    pictures: Mapping[str, Picture],
    clients: int,
) -> Report:
    """The page of a comparison in one scenario."""
    first = {
        "scenario": settings.scenario,
        "overridden": ", ".join(f"{name}={value}" for name, value in settings.settings.items()) or "nothing",
        "policies": ", ".join(settings.policies),
        "rounds": settings.rounds,
        "seeds": ", ".join(map(str, settings.seeds)),
        "beta": settings.rate,
    }
    return Report(
        f"Who trains? Policies compared on {settings.scenario}",
        list(_lead(values, settings, tests, clients)),
        list(_sections(values, settings, summary, tests, pictures)),
        settings.command,
        details_of(first, settings.task, settings.machine),
        str(settings.machine.get("fedroster", "")),
    )


# -------------------------------------------------------------------- tables


def summary_table(summary: pl.DataFrame, measures: Sequence[Measure]) -> Table:
    """Measures of the summary as text, for the terminal and the pages."""
    rows = [(row["policy"], *(measured(row, measure) for measure in measures)) for row in summary.iter_rows(named=True)]
    return Table(("policy", *(measure.heading for measure in measures)), rows, text=("policy",))


def measured(row: Mapping[str, Any], measure: Measure) -> str:
    """A policy's mean with half of its interval, as text."""
    mean = row[measure.name]
    if mean is None:
        reached = measure == TIME_TO_TARGET
        return f"reached by {row['reached_target']} of {row['seeds']}" if reached else "-"
    mean, half = measure.scale * mean, measure.scale * (row[f"{measure.name}_high"] - mean)
    digits = measure.digits
    if measure == ROUND_TIME:
        digits = 1 if mean >= 100.0 else 2
    elif measure == DECISION:
        digits = 0 if mean >= 100.0 else 1 if mean >= 10.0 else 2
    return f"{mean:.{digits}f}" + (f" ± {half:.{digits}f}" if row["seeds"] > 1 else "")


def _tests_table(tests: Sequence[Contrast], measures: Sequence[Measure]) -> Table:
    """A row for each policy, a column for each measure."""
    tested = [measure for measure in measures if any(test.measure == measure for test in tests)]
    cells = {(test.policy, test.measure): test.shown() for test in tests}
    rows = [
        (policy, *(cells.get((policy, measure), "-") for measure in tested))
        for policy in dict.fromkeys(test.policy for test in tests)
    ]
    return Table(("policy", *(measure.tested for measure in tested)), rows, text=("policy",))


# -------------------------------------------------------------------- text


def joined(names: Sequence[str]) -> str:
    """Names as a list in a sentence."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def details_of(first: Mapping[str, Any], task: Mapping[str, Any] | None, machine: Mapping[str, Any]) -> dict[str, Any]:
    """What the numbers of a page depend on."""
    trained = {f"task: {name}": value for name, value in (task or {}).items() if value is not None}
    return {**first, **trained, **machine}


_WON = {
    ROUND_TIME: "shorter rounds than {base}",
    UPDATES: "more updates in time than {base}",
    TIME_TO_TARGET: "a shorter time to the target than {base}",
    LEAST_SERVED: "a larger share for the least served clients than {base}",
}


def _lead(values: Values, settings: Settings, tests: Mapping[str, Sequence[Contrast]], clients: int) -> Iterable[str]:
    """What a reader in a hurry should know."""
    what = "Rounds without training" if settings.task is None else f"Federated training, task {settings.task['name']}"
    yield (
        f"{what}: {len(values)} {'policy' if len(values) == 1 else 'policies'}, {clients:,} clients, "
        f"{settings.rounds} rounds, {len(settings.seeds)} seeds, scenario {settings.scenario}."
    )
    for base, found in tests.items():
        if own := [test.in_words() for test in found if test.policy == settings.focus]:
            yield f"{settings.focus} against {base}: {', '.join(own)}."
    measure = settings.front_measure
    points = panel_of(values, settings, measure).points
    front = sorted(
        (text for text in points if points[text].on_front),
        key=lambda text: points[text].x.mean,
        reverse=not measure.less,
    )
    if len(values) > 1:
        what, order = ("speed", "fastest") if measure.less else ("updates in time", "most updates")
        yield (
            f"Best trade-offs between {what} and fairness, {order} first, by the means: {joined(front)}. (Policies "
            "that know the truth are not counted.)"
        )
    for base, found in tests.items():
        for won, words in _WON.items():
            better = [test.policy for test in found if test.measure == won and test.verdict == "better"]
            if better:
                yield f"Significantly {words.format(base=base)}: {joined(better)}."
    if len(values) <= MANY:
        for test in tests.get(REFERENCE, ()):
            if test.measure == TIME_TO_TARGET and np.isfinite(values[test.policy][TIME_TO_TARGET.name]).all():
                shown = test.difference
                yield (
                    f"{test.policy} reaches {settings.target_accuracy:.0%} in {shown.mean:.2f} times {REFERENCE}'s "
                    f"simulated time (95 % interval {shown.low:.2f} to {shown.high:.2f}, paired by seed)."
                )


def notes_of(settings: Settings) -> list[str]:
    """What the columns of the summary mean."""
    notes = []
    if settings.task is not None:
        notes.append(
            f"Accuracy is the mean over the last {min(LAST, settings.rounds)} rounds. Time to target is the simulated "
            f"time until the accuracy first reaches {settings.target_accuracy:.0%}."
        )
    if settings.has_prices:
        words = ["Updates: updates that are in time at any edge server in an edge round (Qu et al. 2021, Eq. 7)."]
        if settings.share_of_yardstick:
            best = settings.yardstick
            words.append(f"Of {best}: as a share of {best}'s updates with the same seed. First fifth: of the rounds.")
        if settings.optimal in settings.policies:
            words.append(f"Regret: how many more updates {settings.optimal} has over all rounds.")
        words.append("Budget used: what the cohorts cost, as a share of all servers' budgets.")
        notes.append(" ".join(words))
    payable = " at a price that a server can pay" if settings.has_prices else ""
    words = [
        f"Least served: of the clients that were available{payable} in at least {LEAST_CHANCES} rounds, the tenth that "
        "was chosen in the smallest share of these rounds; the number is this share. Lowest: the smallest share of a "
        "single client."
    ]
    if settings.promises_rates:
        words.append(
            f"Got beta: share of the clients that were chosen in at least {settings.rate:.3g} of all rounds. A client "
            "that was available less often counts if it was chosen every time."
        )
    words.append(
        "Decision: time that the policy takes to decide and to learn in a round, without polls, as a median over "
        "rounds. It was measured on this machine during the runs, with whatever else ran there."
    )
    notes.append(" ".join(words))
    notes.append(
        "Bands in figures, and numbers behind ± and in brackets, are 95 % intervals (Student's t over "
        f"{len(settings.seeds)} seeds). Every policy meets the same devices, partitions and first models."
    )
    aided = [text for text in settings.policies if text in settings.omniscient]
    if aided:
        notes.append(f"Possible in a simulation only, because they know the network's true times: {joined(aided)}.")
    return notes


def _sections(
    values: Values,
    settings: Settings,
    summary: pl.DataFrame,
    tests: Mapping[str, Sequence[Contrast]],
    pictures: Mapping[str, Picture],
) -> Iterable[Section]:
    def shown(*names: str) -> list[Picture]:
        return [pictures[name] for name in names if name in pictures]

    missing = [t for t, own in values.items() if not np.isfinite(own.get("time_to_target_s", np.zeros(1))).all()]
    grey = [f"Grey: {REFERENCE}."] if len(values) > MANY and REFERENCE in values else []
    yield Section(
        "Updates against fairness" if settings.has_prices else "Time against fairness",
        text=[f"No point for the time to the target, as some seeds did not reach it: {joined(missing)}."]
        if missing
        else [],
        figures=shown("pareto-round", "pareto-updates", "pareto-target"),
        notes=[
            f"Up and {'right' if settings.has_prices else 'left'} is better. Bars: 95 % intervals over seeds. Line: "
            "the Pareto front of the means."
        ],
    )
    yield Section("Summary", table=summary_table(summary, settings.main_measures), notes=notes_of(settings))
    for base, found in tests.items():
        if found:
            note = (
                f"Differences from {base} with the same seed. {TEST_NOTE} All numbers: "
                f"`{file_of(base, settings.against)}`, which the command below writes."
            )
            yield Section(f"Against {base}", table=_tests_table(found, settings.tested_measures), notes=[note])
    if settings.has_prices:
        yield Section("Learning", figures=shown("updates"), notes=grey)
    if settings.task is not None:
        yield Section("Accuracy", figures=shown("accuracy-per-round", "accuracy-per-second"), notes=grey)
    owed = (
        "The virtual queues (Huang et al. 2021, Eq. 6) and the rates are measured at beta = "
        f"{settings.rate:g} for every policy, whether it keeps queues or not."
    )
    yield Section(
        "Fairness",
        text=[owed] if settings.promises_rates else [],
        figures=shown("queues", "participation"),
        table=summary_table(summary, settings.fairness_measures),
        notes=grey,
    )
    yield Section("Cost of a decision", figures=shown("decisions"))
    if settings.left_out:
        table = Table(("policy", "why"), list(settings.left_out.items()), text=("policy", "why"))
        yield Section("Policies that are not compared", table=table)
