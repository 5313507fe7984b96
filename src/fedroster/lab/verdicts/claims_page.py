"""What a reproduction found, on its page: sentences, and the claims in groups, details folded."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from fedroster.lab.pages.report import Number, Section, Table
from fedroster.lab.statistics import LEVEL, interval_of
from fedroster.lab.verdicts.paper import Numbers
from fedroster.lab.verdicts.verdicts import WORDS, Claim, Verdict
from fedroster.types import FloatArray

TEST_NOTE = (
    "Three hypotheses are tested for each claim, and all claims of the paper are one family (Holm's correction, two "
    f"chains a claim): the probability of even one wrong verdict is at most {LEVEL:.0%}. A claim holds if each of its "
    "parts is shown. It holds, but is small if some part is also shown to be below the smallest effect that matters, "
    "which is our own number: one point of accuracy, 5 % of a time or of a number of rounds, 1 % of the updates in "
    "time. It is contradicted if the opposite of some part is shown; in several panels, in each of them. Tests are "
    "one-sided, paired over seeds: Student's t with Hall's correction for skewness, and the sign test with fewer than "
    "five seeds, where values are coarse or do not vary, and where a run never reached its target. A promise is a "
    "statement on every round of every run: one broken round contradicts it, and one that no run of this length could "
    "break is undecided. Effects are those of the part that decided, or has the least evidence; their intervals invert "
    "the tests at the corrected levels, so that one that excludes 0 is decided."
)

_GROUPS: tuple[tuple[str, Callable[[Claim], bool]], ...] = (
    ("Simulation, the paper's own set-up", lambda c: not c.ours and not c.training and not c.changed),
    ("Simulation, another set-up than the paper's", lambda c: not c.ours and not c.training and bool(c.changed)),
    ("Training, the paper's own set-up", lambda c: not c.ours and c.training and not c.changed),
    ("Training, another set-up than the paper's", lambda c: not c.ours and c.training and bool(c.changed)),
    ("Our own questions, simulation", lambda c: c.ours and not c.training),
    ("Our own questions, training", lambda c: c.ours and c.training),
)


def in_groups(verdicts: Sequence[Verdict]) -> dict[str, list[Verdict]]:
    """Verdicts by group: simulation or training, the paper's own set-up or another, the paper's claims or ours."""
    return {name: own for name, belongs in _GROUPS if (own := [one for one in verdicts if belongs(one.claim)])}


def counted(verdicts: Sequence[Verdict]) -> str:
    """How many have each of the four words."""
    hold, small, against, undecided = (sum(one.word == word for one in verdicts) for word in WORDS)
    verb = f"hold{'s' * (hold == 1)}"
    return f"{hold} {verb}, {small} hold{'s' * (small == 1)} but small, {against} contradicted, {undecided} undecided"


def headline(verdicts: Sequence[Verdict]) -> list[str]:
    """What was found, in three sentences at most; the groups' titles and each claim say the rest."""
    theirs = [one for one in verdicts if not one.claim.ours]
    ours = [one for one in verdicts if one.claim.ours]
    sentences = []
    if theirs:
        decided = sum(one.word != "undecided" for one in theirs)
        sentences.append(
            f"Of {len(theirs)} claim{'s' * (len(theirs) > 1)} of the paper {decided} "
            f"{'is' if decided == 1 else 'are'} decided here: {counted(theirs)}."
        )
        sentences += _contradicted(theirs)
    if ours:
        asked = f"Of our own further questions, {len(ours)}" if theirs else f"All {len(ours)} claims are ours"
        sentences.append(f"{asked}: {counted(ours)}.")
        if not theirs:
            sentences += _contradicted(ours)
    return sentences or ["No claims are judged here."]


