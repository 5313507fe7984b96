"""From the tables of a comparison to its summary, its figures and its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedroster.study.compare.contrasts import RANDOM, Contrast, contrasts_against, file_of
from fedroster.study.compare.figures import figures_of, panel_of
from fedroster.study.compare.tables import (
    BUDGET,
    DECISION,
    EARLY_OF_ORACLE,
    LAST,
    LEAST_SERVED,
    LOWEST_SERVED,
    ORACLE,
    ROUND_TIME,
    TIME_TO_TARGET,
    UPDATES,
    Measure,
    Runs,
    Settings,
    Values,
    fairness_measures,
    front_measure,
    main_measures,
    promises_rates,
    read_runs,
    summary_of,
    tested_measures,
    values_of,
    values_table,
)
from fedroster.study.figures import MANY, save_png
from fedroster.study.measures import LEAST_CHANCES
from fedroster.study.report import Picture, Report, Section, Table, picture, write_markdown, write_report
from fedroster.study.statistics import LEVEL
from fedroster.study.store import write_table


def render(folder: Path) -> pl.DataFrame:
    """Make summary, tests, figures and page again from the tables in a folder.

    Args:
        folder: A folder that :func:`~fedroster.study.compare.run.compare` wrote.

    Returns:
        The summary, with a row for each policy.

    Raises:
        InvalidInputError: If the folder does not hold a complete comparison.
    """
    runs, settings = read_runs(folder)
    values = values_of(runs, settings)
    summary = summary_of(values, settings)
    tests = {base: contrasts_against(base, values, settings) for base in settings["against"]}
    write_table(values_table(values, settings), folder / "measures.csv")
    write_table(summary, folder / "summary.csv")
    written = set()
    for base, found in tests.items():
        if found:
            written.add(file_of(base, settings["against"]))
            write_table(pl.DataFrame([test.row() for test in found]), folder / file_of(base, settings["against"]))
    for stale in folder.glob("against-*.csv"):
        if stale.name not in written:
            stale.unlink()
    pictures = {}
    for name, (figure, label) in figures_of(runs, values, settings).items():
        save_png(figure, folder / f"{name}.png")
        pictures[name] = picture(figure, label, f"{name}.png")
    page = _page(runs, values, settings, summary, tests, pictures)
    write_report(page, folder / "report.html")
    write_markdown(page, folder / "index.md")
    return summary


# -------------------------------------------------------------------- tables


def summary_table(
    summary: pl.DataFrame, settings: Settings, *, is_brief: bool = False
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings and rows of the summary as text, for the terminal and the page.

    Args:
        summary: What :func:`render` returned.
        settings: Of the comparison.
        is_brief: Only what fits a terminal.
    """
    measures = main_measures(settings)
    return _columns(summary, [one for one in measures if not (is_brief and one in _LONG)])


_LONG = (EARLY_OF_ORACLE, BUDGET, LOWEST_SERVED)


