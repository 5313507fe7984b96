import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedroster.core.errors import ConfigurationError, InvalidInputError
from fedroster.core.state import reset
from fedroster.estimation.hypercubes import (
    cells_per_axis,
    context_cells,
    control,
    count_selections,
    count_successes,
    estimates,
    exploration_exponent,
    hypercubes_init,
    look_up,
)


def ints(*values):
    return np.array(values, np.int64)


class TestParameters:
    def test_choice_b11(self):
        assert exploration_exponent(1.0) == 0.4
        assert int(control(1000, exponent=0.4)) == 109
        assert control(1, exponent=0.4) == 0.0
        assert control(1000, exponent=0.4, scale=0.01) == pytest.approx(1.0948, rel=1e-3)

    @pytest.mark.parametrize(("horizon", "expected"), [(1, 1), (32, 2), (33, 3), (1000, 4), (1880, 5), (3125, 5)])
    def test_intervals_of_theorem_2(self, horizon, expected):
        assert cells_per_axis(horizon, 1.0) == expected

    def test_holder_exponent_must_be_positive(self):
        for refused in (exploration_exponent, lambda holder: cells_per_axis(10, holder)):
            with pytest.raises(ConfigurationError, match="holder"):
                refused(0.0)

    def test_too_many_cells(self):
        with pytest.raises(ConfigurationError, match="2\\^62"):
            hypercubes_init(10**6, 100, 30, cells_per_axis=5)


class TestContextCells:
    @given(st.integers(1, 7), st.lists(st.tuples(*[st.floats(0, 1)] * 3), max_size=20))
    def test_against_floors(self, h, contexts):
        features = np.array(contexts).reshape(-1, 3)
        expected = [sum(min(int(x * h), h - 1) * h**i for i, x in enumerate(row)) for row in contexts]
        assert context_cells(features, cells_per_axis=h).tolist() == expected

    @pytest.mark.parametrize("value", [-1e-9, 1.0001, np.nan, np.inf])
    def test_outside_is_refused_with_its_row(self, value):
        features = np.array([[0.5, 0.5], [0.5, value]])
        with pytest.raises(InvalidInputError, match=r"row 1 .*\[0, 1\]"):
            context_cells(features, cells_per_axis=5)
        unused = np.array([True, False])
        assert context_cells(features, cells_per_axis=5, available=unused).tolist() == [12, 0]

    def test_bounds_scale(self):
        features = np.array([[10.0, 0.5], [20.0, 2.0]])
        assert context_cells(features, cells_per_axis=2, low=(10.0, 0.5), high=(20.0, 2.0)).tolist() == [0, 3]
        with pytest.raises(ConfigurationError, match="2 features"):
            context_cells(features, cells_per_axis=2, low=(10.0,), high=(20.0,))


class TestCounting:
    def state(self, **changes):
        return hypercubes_init(
            **({"num_clients": 5, "num_servers": 2, "num_features": 2, "cells_per_axis": 3} | changes)
        )

    @given(
        st.integers(1, 3),
        st.lists(
            st.lists(
                st.tuples(st.integers(0, 7), st.integers(0, 2), st.integers(0, 8), st.booleans()),
                max_size=8,
                unique_by=lambda link: link[0],
            ),
            max_size=12,
        ),
    )
    def test_against_a_dictionary(self, num_servers, rounds):
        state = self.state(num_clients=8, num_servers=num_servers)
        counts, successes = {}, {}
        for links in rounds:
            client, server, cell, in_time = (
                (np.array(part) for part in zip(*links, strict=True)) if links else [ints()] * 4
            )
            server = server % num_servers
            state = count_selections(state, client, server, cell)
            good = np.flatnonzero(in_time)
            state = count_successes(state, client[good], server[good], cell[good])
            for key, x in zip(zip(client, server, cell, strict=True), in_time, strict=True):
                counts[key] = counts.get(key, 0) + 1
                successes[key] = successes.get(key, 0) + int(x)
        every = np.array(list(itertools.product(range(8), range(num_servers), range(9))))
        found = look_up(state, *every.T)
        assert found[0].tolist() == [counts.get(tuple(key), 0) for key in every.tolist()]
        assert found[1].tolist() == [successes.get(tuple(key), 0) for key in every.tolist()]
        share = [successes[key] / counts[key] if key in counts else 0.0 for key in map(tuple, every.tolist())]
        assert estimates(*found).tolist() == pytest.approx(share)
        if num_servers == 1:  # which needs no index
            np.testing.assert_array_equal(look_up(state, every[:, 0], None, every[:, 2]), found)
        assert state.num_cells == len(counts)

    def test_memory_grows_with_the_cells_that_were_seen(self):
        state = self.state(num_clients=2000, num_servers=100, cells_per_axis=50)
        start = state.key.shape[0]
        rng = np.random.default_rng(0)
        seen = {}
        for _ in range(20):
            client = rng.permutation(2000)[:500]
            server, cell = rng.integers(0, 100, 500), rng.integers(0, 2500, 500)
            state = count_selections(state, client, server, cell)
            for key in zip(client.tolist(), server.tolist(), cell.tolist(), strict=True):
                seen[key] = seen.get(key, 0) + 1
        assert state.num_cells == len(seen)
        assert start < state.key.shape[0] <= 4 * len(seen)  # of the 500 million cells that there are
        keys = np.array(list(seen))
        assert look_up(state, *keys.T)[0].tolist() == list(seen.values())

    def test_a_success_without_a_selection_is_ignored(self):
        state, link = self.state(), (ints(1), ints(0), ints(4))
        state = count_successes(state, *link)
        assert look_up(state, *link) == (0, 0)
        state = count_selections(state, *link)
        state = count_successes(count_successes(state, *link), *link)
        assert look_up(state, *link) == (1, 1)

    def test_a_forgotten_client_is_a_stranger(self):
        link = (np.arange(5), ints(0, 1, 0, 1, 0), ints(0, 1, 2, 3, 4))
        state = count_successes(count_selections(self.state(), *link), *link)
        state = reset(state, self.state(), ints(1, 3))
        assert look_up(state, *link)[0].tolist() == [1, 0, 1, 0, 1]
        state = count_selections(state, ints(1), ints(1), ints(1))
        assert look_up(state, ints(1), ints(1), ints(1)) == (1, 0)

    def test_the_cells_of_forgotten_clients_are_freed(self):
        state = hypercubes_init(100, 1, 2, cells_per_axis=20)
        fresh = hypercubes_init(100, 1, 2, cells_per_axis=20)
        rng = np.random.default_rng(0)
        for _ in range(200):
            state = count_selections(state, np.arange(100), None, rng.integers(0, 400, 100))
            state = reset(state, fresh, np.arange(100))
        assert state.key.shape[0] <= 2048