def numbers_of(verdicts: Sequence[Verdict]) -> list[Number]:
    """How many of the paper's claims, or of ours where it has none, hold, are contradicted and are undecided."""
    theirs = [one for one in verdicts if not one.claim.ours]
    counted_here = theirs or verdicts
    of = f"of {len(counted_here)} claims {'of the paper' if theirs else 'of ours'}"
    tones = {"holds": "holds", "holds, but small": "holds", "contradicted": "fails"}
    return [
        Number(str(sum(one.word == word for one in counted_here)), word, of, tones.get(word, ""))
        for word in (WORDS if counted_here else ())
    ]


_SHOWN = 3


def _contradicted(verdicts: Sequence[Verdict]) -> list[str]:
    """Contradicted claims: first those in the paper's own set-up, without training, the clearest first."""
    found = sorted(
        (one for one in verdicts if one.word == "contradicted"),
        key=lambda one: (bool(one.claim.changed), one.claim.training, one.p_contradicted or 0.0),
    )
    if not found:
        return []
    named = "; ".join(f"“{one.claim.statement.rstrip('.')}” ({one.why})" for one in found[:_SHOWN])
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return [f"Contradicted: {named}{more}."]


# -------------------------------------------------------------------- the tables


def claims_sections(verdicts: Sequence[Verdict]) -> list[Section]:
    """The claims in groups, a line each, and how each was tested, folded."""
    sections, columns = list[Section](), ("verdict", "claim", "where", "by how much")
    for name, group in in_groups(verdicts).items():
        rows = [(one.word, one.claim.statement, one.claim.source, _shown(one)) for one in group]
        sections.append(Section(f"{name}: {counted(group)}", table=Table(columns, rows, columns)))
    if sections:
        sections.append(Section("How each claim was tested", [TEST_NOTE], table=_full_table(verdicts), folded=True))
    return sections


def _full_table(verdicts: Sequence[Verdict]) -> Table:
    columns = (
        *("claim", "tested", "set-up", "effect", "interval", "test", "seeds"),
        *("p, holds", "p, small", "p, contradicted"),
    )
    rows = [
        (
            one.claim.statement,
            one.claim.measure,
            one.claim.changed or "as in the paper" if not one.claim.ours else "ours",
            _number(one.effect.mean, one.unit),
            _range(one.effect.low, one.effect.high),
            one.test,
            str(one.seeds),
            _p(one.p_holds),
            _p(one.p_small),
            _p(one.p_contradicted),
        )
        for one in verdicts
    ]
    return Table(columns, rows, ("claim", "tested", "set-up", "test"))


def numbers_table(numbers: Numbers) -> Table | None:
    """Means over seeds with the half widths of their intervals; medians where a run did not get there."""
    rows = dict.fromkeys(row for column in numbers.values() for row in column)
    cells = [(row, *(_over_seeds(column[row]) if row in column else "" for column in numbers.values())) for row in rows]
    return Table(("", *numbers), cells, ("",)) if cells else None


def _over_seeds(values: FloatArray) -> str:
    found, missed = interval_of(values), int(np.count_nonzero(np.isinf(values)))
    if missed:
        middle = f"median {found.mean:.4g}, " if math.isfinite(found.mean) else ""
        return f"{middle}not reached by {missed} of {values.shape[0]}"
    return f"{found.mean:.4g} ± {found.high - found.mean:.2g}"


def _shown(verdict: Verdict) -> str:
    """What decided, in a few words: the effect, and why."""
    if verdict.test == "promise":
        return verdict.why
    effect = verdict.effect
    unit = f" {verdict.unit}" if verdict.unit else ""
    size = f"{_number(effect.mean)} ({_range(effect.low, effect.high)}){unit}"
    return f"{size}; {verdict.why}" if verdict.why else size


def _range(low: float, high: float) -> str:
    if low == -math.inf and high == math.inf:
        return "anything is possible: in some seeds one of the two runs never got there"
    return f"{_number(low)} to {_number(high)}"


def _number(value: float, unit: str = "") -> str:
    if math.isinf(value):
        return "never" if value > 0.0 else "-never"
    return f"{value:.3g}{f' {unit}' if unit else ''}"


def _p(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}"
