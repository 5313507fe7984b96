"""The page of a reproduction begins with what was found, computed from the verdicts."""

import dataclasses

import numpy as np

from fedroster.lab.verdicts.claims_page import claims_sections, counted, headline, in_groups
from fedroster.lab.verdicts.verdicts import claims_of, judge, promise

UP = np.linspace(0.9, 1.1, 12)
MIXED = np.linspace(-1.0, 1.2, 12)


def verdicts(*, ours=False):
    asked = {
        "true": ("It is fast.", "time", [UP]),
        "false": ("It is fair.", "share", [-UP]),
        "open": ("It is small.", "size", [MIXED]),
        "kept": ("It is never late.", "rounds", [promise(np.zeros((12, 5), bool))]),
    }
    claims = claims_of("Fig. 1", asked, ours=ours)
    trained = claims_of("Fig. 2", {"learns": ("It learns.", "accuracy", [-UP])}, ours=ours, changed="fewer rounds")
    return judge([*claims, dataclasses.replace(trained[0], training=True)])


def test_the_headline_counts_and_names_what_is_contradicted():
    sentences = headline(verdicts())
    assert counted(verdicts()) == "2 hold, 0 hold but small, 2 contradicted, 1 undecided"
    assert sentences[0].endswith(f"4 are decided here: {counted(verdicts())}.")
    # What is so in the paper's own set-up comes first.
    assert sentences[1].startswith("Contradicted: “It is fair” (the opposite is shown); “It learns”")
    assert len(sentences) == 2


def test_our_own_questions_are_counted_apart():
    assert (
        headline(verdicts(ours=True))[0]
        == "All 5 claims are ours: 2 hold, 0 hold but small, 2 contradicted, 1 undecided."
    )
    both = headline([*verdicts(), *verdicts(ours=True)])
    assert both[0].startswith("Of 5 claims of the paper 4 are decided")
    assert both[-1] == "Of our own further questions, 5: 2 hold, 0 hold but small, 2 contradicted, 1 undecided."
    assert headline([]) == ["No claims are judged here."]


def test_every_claim_has_a_line_in_its_group_and_its_details_are_folded():
    found = verdicts()
    *groups, details = claims_sections(found)
    assert (
        [len(section.table.rows) for section in groups] == [len(group) for group in in_groups(found).values()] == [4, 1]
    )
    assert [section.title for section in groups] == [
        f"{name}: {counted(group)}" for name, group in in_groups(found).items()
    ]
    assert details.folded
    assert not any(section.folded for section in groups)
    assert len(details.table.rows) == 5
    assert groups[0].table.rows[3] == ("holds", "It is never late.", "Fig. 1", "kept by all 12 seeds in every round")
    assert claims_sections([]) == []


def test_an_interval_that_is_open_on_both_ends_reads_plainly():
    never = np.array([-np.inf] * 3 + [*np.linspace(50.0, 60.0, 6)] + [np.inf] * 3)
    found = judge(claims_of("Fig. 1", {"soon": ("It is sooner.", "time", [never])}))
    text = str(claims_sections(found))
    assert "55 (anything is possible: in some seeds one of the two runs never got there)" in text
    assert "-never to" not in text
