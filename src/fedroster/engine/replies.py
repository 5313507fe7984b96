"""Which replies can be aggregated: each is compared with what was sent, and its form with that of others.

Frameworks for training stop a run at one malformed reply, or average what it holds.  Here an engine's adapter says what
a reply claims, and hears what is wrong with it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")

Form = frozenset[tuple[object, ...]]
"""What a reply holds, apart from its values: names, and which of them are lists of what length."""

_NUMBERS = "biufc"  # kinds of NumPy's types that hold numbers
_MOST_WEIGHT = 1e18


@dataclass(frozen=True, slots=True)
class ArrayForm:
    """The declared form of an array.

    Attributes:
        shape: Its shape.
        dtype: Name of its type, as NumPy has it.
    """

    shape: tuple[int, ...]
    dtype: str


def check_array(
    claimed: ArrayForm, sent: ArrayForm | None, read: Callable[[], np.ndarray[Any, np.dtype[Any]]]
) -> str | None:
    """Look for what no aggregation can use in an array.

    It must hold finite numbers, of the kind and the shape that were sent, and be what it says that it is.  A single
    integer may come back for a float.  A row of bytes may have any length: models that are no arrays, such as trees,
    travel so.

    Args:
        claimed: What the reply says of it.
        sent: What was sent under its name; None for nothing.
        read: Reads it; may raise anything, since its bytes come from outside.

    Returns:
        What is wrong; None when nothing is.
    """
    try:
        kind = np.dtype(claimed.dtype).kind
        wanted = kind if sent is None else np.dtype(sent.dtype).kind
    except (TypeError, ValueError, SyntaxError):
        return f"is of type {claimed.dtype[:40]!r}; expected numbers"
    # A counter, as a layer for batch normalization has it, is averaged to a float and comes back as an integer.
    is_counter = wanted == "f" and kind in "iu" and claimed.shape == ()
    if kind not in _NUMBERS or (kind != wanted and not is_counter):
        return f"is of type {claimed.dtype[:40]!r}; expected {'numbers' if sent is None else sent.dtype}"
    is_bytes = (
        sent is not None and claimed.dtype == sent.dtype == "uint8" and len(claimed.shape) == len(sent.shape) == 1
    )
    if sent is not None and claimed.shape != sent.shape and not is_bytes:
        return f"has shape {claimed.shape}; expected {sent.shape}"
    try:
        values = read()
        if values.shape != claimed.shape or values.dtype != np.dtype(claimed.dtype):
            return f"holds {values.dtype} of shape {values.shape} and claims {claimed.dtype} of {claimed.shape}"
        is_finite = kind not in "fc" or bool(np.isfinite(values).all())
    except Exception as error:  # bytes from outside make NumPy raise nearly anything
        return f"cannot be read ({type(error).__name__}: {error})"
    return None if is_finite else "holds numbers that are not finite"


def wrong_with(check: Callable[[T, T], str | None] | None, sent: T, reply: T) -> str | None:
    """What a check says is wrong with a reply; None for nothing, and without a check.

    Whatever the check raises is wrong with the reply: none must be able to end a run.
    """
    try:
        return None if check is None else check(sent, reply)
    except Exception as error:
        return f"it cannot be read ({type(error).__name__}: {error})"


def named(names: Iterable[object]) -> str:
    """The first of some names from outside."""
    known = sorted(map(str, names))
    return ", ".join(repr(name[:80]) for name in known[:5]) + f" and {len(known) - 5} more" * (len(known) > 5) or "none"


def check_number(value: object) -> bool:
    """Whether a metric is a finite number, or a list of them."""
    numbers = value if isinstance(value, list) else [value]
    return all(
        isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number) for number in numbers
    )


def check_weight(value: object) -> str | None:
    """Look at the weight with which a reply is to be averaged.

    Returns:
        What is wrong; None for a finite number in [0, 1e18].
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MOST_WEIGHT:
        return None
    return f"is {str(value)[:40]}; expected a number from 0 to {_MOST_WEIGHT:g}"


class UsualForm:
    """Finds the replies of a round that have an unusual form, in any order of arrival.

    The form of more than half of a round's replies is usual.  Otherwise that is the one of them that most nodes of the
    run had in their last reply, each of which counts once.  Where this leaves a tie, too, a form that all others
    contain counts, and they are cut down to it; when there is none, all replies are odd.
    """

    def __init__(self) -> None:
        """Start without replies."""
        self._last: dict[str, Form] = {}

    def settle(self, forms: Mapping[str, Form]) -> tuple[set[str], Form | None]:
        """Compare the replies of a round.

        Args:
            forms: Form of each reply, by its node's name.

        Returns:
            The nodes whose replies are odd, and the form to which the others must be cut down; None when they have one.
        """
        self._last |= forms
        held = Counter(forms.values())
        if len(held) < 2:
            return set(), None
        usual, count = held.most_common(1)[0]
        if 2 * count <= len(forms):
            votes = Counter(form for form in self._last.values() if form in held).most_common(2)
            if votes[0][1] == votes[1][1]:
                smallest = min(held, key=len)
                is_part = all(smallest <= form for form in held)
                return (set(), smallest) if is_part else (set(forms), None)
            usual = votes[0][0]
        return {name for name, form in forms.items() if form != usual}, None
