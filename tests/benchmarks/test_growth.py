"""How costs grow: the fit, the groups of the picture, the rows, and a small climb."""

import dataclasses

import pytest
from benchmarks.growth import FLAT, HIERARCHICAL, SORT, Cost, contenders, picture, slope, slope_above
from benchmarks.rows import MET, MISSED

from benchmarks import growth
from fedroster.catalogue import policies

SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)


def costs(policy: str, exponent: float, *, family: str = "flat", factor: float = 1e-7, sizes=SIZES) -> list[Cost]:
    return [Cost(family, policy, size, factor * size**exponent, 1e-6, 7, 20.0) for size in sizes]


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.37, 2.0])
def test_the_slope_of_a_power_is_its_exponent(exponent):
    assert slope(SIZES, [3e-6 * size**exponent for size in SIZES]) == pytest.approx(exponent, abs=1e-12)


def test_small_sizes_where_overhead_rules_do_not_count():
    bent = [dataclasses.replace(cost, decision_s=cost.decision_s + 1e-4) for cost in costs("rbcs-f", 1.0)[:2]]
    whole = bent + costs("rbcs-f", 1.0)[2:]
    assert slope_above(whole) == pytest.approx(1.0)
    assert slope([cost.num_clients for cost in whole], [cost.decision_s for cost in whole]) < 0.9
    uneven = costs("oort", 1.0, sizes=(100, 1_000, 10_000, 30_000, 100_000, 1_000_000))
    uneven[2] = dataclasses.replace(uneven[2], decision_s=2.0 * uneven[2].decision_s)
    assert slope_above(uneven) == pytest.approx(slope_above(uneven[2:])) != pytest.approx(1.0)  # all four count
    assert slope_above(costs("fedcs-greedy", 2.0, sizes=(100, 316, 1_000, 3_162))) == pytest.approx(2.0)


def test_every_flat_policy_is_in_one_panel():
    names, left_out = contenders(FLAT)
    servers, _ = contenders(HIERARCHICAL)
    assert {"rbcs-f", "floor", "oort", "random"} <= set(names)
    assert {"cocs", "partial-pooling", "oracle-p", "random"} <= set(servers)
    # No policy is left out of both without a reason.
    assert set(names) | set(left_out) == set(policies())
    assert set(policies()) <= set(names) | set(servers)
    named = [name for group in growth.PANELS.values() for name in group]
    assert sorted(named) == sorted(names)


def test_the_picture_shows_every_policy_with_its_slope():
    drawn = [*costs("floor", 0.9), *costs("random", 0.5), *costs(SORT, 1.0)]
    drawn += costs("cocs", 1.2, family="hierarchical")
    groups = growth.panels(drawn)
    assert [set(group) for group in groups.values()] == [{"floor", SORT}, {"random", SORT}, {"cocs"}]
    shown = picture(drawn).to_dict()["concat"]
    labels = [label for one in shown for label in one["encoding"]["color"]["scale"]["domain"]]
    slopes = {"floor": "0.90", "np.sort": "1.00", "random": "0.50", "cocs": "1.20"}
    assert labels == [f"{name}: slope {slopes[name]}" for name in ("floor", SORT, "random", SORT, "cocs")]
    text = growth.page(drawn, {"cucb, flat": "measured with 10 servers"})
    assert "| floor | 0.00631 | 0.0501 | 0.398 | 3.16 | 25.1 | 0.90 |" in text
    assert "| floor | 0.001 | 0.001 | 0.001 | 0.001 | 0.001 | 0.00 |" in text
    assert "* cucb, flat: measured with 10 servers" in text


def test_our_own_policies_are_judged_beside_the_published_ones():
    measured = [*costs("rbcs-f", 1.0), *costs("floor", 1.0, factor=1.9e-7)]
    measured += costs("cocs", 1.0, family="hierarchical", sizes=SIZES[:3])
    measured += costs("partial-pooling", 1.0, family="hierarchical", factor=2.1e-7, sizes=(100, 316, 1_000))
    found = list(growth.rows_of(measured))
    assert [row.target for row in found] == ["floor-cost"] * 5 + ["pooling-cost"] * 2
    assert {row.verdict for row in found[:5]} == {MET}
    assert {row.verdict for row in found[5:]} == {MISSED}
    assert found[0].ratio == pytest.approx(1.9)


def climb(ladder, names):
    return growth.climb(dataclasses.replace(ladder, most_counted=8), names, sizes=(100, 150))


@pytest.mark.parametrize(
    ("ladder", "names"), [(FLAT, ["rbcs-f", "tifl", "power-of-choice"]), (HIERARCHICAL, ["partial-pooling", "random"])]
)
def test_a_small_climb(ladder, names):
    found, stopped = climb(ladder, names)
    assert not stopped
    assert [(cost.policy, cost.num_clients) for cost in found] == [
        (name, size) for size in (100, 150) for name in [*names, SORT]
    ]
    assert all(cost.decision_s > 0 for cost in found)
    if ladder is FLAT:
        assert all(cost.chosen == 20.0 for cost in found if cost.policy != SORT)


def test_who_becomes_too_slow_or_too_large_stops(monkeypatch):
    monkeypatch.setattr("benchmarks.growth.LONGEST_S", 1e-9)
    found, stopped = climb(FLAT, ["random"])
    assert [cost.num_clients for cost in found if cost.policy == "random"] == [100]
    assert stopped["random"].startswith("N = 150: a decision would take about ")
    monkeypatch.setattr("benchmarks.growth.LONGEST_S", 1e9)
    monkeypatch.setattr("benchmarks.growth.LARGEST_GIB", 1e-9)
    found, stopped = climb(FLAT, ["rbcs-f"])
    assert [cost.num_clients for cost in found if cost.policy == "rbcs-f"] == [100]
    assert "its state would take about" in stopped["rbcs-f"]
