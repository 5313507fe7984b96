"""Ward's clusters: against the definition and SciPy's tree, with ties, and interpreted as compiled."""

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from fedroster.optimization import ward as module
from fedroster.optimization.ward import ward
from reference import ward_clusters


def sets_of(label):
    assert set(label.tolist()) == set(range(label.max() + 1))
    return {frozenset(np.flatnonzero(label == each).tolist()) for each in range(label.max() + 1)}


def any_distances(n, seed):
    """Distances that fit no space, like angles beside differences."""
    rng = np.random.default_rng(seed)
    apart = np.triu(rng.gamma(2.0, size=(n, n)), 1) + 5.0 * np.abs(np.subtract.outer(*[rng.random(n)] * 2)).round(9)
    apart = np.triu(apart, 1)
    return apart + apart.T


def row_of_growing_gaps(n):
    """Each one's nearest is the one before: the chain goes through all before it merges the first two."""
    place = np.cumsum(np.linspace(1.0, 2.0, n))
    return np.abs(place[:, None] - place)


@pytest.mark.parametrize("seed", range(20))
def test_clusters_are_those_of_the_definition(seed):
    apart = any_distances(15, seed)
    for count in (1, 2, 5, 14, 15, 16):
        assert sets_of(ward(apart**2, count)) == ward_clusters(apart.tolist(), count)


@pytest.mark.parametrize(
    "apart", [any_distances(400, 1), row_of_growing_gaps(400), row_of_growing_gaps(401)[::-1, ::-1]]
)
def test_clusters_are_those_of_scipys_tree(apart):
    tree = linkage(squareform(apart), "ward")
    for count in (1, 7, 100, 399):
        assert sets_of(ward(apart**2, count)) == sets_of(
            np.unique(fcluster(tree, count, "maxclust"), return_inverse=True)[1]
        )


@pytest.mark.parametrize("seed", range(10))
def test_ties_break_nothing(seed):
    """Classes at one distance to each other, as of clients with one label: an update of one's own class is at 0."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 12, 90)
    apart = np.where(kind[:, None] == kind, 0.0, rng.choice([np.pi / 2, 0.1, 1.0 / 3.0]))
    found = np.zeros((2, 89), np.int64)
    module._chain(apart**2, found[0], found[1], np.zeros(89))
    assert len(set(found[0].tolist())) == 89  # none is merged twice
    num_kinds = len(set(kind.tolist()))
    assert sets_of(ward(apart**2, num_kinds)) == sets_of(np.unique(kind, return_inverse=True)[1])
    assert ward(apart**2, 1).tolist() == [0] * 90


def test_merges_at_one_distance_are_done_together():
    """Two pairs at the same distance, and three clusters asked for: two are left."""
    apart = np.full((4, 4), 9.0)
    apart[0, 1] = apart[1, 0] = apart[2, 3] = apart[3, 2] = 1.0
    np.fill_diagonal(apart, 0.0)
    assert sets_of(ward(apart**2, 3)) == {frozenset({0, 1}), frozenset({2, 3})}


def test_interpreted_and_compiled_merge_alike():
    square = any_distances(60, 3) ** 2
    found = []
    for run in (module._chain.interpret, module._chain):
        merges, cost = np.zeros((2, 59), np.int64), np.zeros(59)
        run(square.copy(), merges[0], merges[1], cost)
        found.append((merges.tolist(), cost.tolist()))
    assert found[0] == found[1]
