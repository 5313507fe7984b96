"""The record says what was decided; what was changed in it is found; and it goes on through restarts."""

import gzip

import numpy as np
import pytest

from fedroster import RBCSF, FedrosterError, Record, Rules, Selector, Uniform, make_policy
from fedroster.errors import InUseError
from frozen.calls import RULES, Mine, begun, call
from frozen.digests import EDGES, FLAT
from frozen.door import (
    close,
    cohorts_of,
    files_of,
    full_disk,
    head_of,
    is_whole,
    keep,
    rebuilt,
    recorded,
    restarted,
    verified,
    views,
)


@pytest.fixture(autouse=True)
def honest():
    yield
    Mine.lies_in = 0


def federation(folder, policy=None, *, edges=False, calls=70, record=None, **options):
    """A federation that has made some calls; with what was asked and answered."""
    made, policy, given = begun(policy or RBCSF(V=5.0, beta=0.1), edges=edges, **options)
    selector = recorded(made, policy, folder, record=record, **given)
    return selector, [call(selector, number) for number in range(calls)]


def cohorts(said):
    return [(one.round, one.clients) for what, one in said if what == "ask"]


@pytest.mark.parametrize("name", [*FLAT, "floor:beta=0.1", "mine", *(f"edges {name}" for name in EDGES)])
def test_a_record_says_what_was_decided_and_every_decision_is_made_again(name, tmp_path):
    policy = Mine() if name == "mine" else make_policy(name.removeprefix("edges "))
    selector, said = federation(tmp_path, policy, edges=name.startswith("edges"))
    close(selector)
    assert cohorts_of(tmp_path) == cohorts(said)
    assert verified(tmp_path, policy) == (selector.round, True)
    again = rebuilt(tmp_path, policy)
    assert views(again) == views(selector)
    assert [call(again, number) for number in range(70, 80)] == [call(selector, number) for number in range(70, 80)]


@pytest.mark.parametrize("lies_in", [1, 9])
def test_a_changed_cohort_is_found(lies_in, tmp_path):
    Mine.lies_in = lies_in
    selector, _ = federation(tmp_path, Mine())
    close(selector)
    assert is_whole(tmp_path, Mine())
    Mine.lies_in = 0
    assert not is_whole(tmp_path, Mine())
    assert not is_whole(tmp_path, Uniform())  # it is no record of this policy


@pytest.mark.parametrize("how", ["changed", "cut", "doubled"])
def test_whatever_is_done_to_its_bytes_is_found_by_who_kept_its_head(how, tmp_path):
    selector, _ = federation(tmp_path, record={"rotate_bytes": 6000})
    close(selector)
    head, rng, tried = head_of(tmp_path), np.random.default_rng(0), 0
    assert is_whole(tmp_path, selector.policy, head)
    files = files_of(tmp_path)
    assert len(files) > 3
    for place in rng.random(25).tolist():
        file = files[int(rng.integers(len(files)))]
        content = file.read_bytes()
        packed = content[:2] == b"\x1f\x8b"
        plain = gzip.decompress(content) if packed else content
        at = int(place * (len(plain) - 1))
        if how == "cut":
            other = plain[:at]
        elif how == "doubled":
            other = plain[:at] + plain[max(0, at - 200) : at] + plain[at:]
        else:
            other = plain[:at] + bytes([plain[at] ^ (1 << int(rng.integers(8)))]) + plain[at + 1 :]
        if other != plain:
            tried += 1
            file.write_bytes(gzip.compress(other) if packed else other)
            assert not is_whole(tmp_path, selector.policy, head), (file.name, at)
        file.write_bytes(content)
    assert tried > 20
    assert is_whole(tmp_path, selector.policy, head)


