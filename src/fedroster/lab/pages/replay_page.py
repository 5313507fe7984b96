"""The page of a replay: what other policies would have achieved in a log's rounds, and why some numbers are missing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedroster.lab.pages.report import Report, Section, Table, write_page
from fedroster.lab.replay.estimates import Estimate, Measure
from fedroster.record import Log
from fedroster.version import __version__

MEASURES: dict[Measure, str] = {
    "mean_round_time_s": "round, s",
    "min_participation_rate": "lowest rate",
    "deadline_misses": "misses",
}
"""Headings of what is estimated."""

COLUMNS = ("policy", "measure", "estimate", "interval", "counts for it")
_ABOUT = {
    "interval": "90 %",
    "counts for it": "exchanges of the log that tell of the policy",
}


def cells(one: Estimate) -> tuple[str, ...]:
    """An estimate as text, by column."""
    interval, counted = f"{one.low:.4g} to {one.high:.4g}", f"{one.effective_sample_size:,.0f}"
    if one.kind == "logged":
        interval = "in the log"
    return one.policy, MEASURES[one.measure], f"{one.estimate:.4g}", interval, counted


def reasons(found: Sequence[Estimate]) -> list[tuple[str, str]]:
    """Why a policy has no estimates, or from which signals it could not learn, each once."""
    said = dict[tuple[str, str], None]()
    for one in found:
        if one.refused is not None:
            said[one.policy, one.refused] = None
        elif one.lacks:
            said[one.policy, f"it learns from {' and '.join(one.lacks)}, and a replay of this log has none"] = None
    return list(said)


def replay_page(log: Log, found: Sequence[Estimate], folder: Path, *, command: str) -> None:
    """Write the page, as HTML and as Markdown.

    Args:
        log: The log.
        found: What was estimated from it.
        folder: Folder of the page; it is made.
        command: The command that makes the page again.
    """
    told = [one for one in found if one.refused is None]
    times = [one for one in told if one.measure == "mean_round_time_s"]
    own, *others = times
    lengths = [
        f"{one.estimate:.3g} s under {one.policy} ({one.low:.3g} to {one.high:.3g})"
        for one in sorted(others, key=lambda one: one.estimate)
    ]
    would = f"A mean round would have taken {'; '.join(lengths)}." if lengths else "The log says too little of others."
    lead = (
        f"Estimates from {own.rounds} rounds under {own.policy}, played under the log's rules, with 90 % intervals "
        "that include the model's error."
    )
    columns = ("policy", "why")
    sections = [
        Section("Estimates", table=Table(COLUMNS, [cells(one) for one in told], COLUMNS[:2], _ABOUT)),
        Section("What the log cannot tell", table=Table(columns, reasons(found), columns)),
    ]
    report = Report(
        f"Replay of {log.folder.name}",
        [lead],
        [section for section in sections if section.table is not None and section.table.rows],
        command,
        settings={"log": str(log.folder), "digest of its last line": log.head},
        version=__version__,
        headline=f"A mean round took {own.estimate:.3g} s under {own.policy}. {would}",
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_page(report, folder)
