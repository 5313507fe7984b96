"""What a reproduction found, on its page: sentences, and the claims in groups, details folded."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedroster.lab.pages.report import Number, Section, Table
from fedroster.lab.statistics import LEVEL, Interval, interval_of
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


def in_groups(verdicts: Sequence[Verdict]) -> dict[str, list[Verdict]]:
    """Verdicts by group: the paper's claims or our questions, simulation or training, the paper's set-up or another."""
    groups: dict[str, list[Verdict]] = {}
    for one in sorted(verdicts, key=lambda one: _place(one.claim)):
        where = "another set-up than the paper's" if one.claim.changed else "the paper's own set-up"
        name = f"Our own questions, {one.claim.runs}" if one.claim.ours else f"{one.claim.runs.capitalize()}, {where}"
        groups.setdefault(name, []).append(one)
    return groups


def _place(claim: Claim) -> tuple[bool, bool, bool]:
    return claim.ours, claim.training, bool(claim.changed) and not claim.ours


def counted(verdicts: Sequence[Verdict]) -> str:
    """How many have each of the four words."""
    hold, small, against, undecided = (sum(one.word == word for one in verdicts) for word in WORDS)
    verb = f"hold{'s' * (hold == 1)}"
    return f"{hold} {verb}, {small} hold{'s' * (small == 1)} but small, {against} contradicted, {undecided} undecided"


def headline(verdicts: Sequence[Verdict]) -> list[str]:
    """What was found, in three sentences at most; the groups' titles and each claim say the rest."""
    theirs, ours = _by_asker(verdicts)
    said = []
    if theirs:
        decided = sum(one.word != "undecided" for one in theirs)
        verb = "is" if decided == 1 else "are"
        claims = f"{len(theirs)} claim{'s' * (len(theirs) > 1)} of the paper"
        said.append(f"Of {claims} {decided} {verb} decided here: {counted(theirs)}.")
    if ours:
        asked = f"Of our own further questions, {len(ours)}" if theirs else f"All {len(ours)} claims are ours"
        said.append(f"{asked}: {counted(ours)}.")
    said[1:1] = _contradicted(theirs or ours)
    return said or ["No claims are judged here."]


def numbers_of(verdicts: Sequence[Verdict]) -> list[Number]:
    """How many of the paper's claims, or of ours where it has none, hold, are contradicted and are undecided."""
    theirs, ours = _by_asker(verdicts)
    asked, whose = (theirs, "the paper") if theirs else (ours, "ours")
    tones = {"holds": "holds", "holds, but small": "holds", "contradicted": "fails"}
    return [
        Number(
            str(sum(one.word == word for one in asked)), word, f"of {len(asked)} claims of {whose}", tones.get(word, "")
        )
        for word in (WORDS if asked else ())
    ]


def _by_asker(verdicts: Sequence[Verdict]) -> tuple[list[Verdict], list[Verdict]]:
    """Those on the paper's claims, and those on our own questions."""
    return [one for one in verdicts if not one.claim.ours], [one for one in verdicts if one.claim.ours]


def _contradicted(verdicts: Sequence[Verdict], shown: int = 3) -> list[str]:
    """Contradicted claims: first those in the paper's own set-up, without training, the clearest first."""
    found = sorted(
        (one for one in verdicts if one.word == "contradicted"),
        key=lambda one: (bool(one.claim.changed), one.claim.training, one.p_contradicted or 0.0),
    )
    named = "; ".join(f"“{one.claim.statement.rstrip('.')}” ({one.why})" for one in found[:shown])
    more = f"; and {len(found) - shown} more" if len(found) > shown else ""
    return [f"Contradicted: {named}{more}."] if found else []


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
    rows = []
    for one in verdicts:
        claim, effect = one.claim, one.effect
        p_values = ("" if p is None else f"{p:.2g}" for p in (one.p_holds, one.p_small, one.p_contradicted))
        size = f"{_number(effect.mean)} {one.unit}".strip() if math.isfinite(effect.mean) else _number(effect.mean)
        set_up = "ours" if claim.ours else claim.changed or "as in the paper"
        tested = (size, _range(effect), one.test, str(one.seeds), *p_values)
        rows.append((claim.statement, claim.measure, set_up, *tested))
    texts = ("claim", "tested", "set-up", "test")
    columns = (*texts[:3], "effect", "interval", "test", "seeds", "p, holds", "p, small", "p, contradicted")
    return Table(columns, rows, texts)


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
    size = f"{_number(verdict.effect.mean)} ({_range(verdict.effect)}) {verdict.unit}".rstrip()
    return "; ".join(filter(None, (size, verdict.why)))


def _range(effect: Interval) -> str:
    if effect.low == -math.inf and effect.high == math.inf:
        return "anything is possible: in some seeds one of the two runs never got there"
    return f"{_number(effect.low)} to {_number(effect.high)}"


def _number(value: float) -> str:
    if math.isinf(value):
        return "never" if value > 0.0 else "-never"
    return f"{value:.3g}"
