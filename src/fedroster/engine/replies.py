"""Which replies can be aggregated: each is compared with what was sent, and its form with that of others.

Frameworks for training stop a run at one malformed reply, or average what it holds.  Here an engine's adapter says what
a reply claims, and hears what is wrong with it.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from fedroster.core.checks import real, shown

T = TypeVar("T")
Numbers = np.ndarray[Any, np.dtype[Any]]

Form = Hashable
"""What a reply holds, apart from its values: names."""

_NUMBERS = "?bhilqBHILQefdFD"  # characters of NumPy's types that hold numbers
_NARROW = "bhBHe"  # of fewer than 32 bits: an average multiplies them by weights, beyond what they hold
_MOST_WEIGHT = 1e18


@dataclass(frozen=True, slots=True)
class ArrayForm:
    """The declared form of an array: its shape, and the name of its type, as NumPy has it."""

    shape: tuple[int, ...]
    dtype: str


def check_array(claimed: ArrayForm, sent: ArrayForm | None, read: Callable[[], Numbers]) -> str | None:
    """Look for what no aggregation can use in an array.

    It must hold finite numbers, of the kind and the shape that were sent, of 32 bits or more or of the type that was
    sent, and be what it says that it is.  A single integer may come back for a float.  A row of bytes may have any
    length: models that are no arrays, such as trees, travel so.

    Args:
        claimed: What the reply says of it.
        sent: What was sent under its name; None for nothing.
        read: Reads it; may raise anything, since its bytes come from outside.

    Returns:
        What is wrong; None when nothing is.
    """
    try:
        found = np.dtype(claimed.dtype)
        wanted = np.dtype(sent.dtype if sent else found).kind
    except (TypeError, ValueError, SyntaxError):
        return f"is of type {claimed.dtype[:40]!r}; expected numbers"
    # A counter, as a layer for batch normalization has it, is averaged to a float and comes back as an integer.
    is_counter = wanted == "f" and found.kind in "iu" and claimed.shape == ()
    # An average takes its first reply's type, Krum a reply as it is; PyTorch reads native bytes and no long doubles.
    is_odd = found.char not in _NUMBERS or not found.isnative or (sent and found.char in _NARROW)
    if (is_odd and (not sent or claimed.dtype != sent.dtype)) or (found.kind != wanted and not is_counter):
        return f"is of type {claimed.dtype[:40]!r}; expected {'numbers' if sent is None else sent.dtype}"
    is_bytes = sent and claimed.dtype == sent.dtype == "uint8" and len(claimed.shape) == len(sent.shape) == 1
    if sent and claimed.shape != sent.shape and not is_bytes:
        return f"has shape {claimed.shape}; expected {sent.shape}"
    try:
        values = read()
        if values.shape != claimed.shape or values.dtype != found:
            return f"holds {values.dtype} of shape {values.shape} and claims {claimed.dtype} of {claimed.shape}"
        return None if np.isfinite(values).all() else "holds numbers that are not finite"
    except Exception as error:  # bytes from outside make NumPy raise nearly anything
        return f"cannot be read ({type(error).__name__}: {error})"


def check_values(values: Numbers, sent: Numbers | None) -> str | None:
    """What :func:`check_array` says of an array that is read already; ``sent`` is None for nothing."""
    form = None if sent is None else ArrayForm(sent.shape, sent.dtype.name)
    return check_array(ArrayForm(values.shape, values.dtype.name), form, lambda: values)


def wrong_with(check: Callable[[T, T], str | None] | None, sent: T, reply: T) -> str | None:
    """What a check says, or raises, is wrong with a reply; None for nothing, and without a check."""
    try:
        return None if check is None else check(sent, reply)
    except Exception as error:
        return f"it cannot be read ({type(error).__name__}: {error})"


def named(names: Iterable[object]) -> str:
    """The first of some names from outside."""
    known = sorted(map(str, names))
    return ", ".join(repr(name[:80]) for name in known[:5]) + f" and {len(known) - 5} more" * (len(known) > 5) or "none"


def check_weight(value: object) -> str | None:
    """What is wrong with the weight with which a reply is to be averaged; None for a number above 0, up to 1e18."""
    if 0 < real(value) <= _MOST_WEIGHT:
        return None
    return f"is {shown(value)}; expected a number above 0, up to {_MOST_WEIGHT:g}"


class UsualForm:
    """Finds the replies of a round that have an unusual form, in any order of arrival.

    The form of more than half of a round's replies is usual; else that which most nodes of the run had in their last
    reply, each of which counts once.  With a tie there, too, all replies are odd.
    """

    def __init__(self) -> None:
        """Start without replies."""
        self._last: dict[str, Form] = {}

    def odd(self, forms: Mapping[str, Form]) -> set[str]:
        """The nodes whose replies are odd, given the form of each reply of a round by its node's name."""
        self._last |= forms
        held = Counter(forms.values())
        if len(held) < 2:
            return set()
        votes = Counter(form for form in self._last.values() if form in held)
        rank = {form: (2 * count > len(forms), votes[form]) for form, count in held.items()}
        best = max(rank.values())
        usual = [form for form, each in rank.items() if each == best]
        return {name for name, form in forms.items() if len(usual) > 1 or form != usual[0]}


