"""What is registered is what is tested, and a run cannot be older than its registry."""

import dataclasses
import json

import pytest

from fedroster.core.state import load_arrays
from fedroster.lab.trials.store import read_json
from fedroster.lab.verdicts import registry
from fedroster.lab.verdicts.paper import find_paper, papers
from fedroster.lab.verdicts.registry import Registered, planned, registered
from fedroster.lab.verdicts.reproduce import Order, reproduce


@pytest.mark.parametrize("paper", papers())
def test_every_claim_is_registered_as_it_is_tested(paper):
    """After a change of a claim: python -m fedroster.lab.verdicts.registry PAPER, and its runs are to be made again."""
    entry = registered(paper)
    assert dict(entry.claims) == planned(find_paper(paper))
    assert entry.looks == (2 if paper == "cocs" else 1)  # its own local work was judged at ten seeds first
    assert all(min(seeds) >= 1000 for seeds in entry.seeds.values())


def small(folder, *, pages=False, **changes):
    order = Order("rbcs-f", [0, 1], ["4"])
    return reproduce(dataclasses.replace(order, **changes), folder, command="", workers=1, pages=pages)


@pytest.fixture
def entered(monkeypatch):
    """An entry for what :func:`small` makes, in 20 rounds where the paper has 500."""
    paper = dataclasses.replace(find_paper("rbcs-f"), rounds=20)
    monkeypatch.setattr("fedroster.lab.verdicts.reproduce.find_paper", lambda name: paper)

    def enter(made, **changes):
        claims = {verdict.claim.name: registry.tested(verdict.claim) for verdict in made}
        entry = dataclasses.replace(Registered("2026-01-31", 1, {"simulation": [0, 1]}, claims), **changes)
        monkeypatch.setattr("fedroster.lab.verdicts.reproduce.registered", lambda paper: entry)
        return entry

    return enter


def test_a_run_carries_the_digest_and_the_page_says_so(tmp_path, entered):
    entry = entered(small(tmp_path / "old"))
    for name in ("old", "new"):  # what was kept is older than the entry
        small(tmp_path / name, pages=name == "new")
    old, new = (read_json(tmp_path / name / "settings.json") for name in ("old", "new"))
    assert old["registered"] == "no: 14 runs are older than the registry"
    assert new["registry"] == entry.digest
    assert new["registered"] == "yes, on 2026-01-31: claims, margins, 3 tested claims as one family, seeds, 1 look"
    assert f"(Registry {entry.digest}.)" in (tmp_path / "new" / "index.md").read_text()
    for file in (tmp_path / "new" / "trials").glob("*.npz"):
        assert load_arrays(file, kind="run")[1]["registry"] == entry.digest


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"seeds": {"simulation": [0, 1, 2]}}, "the seeds of simulation differ"),
        ({"claims": {}}, "the claim uneven-with-V differs; the claim fedcs-least-even differs; "),
    ],
)
def test_what_differs_from_the_registry_is_said(tmp_path, entered, change, fault):
    entered(small(tmp_path / "first"), **change)
    small(tmp_path / "second")
    assert read_json(tmp_path / "second" / "settings.json")["registered"].startswith(f"no: {fault}")


@pytest.mark.parametrize(
    ("change", "fault"),
    [({"rounds": 10}, "rounds were changed"), ({"scale": "smoke", "figures": ["5-effect"]}, "the size is smoke")],
)
def test_other_rounds_or_another_size_are_not_registered(tmp_path, entered, change, fault):
    made = small(tmp_path / "first", **change)
    entered(made, seeds={"simulation": [0, 1], "training": [0, 1]})
    small(tmp_path / "second", **change)
    assert read_json(tmp_path / "second" / "settings.json")["registered"] == f"no: {fault}"


def test_the_family_is_that_of_the_paper_and_each_of_two_looks_has_half_the_level(tmp_path, entered):
    alone = small(tmp_path, seeds=list(range(8)))
    entered(alone)
    one = small(tmp_path, seeds=list(range(8)))
    entered(alone, claims={str(i): {"parts": [""]} for i in range(1000)})
    assert small(tmp_path, seeds=list(range(8)))[1].p_holds > 5 * alone[1].p_holds > 0.0
    entered(alone, looks=2)
    two = small(tmp_path, seeds=list(range(8)))
    assert any(verdict.levels for verdict in one)
    assert [verdict.levels for verdict in two] == [tuple(level / 2 for level in verdict.levels) for verdict in one]


def test_entering_a_paper_again_keeps_seeds_and_day_and_what_ran_before_an_addition(monkeypatch, tmp_path):
    """What ran before claims were added is registered still; after a change of what was tested it is not."""
    file = tmp_path / "registry.json"
    file.write_text(registry.FILE.read_text())
    monkeypatch.setattr(registry, "FILE", file)
    whole = registered("rbcs-f")
    for change, kept in (({}, True), ({"flat": whole.claims["flat"] | {"tested": "something else"}}, False)):
        fewer = {name: claim for name, claim in whole.claims.items() if name != "between"} | change
        first = dataclasses.replace(whole, claims=fewer, before=["0" * 16])
        file.write_text(json.dumps({"rbcs-f": dataclasses.asdict(first)}))
        registry.main(["rbcs-f"])
        again = registered("rbcs-f")
        assert (again.claims, again.since, again.seeds) == (whole.claims, whole.since, whole.seeds)
        assert again.before == (["0" * 16, first.digest] if kept else [])
        assert bool(again.faults([], {}, [first.digest])) is not kept
    # Where nothing was registered before, nothing older counts.
    file.write_text(json.dumps({"rbcs-f": dataclasses.asdict(dataclasses.replace(whole, claims={}))}))
    registry.main(["rbcs-f"])
    assert registered("rbcs-f").before == []
    assert registered("another-package") is None