def test_a_cut_end_is_a_shorter_record_that_goes_on(tmp_path):
    """Without its head that cannot be seen; what is left is what was decided, and a restart goes on from there."""
    selector, said = federation(tmp_path, calls=30)
    close(selector)
    (file,) = files_of(tmp_path)
    whole, decided = file.read_bytes(), cohorts(said)
    for size in np.linspace(len(whole) // 4, len(whole) - 1, 12).astype(int).tolist():
        file.write_bytes(whole[:size])
        left = cohorts_of(tmp_path)
        assert left == decided[: len(left)]
        assert is_whole(tmp_path, selector.policy)
        again = restarted(Selector, selector.policy, tmp_path)
        assert again.round == len(left)
        more = call(again, 99)
        assert cohorts_of(tmp_path) == left + cohorts([more])
        close(again)
        assert is_whole(tmp_path, selector.policy)


@pytest.mark.parametrize("name", ["rbcs-f:V=5,beta=0.1", "oort", "edges partial-pooling"])
def test_it_goes_on_through_restarts(name, tmp_path):
    policy, edges = make_policy(name.removeprefix("edges ")), name.startswith("edges")
    made, policy, given = begun(policy, edges=edges)
    twin, selector = made(policy, **given), recorded(made, policy, tmp_path, **given)
    said = []
    for number in range(80):
        if number % 8 == 5:
            keep(selector, tmp_path)
        if number % 13 == 12:  # some calls after it was kept
            close(selector)
            selector = restarted(made, policy, tmp_path)
        said.append(call(selector, number, rules=False))
        assert said[-1] == call(twin, number, rules=False)
    assert views(selector) == views(twin)
    close(selector)
    assert cohorts_of(tmp_path) == cohorts(said)
    assert verified(tmp_path, policy) == (twin.round, True)


def test_a_record_has_one_writer_and_one_federation(tmp_path):
    selector, _ = federation(tmp_path, calls=20)
    keep(selector, tmp_path)
    with pytest.raises(InUseError):
        Record(tmp_path / "log")
    close(selector)
    made, policy, given = begun(selector.policy)
    with pytest.raises(FedrosterError):  # a new selector does not go on in an old record
        recorded(made, policy, tmp_path, **given)
    (tmp_path / "other").mkdir()
    other, _ = federation(tmp_path / "other", calls=10, seed=8)
    keep(other, tmp_path)  # where the first one's state was
    close(other)
    with pytest.raises(FedrosterError):  # nor one that was loaded in another one's
        restarted(made, policy, tmp_path)
    with pytest.raises((FedrosterError, FileNotFoundError)):
        cohorts_of(tmp_path / "nowhere")


def test_with_a_key_no_name_is_kept(tmp_path):
    key = b"0123456789abcdef"
    selector, said = federation(tmp_path, record={"key": key}, rules=Rules(deny=["site-4"]), calls=40)
    keep(selector, tmp_path)
    close(selector)
    assert b"site-" not in b"".join(file.read_bytes() for file in files_of(tmp_path))
    read = cohorts_of(tmp_path)
    assert [(number, len(clients)) for number, clients in read] == [(n, len(clients)) for n, clients in cohorts(said)]
    assert is_whole(tmp_path, selector.policy)
    again = restarted(Selector, selector.policy, tmp_path, key=key)
    assert views(again) == views(selector)


def test_without_contexts_less_is_kept_and_the_chain_is_still_followed(tmp_path):
    (tmp_path / "small").mkdir()
    selector, said = federation(tmp_path)
    small, same = federation(tmp_path / "small", record={"contexts": False})
    for each in (selector, small):
        close(each)
    assert same == said
    sizes = [sum(file.stat().st_size for file in files_of(each)) for each in (tmp_path, tmp_path / "small")]
    assert sizes[1] < 0.8 * sizes[0]
    assert cohorts_of(tmp_path / "small") == cohorts(said)
    assert verified(tmp_path / "small", small.policy) == (0, True)


def test_rounds_may_go_on_while_the_disk_is_full(tmp_path, caplog):
    made, policy, given = begun(RBCSF(V=5.0, beta=0.1))
    twin, selector = made(policy, **given), recorded(made, policy, tmp_path, record={"on_error": "warn"}, **given)
    lost = set()
    for number in range(40):
        expected = call(twin, number, rules=False)
        if 15 <= number < 22:
            with full_disk(tmp_path):
                assert call(selector, number, rules=False) == expected
            lost |= {twin.round} if expected[0] == "ask" else set()
        else:
            assert call(selector, number, rules=False) == expected
    close(selector)
    assert caplog.text
    assert {number for number, _ in cohorts_of(tmp_path)} == set(range(1, twin.round + 1)) - lost
    assert views(rebuilt(tmp_path, policy)) == views(twin)
    assert len(RULES) == 3
    assert lost
