"""What each part of partial pooling brings: a line for every variant, and no two the same policy."""

from benchmarks.partial_pooling import NETWORKS, VARIANTS, table

from fedroster.catalogue import make_policy
from fedroster.policies import PartialPooling


def test_each_variant_has_a_line(monkeypatch):
    monkeypatch.setattr("benchmarks.partial_pooling.NETWORKS", {"turns": NETWORKS["turns"]})
    lines = table((0, 1), 12, 1).splitlines()
    assert [line.split(" | ")[0].removeprefix("| ") for line in lines[2:]] == list(VARIANTS)
    assert all(line.count(" % (") == 1 for line in lines[2:])


def test_every_variant_differs():
    made = [make_policy(policy) for policy in VARIANTS.values()]
    assert all(isinstance(policy, PartialPooling) for policy in made)
    assert len(set(made)) == len(made)
