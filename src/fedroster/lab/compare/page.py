"""From the tables of a comparison to its summary, its figures and its page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from fedroster.catalogue import REFERENCE, make_policy
from fedroster.lab.compare.contrasts import TEST_NOTE, Contrast, base_of, headline_measures
from fedroster.lab.compare.figures import points_of
from fedroster.lab.compare.tables import (
    ACCURACY,
    DECISION,
    LEAST_SERVED,
    ROUND_TIME,
    UPDATES,
    Measure,
    Settings,
    Values,
    summary_table,
)
from fedroster.lab.pages.charts import MANY
from fedroster.lab.pages.pareto import pareto_front
from fedroster.lab.pages.report import Number, Picture, Report, Section, Table
from fedroster.lab.statistics import FEWEST, mean_interval
from fedroster.parts import counted, wants_losses
from fedroster.types import FloatArray


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
    headline, numbers = headline_of(values, settings, tests)
    told = {settings.focus, settings.yardstick, *settings.against, *_front(values, settings)}
    return Report(
        f"Policies compared on {settings.scenario}",
        list(_lead(values, settings, clients)),
        list(_sections(values, settings, summary, tests, pictures)),
        settings.command,
        details_of(first, settings.task, settings.machine),
        str(settings.machine.get("fedroster", "")),
        headline,
        numbers,
        [text for text in values if text not in told] if len(values) > MANY else [],
    )


# -------------------------------------------------------------------- tables


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


# ----------------------------------------------------------------- headline


_BETTER_WORSE = {
    ROUND_TIME: ("shorter rounds", "longer rounds"),
    UPDATES: ("more updates in time", "fewer updates in time"),
    LEAST_SERVED: ("fairer", "less fair"),
    ACCURACY: ("more accurate", "less accurate"),
}


def _front(values: Values, settings: Settings) -> list[str]:
    """The policies of the best trade-offs, the best cost or yield first."""
    measure = settings.front_measure
    return pareto_front(points_of(values, measure), more_x=not measure.less, aided=settings.omniscient)


def headline_of(
    values: Values, settings: Settings, tests: Mapping[str, Sequence[Contrast]]
) -> tuple[str, list[Number]]:
    """What the policy in focus does against the reference, in a sentence and three numbers; nothing without rivals.

    If another that is shown to be better than the reference has a better mean, the sentence says at which price.
    """
    focus, base = settings.focus, base_of(settings)
    if not base:
        return "", []
    said, numbers = _against(focus, base, values, settings, tests)
    front = settings.front_measure
    shown = [test for test in tests.get(base, ()) if test.measure == front and test.verdict.startswith("better")]
    found = {test.policy: test.difference.mean for test in shown if test.policy not in settings.omniscient}
    best = (min if front.less else max)(found, key=found.__getitem__, default=focus)
    if best != focus:
        words, _ = _against(best, base, values, settings, tests)
        said += f"; {'fastest' if front.less else 'most updates'} is {words}"
    if len(numbers) < 3:
        cost = mean_interval(values[focus][DECISION.name])
        numbers.append(Number(f"{1e3 * cost.mean:.2g} ms", "for a decision", "median over rounds, on this machine"))
    return said, numbers


def _against(
    policy: str, base: str, values: Values, settings: Settings, tests: Mapping[str, Sequence[Contrast]]
) -> tuple[str, list[Number]]:
    """A policy against another, in words and numbers."""
    shown = headline_measures(settings)
    found = {test.measure: test for test in tests.get(base, ()) if test.policy == policy}
    numbers = [_number(measure, values[policy], values[base], base, found.get(measure)) for measure in shown]
    words = [_words(measure, found.get(measure), numbers[place]) for place, measure in enumerate(shown)]
    words[0] += f" than {base}" if " % " in words[0] else f" against {base}"
    return f"{policy}: {', '.join(filter(None, words))}", numbers


def _number(
    measure: Measure, mine: Mapping[str, FloatArray], theirs: Mapping[str, FloatArray], base: str, test: Contrast | None
) -> Number:
    means = (float(mine[measure.name].mean()), float(theirs[measure.name].mean()))
    unit = measure.heading.partition(", ")[2] or "a round"
    note = " against ".join(f"{measure.scale * mean:.{measure.digits}f} {unit}" for mean in means) + f" of {base}"
    if test is None:
        size = means[0] / means[1] if measure.is_ratio and means[1] else means[0] - means[1]
        word, tone = "not tested", ""
    else:
        size = test.difference.mean
        word = ": ".join(filter(None, (test.verdict, test.needed)))
        tone = "holds" if word.startswith("better") else "fails" if word.startswith("worse") else ""
    value = f"{100.0 * (size - 1.0):+.0f} %" if measure.is_ratio else f"{100.0 * size:+.1f} points"
    return Number(value.replace("-", "\u2212"), _named(measure), f"{note}; {word}", tone)


def _named(measure: Measure) -> str:
    """A measure in a word or two."""
    return measure.tested.partition(", ")[0]


def _words(measure: Measure, test: Contrast | None, number: Number) -> str:
    if measure not in _BETTER_WORSE or (test is None and measure not in (ROUND_TIME, UPDATES)):
        return ""
    if test is None or test.verdict in ("alike", "undecided"):
        return f"{_named(measure)} {'undecided' if test is None else test.verdict}"
    size = f"{number.value[1:]} " if measure.is_ratio else ""
    word = _BETTER_WORSE[measure][test.verdict.startswith("worse")]
    return f"{size}{word}{' (small)' * test.verdict.endswith('small')}"


def _lead(values: Values, settings: Settings, clients: int) -> Iterable[str]:
    """What was played, and the best trade-offs."""
    what = "Rounds without training" if settings.task is None else f"Federated training, task {settings.task['name']}"
    if settings.task is not None:
        what += ", with an update memory" * bool(settings.task.get("memory"))
        what += ", in free places (a round is one choice)" * bool(settings.task.get("free_places"))
    yield (
        f"{what}: {counted(len(values), 'policy')}, {counted(clients, 'client')}, "
        f"{counted(settings.rounds, 'round')}, {counted(len(settings.seeds), 'seed')}, scenario {settings.scenario}."
    )
    if len(settings.seeds) < FEWEST:
        yield f"{counted(len(settings.seeds), 'seed')} can decide nothing, whatever comes out: take {FEWEST} or more."
    if settings.task is None and (blind := [text for text in values if wants_losses(make_policy(text))]):
        yield f"These choose by losses, which there are none of without training, so blindly: {joined(blind)}."
    measure = settings.front_measure
    if len(values) > 1:
        what, order = ("speed", "fastest") if measure.less else ("updates in time", "most updates")
        yield (
            f"Best trade-offs between {what} and fairness, {order} first, by the means: "
            f"{joined(_front(values, settings))}. (Policies that know the truth are not counted.)"
        )


def notes_of(settings: Settings) -> list[str]:
    """What the columns of the summary mean."""
    columns = (f"{one.heading.partition(', ')[0].capitalize()}: {one.about}." for one in settings.main_measures)
    notes = [
        " ".join(columns),
        "Bands in figures, and numbers behind ± and in brackets, are 95 % intervals (Student's t over "
        f"{counted(len(settings.seeds), 'seed')}). Every policy meets the same devices, partitions and first models.",
    ]
    if aided := [text for text in settings.policies if text in settings.omniscient]:
        notes.append(f"Possible in a simulation only, because they know the network's true times: {joined(aided)}.")
    return notes


def _sections(
    values: Values,
    settings: Settings,
    summary: pl.DataFrame,
    tests: Mapping[str, Sequence[Contrast]],
    pictures: Mapping[str, Picture],
) -> Iterable[Section]:
    def shown(**names: str) -> list[Picture]:
        """Pictures, which are alternatives where each has a word."""
        there = {name.replace("_", "-"): tab for name, tab in names.items() if name.replace("_", "-") in pictures}
        return [replace(pictures[name], tab=tab if len(there) > 1 else "") for name, tab in there.items()]

    missing = [t for t, own in values.items() if not np.isfinite(own.get("time_to_target_s", np.zeros(1))).all()]
    grey = [f"Grey: {REFERENCE}."] if len(values) > MANY and REFERENCE in values else []
    yield Section(
        "Updates against fairness" if settings.has_prices else "Time against fairness",
        text=[f"No point for the time to the target, as some seeds did not reach it: {joined(missing)}."]
        if missing
        else [],
        figures=shown(pareto_round="Time of a round", pareto_updates="Updates", pareto_target="Time to target"),
        notes=[
            f"Up and {'right' if settings.has_prices else 'left'} is better. Bars: 95 % intervals over seeds. Line: "
            "the Pareto front of the means."
        ],
    )
    yield Section("Summary", table=summary_table(summary, settings.main_measures))
    if settings.task is not None:
        figures = shown(accuracy_per_round="By round", accuracy_per_second="By simulated time")
        yield Section("Accuracy", figures=figures, notes=grey, folded=True)
    for base in settings.against:
        if found := tests[base]:
            note = (
                f"Differences from {base} with the same seed. {TEST_NOTE} All numbers: `contrasts.csv`, which the "
                "command below writes."
            )
            table = _tests_table(found, settings.tested_measures)
            yield Section(f"Against {base}", table=table, notes=[note], folded=True)
    if settings.has_prices and "updates" in pictures:
        yield Section("Learning", figures=shown(updates=""), notes=grey, folded=True)
    owed = (
        "The virtual queues (Huang et al. 2021, Eq. 6) and the rates are measured at beta = "
        f"{settings.rate:g} for every policy, whether it keeps queues or not."
    )
    fairness = [*shown(queues=""), *shown(participation="")]
    yield Section(
        "Fairness",
        text=[owed] if settings.promises_rates else [],
        figures=fairness,
        table=summary_table(summary, settings.fairness_measures),
        notes=grey if fairness else [],
        folded=True,
    )
    if settings.left_out:
        table = Table(("policy", "why"), list(settings.left_out.items()), text=("policy", "why"))
        yield Section("Policies that are not compared", table=table, folded=True)
    yield Section("How to read the tables", notes_of(settings), folded=True)
