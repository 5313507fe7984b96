"""What no aggregation can use is told, whatever the engine; the usual form does not depend on the order of replies."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedroster.engine.replies import (
    ArrayForm,
    Judge,
    Sizes,
    UsualForm,
    change,
    check_array,
    check_weight,
    largest,
    outweighing,
)

SENT = ArrayForm((2, 3), "float64")


def wrong(values, *, sent=SENT, **claims):
    claimed = ArrayForm(claims.get("shape", values.shape), claims.get("dtype", str(values.dtype)))
    return check_array(claimed, sent, lambda: values)


def test_what_was_sent_may_come_back_trained():
    assert wrong(np.ones((2, 3))) is None
    assert wrong(np.ones((2, 3), np.float32)) is None
    assert wrong(np.zeros(7), sent=None) is None
    integers = ArrayForm((), "int64")
    assert wrong(np.array(3), sent=integers) is None
    assert "expected int64" in wrong(np.array(3.0), sent=integers)
    assert wrong(np.array(3), sent=ArrayForm((), "float64")) is None  # a layer's counter, averaged before
    assert "expected float64" in wrong(np.array([3]), sent=ArrayForm((1,), "float64"))


@pytest.mark.parametrize("dtype", ["object", "str", "", "V8", "datetime64[s]", "no type", "({[", "f8,i4"])
def test_what_is_no_number_is_not_even_read(dtype):
    def read():
        raise AssertionError("it was read")

    assert "expected" in check_array(ArrayForm((2, 3), dtype), SENT, read)
    assert "expected" in check_array(ArrayForm((2, 3), dtype), None, read)


@pytest.mark.parametrize("dtype", ["longdouble", ">f8", ">f4"])
def test_what_would_give_the_average_a_type_that_other_nodes_cannot_read_is_refused(dtype):
    values = np.ones((2, 3), dtype)
    assert "expected float64" in wrong(values)
    assert "expected numbers" in wrong(values, sent=None)
    assert wrong(values, sent=ArrayForm((2, 3), str(values.dtype))) is None  # the server's own


def test_whatever_reading_raises_is_told():
    for error in (ValueError("pickled"), MemoryError(), RecursionError(), KeyError("x")):

        def read(error=error):
            raise error

        assert f"cannot be read ({type(error).__name__}" in check_array(SENT, SENT, read)


def test_claims_are_held_against_what_is_there():
    assert "claims float64 of (2, 3)" in wrong(np.ones((3, 2)), shape=(2, 3))
    assert "claims float64" in wrong(np.ones((2, 3), np.float32), dtype="float64")
    assert "not finite" in wrong(np.full((2, 3), np.nan))
    assert "not finite" in wrong(np.full(2, complex(0, math.inf)), sent=ArrayForm((2,), "complex128"))


def test_only_rows_of_bytes_may_grow():
    row = ArrayForm((4,), "uint8")
    assert wrong(np.zeros(9, np.uint8), sent=row) is None
    assert "has shape" in wrong(np.zeros((3, 3), np.uint8), sent=row)
    assert "has shape" in wrong(np.zeros(9, np.int8), sent=ArrayForm((4,), "int8"))


@pytest.mark.parametrize(("narrow", "sent"), [("float16", "float32"), ("int8", "int64"), ("int16", "float64")])
def test_what_overflows_when_it_is_weighed_is_refused_unless_it_was_sent(narrow, sent):
    value = np.ones((), narrow)
    assert f"expected {sent}" in wrong(value, sent=ArrayForm((), sent))
    assert wrong(value, sent=ArrayForm((), narrow)) is None


def test_an_integer_that_would_own_the_model_is_a_change():
    sent = np.int64(0)
    assert change(np.asarray(sent), np.asarray(2**62)) == 2.0**62
    assert change(np.zeros(3, np.uint8), np.full(3, 255, np.uint8)) == 0.0


def test_weights():
    assert all(check_weight(value) is None for value in (3, 0.5, 1e18))
    assert all(check_weight(value) for value in (0, -1, -0.5, math.nan, math.inf, 1e19, [1], "1", None, True))


def forms(**held):
    return {name: frozenset((part,) for part in parts) for name, parts in held.items()}


def test_more_than_half_is_usual():
    assert UsualForm().odd(forms(a="x", b="x", c="xy")) == {"c"}
    assert UsualForm().odd(forms(a="x", b="x")) == set()
    assert UsualForm().odd({}) == set()


def test_a_tie_goes_to_what_most_nodes_had_and_else_to_nobody():
    usual = UsualForm()
    usual.odd(forms(a="x", b="x", c="x"))
    for _ in range(9):  # one node counts once, however often it comes
        assert usual.odd(forms(bad="xy", a="x")) == {"bad"}
    assert UsualForm().odd(forms(a="x", b="xy")) == {"a", "b"}


@given(st.lists(st.sampled_from(["x", "xy", "xz", "y"]), min_size=1, max_size=5))
def test_the_order_of_replies_never_matters(held):
    named = forms(**{f"n{number}": parts for number, parts in enumerate(held)})
    answers = {
        frozenset(UsualForm().odd({name: named[name] for name in order}))
        for order in itertools.islice(itertools.permutations(named), 24)
    }
    assert len(answers) == 1


def test_what_outweighs_a_thousand_others_is_odd():
    sizes = Sizes()
    assert sizes.odd("change", {"a": 1.0, "b": 999.0, "c": 1.0}) == {}
    assert set(sizes.odd("change", {"a": 1.0, "b": 1e4, "c": 2.0, "d": math.inf, "e": math.nan, "f": 1.0})) == {*"bde"}
    assert set(sizes.odd("change", {"alone": 1e4})) == {"alone"}  # beside those of earlier rounds
    assert sizes.odd("weight", {"alone": 1e18}) == {}
    assert set(Sizes().odd("change", {"alone": 1e300})) == {"alone"}
    assert Sizes().odd("change", {"a": 0.0, "b": 0.0, "c": 5.0}) == {}


def test_a_client_has_one_vote_on_what_others_may_weigh():
    sizes = Sizes()
    for name, weight in (("heavy", 1e18), ("b", 10.0), ("heavy", 1e18), ("c", 20.0)):
        assert sizes.odd("weight", {name: weight}) == {}  # of fewer than three clients nothing can be said
    assert set(sizes.odd("weight", {"heavy": 1e18})) == {"heavy"}
    assert sizes.odd("weight", {"b": 10.0}) == {}


def test_what_was_accepted_while_too_few_were_known_is_judged_again():
    assert outweighing({"heavy": 1e18, "b": 10.0}) == set()
    assert outweighing({"heavy": 1e18, "b": 10.0, "c": 20.0}) == {"heavy"}
    assert outweighing({"tiny": 1e-300, "b": 10.0, "c": 20.0, "large": 9e3}) == set()


def test_a_model_is_looked_at_before_it_is_sent():
    sizes = Sizes()
    assert sizes.flaw(3.0) == ""
    sizes.odd("change", {"a": 1.0})
    assert "grown from at most 3 to 1e+07" in sizes.flaw(1e7)
    assert "not finite" in sizes.flaw(largest([np.array([1.0, np.nan])]))
    assert largest([np.array([2, 3]), np.zeros(0), np.array([-4.0])]) == 4.0
    assert change(np.array([1e308]), np.array([-1e308])) == math.inf
    assert change(np.zeros(2), np.zeros(3)) == 0.0


def test_an_integer_beyond_any_float_is_odd_whatever_the_users_check_says():
    judge = Judge(lambda sent, reply: None, lambda sent, reply: [], lambda reply: reply, lambda reply: frozenset())
    assert judge.odd({"a": (1, 10**400), "b": (1, 10)}).keys() == {"a"}
