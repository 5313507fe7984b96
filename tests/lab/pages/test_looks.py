"""One colour and one line for each policy, whatever else is in the figure."""

from __future__ import annotations

import re

from fedroster.catalogue import policies
from fedroster.lab.pages.looks import PALETTE, contrast, in_order, look, looks_of
from fedroster.lab.papers.cocs.figures import LABELS as HIERARCHICAL
from fedroster.lab.papers.rbcs_f.figures import FIGURE_POLICIES


def test_every_policy_of_ours_looks_different():
    looks = [look(name) for name in policies()]
    assert len(set(looks)) == len(looks)
    assert all(re.fullmatch("#[0-9A-F]{6}", one.colour) and one.line in ("-", "--", "-.", ":") for one in looks)


def test_the_policies_of_a_figure_differ():
    for shown in (FIGURE_POLICIES, HIERARCHICAL):
        assert len({look(text) for text in shown}) == len(shown)


def test_a_look_depends_on_the_policy_alone():
    one = looks_of({"a": "floor", "b": "made-up:x=1"})
    other = looks_of({"c": "random", "b": "made-up:x=1", "d": "floor"})
    assert one["a"] == other["d"]
    assert one["b"] == other["b"] == look("made-up:x=1")


def test_a_variant_differs_from_its_policy():
    for text in ("floor:slack=1", "rbcs-f:V=0.7", "oracle:gap=0.1", "made-up:x=1"):
        assert look(text) != look(text.partition(":")[0])
        assert re.fullmatch("#[0-9A-F]{6}", look(text).colour)


def test_curves_that_are_no_policies_differ():
    looks = in_order([str(number) for number in range(32)])
    assert len(set(looks.values())) == 32
    assert len({looks[str(number)].colour for number in range(8)}) == 8


def test_every_line_is_seen_on_white():
    texts = [*policies(), *(f"{name}:x={value}" for name in policies() for value in range(20)), *map(str, range(50))]
    for colour in {*PALETTE, *(look(text).colour for text in texts)}:
        assert contrast([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) >= 3.0, colour
    assert contrast([255, 255, 255]) == 1.0
    assert contrast([0, 0, 0]) == 21.0
