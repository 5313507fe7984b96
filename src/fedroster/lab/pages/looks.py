"""How each policy looks: one colour and one line for a policy, in every figure and on every page."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class Look:
    """Colour as ``#rrggbb``, and line: "-" solid, "--" dashed, "-." dash-dotted, ":" dotted."""

    colour: str
    line: str = "-"


LINES = ("-", "--", "-.", ":")

# Okabe and Ito's palette, told apart by colour-blind readers too; then colours between.  Of two policies with one
# line the colours differ under three colour deficiencies, which a test computes.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B77F00", "#3D96CF", "#000000", "#8C6D31")

MANY = len(PALETTE)
"""With more curves than colours, each gets a panel of its own."""

_LOOKS: Mapping[str, Look] = {
    "random": Look("#777777", "--"),
    "round-robin": Look("#777777", "-."),
    "size-weighted": Look("#777777", ":"),
    "participation-weights": Look("#607878"),
    "floor": Look("#D55E00"),
    "rbcs-f": Look("#0072B2"),
    # Variants that stand in one picture of the paper, told apart by more than their names would give.
    "rbcs-f:V=1": Look("#3D96CF", ":"),
    "rbcs-f:V=5": Look("#3D96CF", "--"),
    "rbcs-f:V=20": Look("#0072B2"),
    "rbcs-f:V=50": Look("#1B2F6E", "-."),
    "p3:V=20": Look("#000000", "-."),
    "fedcs:deadline_s=3": Look("#009E73"),
    "p3": Look("#000000", "-."),
    "fedcs": Look("#009E73"),
    "fedcs-greedy": Look("#009E73", "--"),
    "dirichlet": Look("#8C6D31"),
    "oracle": Look("#000000"),
    "oracle-p": Look("#000000", "--"),
    "partial-pooling": Look("#B3135F"),
    "cocs": Look("#4B3FA8"),
    "cucb": Look("#B77F00", "--"),
    "cucb-pairs": Look("#B77F00", ":"),
    "linucb": Look("#2A9D9D", "-."),
    "linucb-pairs": Look("#2A9D9D", ":"),
    "oort": Look("#CC79A7"),
    "power-of-choice": Look("#CC79A7", "--"),
    "tifl": Look("#7F1D3F"),
    "e3cs": Look("#7F1D3F", "--"),
    "cs-ucb": Look("#606000", "-."),
    "afl": Look("#C078C0", "-."),
    "refl": Look("#606000", "--"),
    "pisces": Look("#C078C0", ":"),
    "fedcor": Look("#2E6F40", ":"),
    "optimal-client-sampling": Look("#2E6F40", "-."),
    "divfl": Look("#C078C0"),
    "hics-fl": Look("#7F1D3F", ":"),
    "f3ast": Look("#2E6F40"),
    "clustered-sampling": Look("#2E6F40", "--"),
}


@cache
def look(policy: str) -> Look:
    """How a policy looks, given as text.

    A variant with other parameters has the colour of its policy, lighter or darker, and a line of its own; a policy of
    another package has a colour that follows from its name.
    """
    if policy in _LOOKS:
        return _LOOKS[policy]
    name, _, parameters = policy.partition(":")
    own = zlib.crc32(name.encode())
    base = _LOOKS.get(name, Look(PALETTE[own % len(PALETTE)], LINES[own // 8 % len(LINES)]))
    if not parameters:
        return base
    draw = zlib.crc32(policy.encode())
    return Look(_shaded(base.colour, draw), LINES[draw // 8 % len(LINES)])


def _shaded(colour: str, draw: int) -> str:
    """A colour mixed with white or black; a black one with white only."""
    target = 255 if colour == "#000000" or draw % 4 < 2 else 0
    part = (0.25, 0.45)[draw % 2]
    mixed = [round(int(colour[i : i + 2], 16) * (1 - part) + target * part) for i in (1, 3, 5)]
    while contrast(mixed) < 3.0:
        mixed = [value * 19 // 20 for value in mixed]
    return "#" + "".join(f"{value:02X}" for value in mixed)


def contrast(colour: Iterable[int]) -> float:
    """Contrast of red, green and blue, each from 0 to 255, to white (WCAG 2.2); a line of less than 3 is not seen."""
    parts = (part / 255.0 for part in colour)
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 1.05 / (0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05)


def looks_of(policies: Mapping[str, str]) -> dict[str, Look]:
    """How policies look, by label; given as text by label."""
    return {label: look(policy) for label, policy in policies.items()}


def in_order(labels: Iterable[str]) -> dict[str, Look]:
    """Looks of curves that are not policies: 32 that differ, neighbours in colour and in line."""
    return {
        label: Look(PALETTE[i % len(PALETTE)], LINES[(i + i // len(PALETTE)) % len(LINES)])
        for i, label in enumerate(labels)
    }
