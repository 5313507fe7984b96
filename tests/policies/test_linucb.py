import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedroster.core.problem import Feedback, ProblemSpec, Selection, Status
from fedroster.policies.linucb import LinUCB, upper_bounds, with_intercept
from priced import priced_context


class TestUpperBounds:
    @given(st.integers(0, 1000))
    def test_against_the_inverse(self, seed):
        rng = np.random.default_rng(seed)
        past, x = rng.random((10, 3)), rng.random((5, 3))
        gram, moment = np.eye(3) + past.T @ past, past.T @ rng.random(10)
        inverse = np.linalg.inv(gram)
        expected = x @ inverse @ moment + 0.7 * np.sqrt(np.einsum("ij,jk,ik->i", x, inverse, x))
        np.testing.assert_allclose(upper_bounds(gram, moment, x, alpha=0.7), expected, rtol=1e-9)

    def test_long_contexts_leave_something_of_the_others(self):
        """Where the Gram matrix is positive definite no more in floating point, bounds are finite all the same."""
        x = with_intercept(np.array([[1e300, -1e300], [1e9, 2e9], [1.0, 0.5]]))
        np.testing.assert_array_equal(x[0], [1.0, 1e6, -1e6])
        gram = np.array([[1.0, 1e6, 1e6], [1e6, 1e12, 1e12], [1e6, 1e12, 1e12]]) * 1e6
        with pytest.raises(np.linalg.LinAlgError):
            np.linalg.cholesky(gram)
        bound = upper_bounds(gram, np.ones(3), x, alpha=1.0)
        assert np.isfinite(bound).all()


class TestDecisions:
    def test_an_arm_is_the_sum_of_its_pairs(self):
        policy = LinUCB(pool_size=1, ridge=1.0)
        context = priced_context([1.0, 1.0], [0, 1], [0, 1], [1.0, 1.0], features=[[0.2, 0.4], [0.6, 0.8]])
        state = policy.init(ProblemSpec(2, 2, 2, 2), rng=np.random.default_rng(0))
        links = policy.select(state, context, rng=np.random.default_rng(0)).links
        assert links.tolist() == [0, 1]
        state = policy.commit(state, context, Selection(1, links))
        x = np.array([2.0, 0.8, 1.2]) / 2.0
        np.testing.assert_allclose(state.gram, np.eye(3) + np.outer(x, x))
        status = np.array([Status.COMPLETED, Status.LATE], np.uint8)
        for told in (status, status[[1, 1]]):  # one of two in time; and none
            state = policy.update(state, Feedback(1, links, context.features, told, np.ones(2), links))
        np.testing.assert_allclose(state.moment, 0.5 * x)
