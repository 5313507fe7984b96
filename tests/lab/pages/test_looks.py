"""One colour and one line for each policy, whatever else is in the figure."""

import re
from itertools import combinations

import numpy as np
import pytest

from fedroster.catalogue import policies
from fedroster.lab.pages.looks import MANY, PALETTE, Look, contrast, in_order, look
from fedroster.lab.papers.cocs.figures import LABELS as HIERARCHICAL
from fedroster.lab.papers.rbcs_f.figures import FIGURE_POLICIES


def test_every_policy_of_ours_looks_different():
    looks = [look(name) for name in policies()]
    assert len(set(looks)) == len(looks)
    assert all(re.fullmatch("#[0-9A-F]{6}", one.colour) and one.line in ("-", "--", "-.", ":") for one in looks)


def test_variants_and_curves_that_are_no_policies_differ():
    for text in ("floor:slack=1", "rbcs-f:V=0.7", "oracle:gap=0.1", "made-up:x=1"):
        assert look(text) != look(text.partition(":")[0])
        assert re.fullmatch("#[0-9A-F]{6}", look(text).colour)
    assert len(set(in_order(map(str, range(32))).values())) == 32


def test_every_line_is_seen_on_white():
    texts = [*policies(), *(f"{name}:x={value}" for name in policies() for value in range(20)), *map(str, range(50))]
    for colour in {*PALETTE, *(look(text).colour for text in texts)}:
        assert contrast([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) >= 3.0, colour
    assert contrast([255, 255, 255]) == 1.0
    assert contrast([0, 0, 0]) == 21.0


# Red, green and blue light as people see it without one kind of cones (Machado et al. 2009, Table 1, severity 1).
SEEN = {
    "all cones": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
TO_XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]]


def lab(colour, seen):
    """CIELAB of a colour (white D65) as a person sees it; two that are less than 2.3 apart are the same to most."""
    parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255.0
    light = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ np.clip(np.asarray(seen) @ light, 0.0, 1.0) / [0.95047, 1.0, 1.08883]
    x, y, z = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def alike(looks, seen, least=10.0):
    """Pairs that neither line nor colour tells apart."""
    return [
        (one, other)
        for one, other in combinations(looks, 2)
        if looks[one].line == looks[other].line
        and np.linalg.norm(lab(looks[one].colour, seen) - lab(looks[other].colour, seen)) < least
    ]


@pytest.mark.parametrize("seen", SEEN)
def test_policies_are_told_apart_without_some_cones(seen):
    for texts in (policies(), FIGURE_POLICIES, HIERARCHICAL):
        assert not alike({text: look(text) for text in texts}, SEEN[seen])
    assert not alike(in_order([str(number) for number in range(MANY)]), SEEN[seen])  # more have panels of their own


def test_the_check_of_colours_can_fail():
    looks = {"a": Look("#D55E00"), "b": Look("#B77F00"), "c": Look("#B77F00", "--")}
    assert {kind: alike(looks, seen) for kind, seen in SEEN.items()} == {
        "all cones": [],
        "protanopia": [("a", "b")],
        "deuteranopia": [("a", "b")],
        "tritanopia": [],
    }
    assert lab("#FFFFFF", SEEN["all cones"]) == pytest.approx([100.0, 0.0, 0.0], abs=0.02)
    assert lab("#FF0000", SEEN["all cones"]) == pytest.approx([53.24, 80.09, 67.20], abs=0.05)