def _columns(summary: pl.DataFrame, measures: Sequence[Measure]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    rows = [(row["policy"], *(measured(row, measure) for measure in measures)) for row in summary.iter_rows(named=True)]
    return ("policy", *(measure.heading for measure in measures)), rows


def measured(row: Mapping[str, Any], measure: Measure) -> str:
    """A policy's mean with half of its interval, as text.

    Args:
        row: Of the summary.
        measure: What is shown.
    """
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


_WON = {
    ROUND_TIME: "shorter rounds than {base}",
    UPDATES: "more updates in time than {base}",
    TIME_TO_TARGET: "a shorter time to the target than {base}",
    LEAST_SERVED: "a better deal than {base} for the least served",
}


def _findings(values: Values, settings: Settings, tests: Mapping[str, Sequence[Contrast]]) -> list[str]:
    """What a reader in a hurry should know."""
    sentences = []
    measure = front_measure(settings)
    points = panel_of(values, settings, measure).points
    front = sorted(
        (text for text in points if points[text].on_front),
        key=lambda text: points[text].x.mean,
        reverse=not measure.less,
    )
    if len(values) > 1:
        what = "updates in time" if measure == UPDATES else "round time"
        sentences.append(
            f"By {what} and by how the least served fare, no other policy beats {joined(front)} "
            f"(in order of {what}; means, and without those who know the truth)."
        )
    for base, found in tests.items():
        for won, words in _WON.items():
            better = [test.policy for test in found if test.measure == won and test.verdict == "better"]
            if better:
                sentences.append(f"Shown to have {words.format(base=base)}: {joined(better)}.")
    if settings["task"] is not None and len(values) <= MANY:
        for test in tests.get(RANDOM, ()):
            if test.measure == TIME_TO_TARGET:
                shown = test.difference
                sentences.append(
                    f"{test.policy} reaches {settings['target_accuracy']:.0%} in {shown.mean:.2f} times random's "
                    f"simulated time (95 % interval {shown.low:.2f} to {shown.high:.2f}, paired by seed)."
                )
    return sentences


def notes_of(settings: Settings) -> list[str]:
    """What the columns of the summary mean.

    Args:
        settings: Of the comparison.
    """
    notes = []
    shown = main_measures(settings)
    if settings["task"] is not None:
        last = min(LAST, settings["rounds"])
        notes.append(
            f"Accuracy is the mean over the last {last} rounds; time to target is simulated time until "
            f"{settings['target_accuracy']:.0%} is first reached."
        )
    if settings["has_prices"]:
        words = ["Updates: those that are in time at any edge server in an edge round, the utility of the COCS paper."]
        if any(measure.name == "share_of_oracle_p" for measure in shown):
            words.append(f"Of {ORACLE}: as a share of {ORACLE}'s with the same seed; first fifth: of its rounds.")
        if any(measure.name == "regret" for measure in shown):
            words.append(f"Regret: updates that {settings['optimal']} has more, over all rounds.")
        words.append("Budget used: what the cohorts cost, of what all servers may spend.")
        notes.append(" ".join(words))
    beta = settings["rate"]
    got = (
        f" Got beta: clients that were chosen in at least beta = {beta:g} of all rounds or, if they were there for "
        "fewer, in all of these."
        if promises_rates(settings)
        else ""
    )
    payable = " at a price that a server can pay" if settings["has_prices"] else ""
    notes.append(
        f"Least served: of the clients that were available{payable} in at least {LEAST_CHANCES} rounds, the tenth that "
        f"was chosen in the smallest share of these; this share. Lowest: the least share, of one client.{got} "
        "Decision: select, commit and update of a round, median over rounds, measured on this machine while the runs "
        "were made, so other work on it is in there; polls are not."
    )
    notes.append(
        f"Bands in figures, and numbers behind ± and in brackets: 95 % intervals, Student's t over "
        f"{len(settings['seeds'])} seeds. Every policy "
        "meets the same devices, partitions and first models."
    )
    aided = [text for text in settings["policies"] if text in settings["omniscient"]]
    if aided:
        notes.append(f"{joined(aided)}: in a simulation only, as they know the network's true times.")
    return notes


def _test_note(base: str, file: str) -> str:
    return (
        f"Differences from {base} with the same seed: ratios of times and updates, percentage points of shares; 95 % "
        "intervals. Two-sided paired t tests over seeds, with Holm's correction over all tests of this table: better "
        f"and worse are wrong with probability below {LEVEL:.0%} for all together. Where neither is said, these seeds "
        f"do not tell. Intervals are not corrected. All numbers and p-values: `{file}`, which the command below writes."
    )


def _page(
    runs: Mapping[str, Runs],
    values: Values,
    settings: Settings,
    summary: pl.DataFrame,
    tests: Mapping[str, Sequence[Contrast]],
    pictures: Mapping[str, Picture],
) -> Report:
    clients = next(iter(runs.values())).chosen.shape[1]
    what = (
        "Rounds without training"
        if settings["task"] is None
        else f"Federated training, task {settings['task']['name']}"
    )
    lead = [
        f"{what}: {len(runs)} {'policy' if len(runs) == 1 else 'policies'}, {clients:,} clients, "
        f"{settings['rounds']} rounds, {len(settings['seeds'])} seeds, scenario {settings['scenario']}.",
        *_findings(values, settings, tests),
    ]

    def shown(*names: str) -> list[Picture]:
        return [pictures[name] for name in names if name in pictures]

    trade = []
    if settings["task"] is not None:
        missing = [text for text, own in values.items() if not np.isfinite(own["time_to_target_s"]).all()]
        if missing:
            trade.append(f"Not every seed reached the target, so without a point in that picture: {joined(missing)}.")
    better = "Up and right is better" if settings["has_prices"] else "Down and right is worse"
    grey = ["Grey: random."] if len(runs) > MANY and RANDOM in runs else []
    columns, rows = summary_table(summary, settings)
    sections = [
        Section(
            "Updates against fairness" if settings["has_prices"] else "Time against fairness",
            text=trade,
            figures=shown("pareto-round", "pareto-updates", "pareto-target"),
            notes=[f"{better}. Bars: 95 % intervals over seeds. Line: the Pareto front of the means."],
        ),
        Section("Summary", table=Table(columns, rows, text=("policy",)), notes=notes_of(settings)),
    ]
    for base, found in tests.items():
        if found:
            note = _test_note(base, file_of(base, settings["against"]))
            table = _tests_table(found, tested_measures(settings))
            sections.append(Section(f"Against {base}", table=table, notes=[note]))
    if settings["has_prices"]:
        sections.append(Section("Learning", figures=shown("updates"), notes=grey))
    if settings["task"] is not None:
        figures = shown("accuracy-per-round", "accuracy-per-second")
        sections.append(Section("Accuracy", figures=figures, notes=grey))
    owed = (
        f"The virtual queues (6) and the rates are measured at beta = {settings['rate']:g} for every policy, whether "
        "it keeps queues or not."
    )
    columns, rows = _columns(summary, fairness_measures(settings))
    sections.append(
        Section(
            "Fairness",
            text=[owed] if promises_rates(settings) else [],
            figures=shown("queues", "participation"),
            table=Table(columns, rows, text=("policy",)),
            notes=grey,
        )
    )
    sections.append(Section("Cost of a decision", figures=shown("decisions")))
    if settings["left_out"]:
        table = Table(("policy", "why"), list(settings["left_out"].items()), text=("policy", "why"))
        sections.append(Section("Policies that are not compared", table=table))
    task = settings["task"] or {}
    details = {
        "scenario": settings["scenario"],
        "overridden": ", ".join(f"{name}={value}" for name, value in settings["settings"].items()) or "nothing",
        "policies": ", ".join(settings["policies"]),
        "rounds": settings["rounds"],
        "seeds": ", ".join(map(str, settings["seeds"])),
        "beta": settings["rate"],
        **{f"task: {name}": value for name, value in task.items() if value is not None},
        **settings["machine"],
    }
    version = str(settings["machine"].get("fedroster", ""))
    title = f"Who trains? Policies compared on {settings['scenario']}"
    return Report(title, lead, sections, settings["command"], details, version)