class Sizes:
    """Finds replies that would outweigh all others: by how far they are from what was sent, and by their weight.

    A value is too large beyond 1,000 times the median of its round; where that has fewer than three, the last ones of
    other clients count, too.  While fewer than three clients are known, a weight is never too large, and a change is
    beyond 10^6 times the largest number of the model that was sent, or 1.
    """

    def __init__(self) -> None:
        """Start without replies."""
        self._recent: dict[str, dict[str, float]] = {}
        self._largest = 1.0

    def flaw(self, largest: float) -> str:
        """What is wrong with a model that is about to be sent, by its largest absolute number; empty for nothing."""
        if not math.isfinite(largest):
            return "holds numbers that are not finite"
        if self._recent and largest > _GROWTH * self._largest:
            return f"has grown from at most {self._largest:.3g} to {largest:.3g}"
        self._largest = max(self._largest, largest)
        return ""

    def odd(self, what: str, values: Mapping[str, float]) -> dict[str, str]:
        """What is wrong with the replies of a round, by name; ``what`` is "change" or "weight"."""
        recent = self._recent.setdefault(what, {})
        known = {**recent, **values} if len(values) < _ENOUGH else values
        usual = _usual(known.values())
        most = _TIMES_MEDIAN * usual if usual else _GROWTH * self._largest if what == "change" else math.inf
        odd = {
            name: f"its {what} is {value:.3g}, and that of others {usual:.3g}"
            for name, value in values.items()
            if not value <= most
        }
        self.seen(what, {name: value for name, value in values.items() if name not in odd})
        return odd

    def seen(self, what: str, values: Mapping[str, float]) -> None:
        """Book values of clients that others are compared with, by name."""
        recent = self._recent.setdefault(what, {})
        for name, value in values.items():
            recent.pop(name, None)  # the last ones stay
            recent[name] = value
        for name in list(recent)[:-_RECENT]:
            del recent[name]


_TIMES_MEDIAN, _GROWTH = 1e3, 1e6
_RECENT, _ENOUGH = 64, 3


def _usual(values: Collection[float]) -> float:
    """The median, the lower one of two, of at least three values; 0 of fewer."""
    return statistics.median_low(values) if len(values) >= _ENOUGH else 0.0


def outweighing(weights: Mapping[str, float]) -> set[str]:
    """Clients whose weights, accepted while too few were known, are too large beside all that are known now."""
    usual = _usual(weights.values())
    return {name for name, weight in weights.items() if usual and weight > _TIMES_MEDIAN * usual}


def largest(arrays: Iterable[Numbers]) -> float:
    """The largest absolute number of some arrays; of those that are no floats nothing counts, and NaN is infinite."""
    found = 0.0
    with np.errstate(all="ignore"):
        for array in arrays:
            if array.dtype.kind in "fc" and array.size:
                most = float(np.abs(array).max())
                found = max(found, math.inf if math.isnan(most) else most)
    return found


def change(sent: Numbers, returned: Numbers) -> float:
    """The largest absolute difference of two arrays; 0 for bytes, which are no numbers, and for another shape."""
    if sent.shape != returned.shape or sent.dtype.kind not in "fci":
        return 0.0
    with np.errstate(all="ignore"):
        return largest([returned.astype(np.result_type(sent, np.float64)) - sent])


class Judge(Generic[T]):
    """Says which models and replies no engine should aggregate; without a check everything passes."""

    differs = "its records differ from those of other nodes"
    """What is said of a reply whose form is not the usual one."""

    def __init__(
        self,
        check: Callable[[T, T], str | None] | None,
        pairs: Callable[[T, T], Iterable[tuple[Numbers, Numbers]]],
        weight: Callable[[T], object],
        form: Callable[[T], Form] = lambda reply: None,
    ) -> None:
        """Judge by what a reply's arrays are, before each what was sent for it, by what it counts, and by its form."""
        self.check = check
        self.sizes = Sizes()
        self._usual = UsualForm()
        self._pairs = pairs
        self._weight = weight
        self._form = form

    def flaw(self, sent: T) -> str:
        """What is wrong with a model that is about to be sent; empty for nothing."""
        with suppress(TypeError, ValueError):  # replies to what NumPy cannot read are refused, with the reason
            if self.check is not None:
                return self.sizes.flaw(largest(array for array, _ in self._pairs(sent, sent)))
        return ""

    def odd(self, replies: Mapping[str, tuple[T, T]]) -> dict[str, str]:
        """What is wrong with the replies of a round beside each other, by name, given what was sent before each."""
        if self.check is None:
            return {}
        odd = self._usual.odd({name: self._form(reply) for name, (_, reply) in replies.items()})
        changes: dict[str, float] = {}
        weights: dict[str, float] = {}
        for name, (sent, reply) in replies.items():
            if name in odd:
                continue
            changes[name] = max((change(*pair) for pair in self._pairs(sent, reply)), default=0.0)
            if (weight := self._weight(reply)) is not None:
                weights[name] = real(weight)  # NaN, which is odd, for an integer beyond any float
        return dict.fromkeys(odd, self.differs) | self.sizes.odd("weight", weights) | self.sizes.odd("change", changes)
