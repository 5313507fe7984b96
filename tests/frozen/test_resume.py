"""A selector that is saved and loaded, at any call, goes on as one that was never stopped."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from fedroster import RBCSF, FedrosterError, Selector, make_policy
from fedroster.errors import InUseError, StateFileError
from frozen import door
from frozen.calls import Mine, begun, call, make
from frozen.digests import EDGES, FLAT
from frozen.world import PROFILES, Fleet

FLOOR = "floor:beta=0.1"


@pytest.mark.parametrize("name", [*FLAT, FLOOR, "mine", *(f"edges {name}" for name in EDGES)])
def test_loaded_after_any_call(name, tmp_path):
    policy = Mine() if name == "mine" else make_policy(name.removeprefix("edges "))
    never, often = (make(policy, edges=name.startswith("edges")) for _ in range(2))
    for number in range(50):
        if number % 2:
            often = door.reloaded(often, tmp_path)
            assert door.views(often) == door.views(never)
        assert call(often, number) == call(never, number)
    assert door.views(often) == door.views(never)


@pytest.mark.parametrize("way", PROFILES)
@pytest.mark.parametrize("name", ["rbcs-f:V=20,beta=0.15", "tifl", "edges partial-pooling"])
def test_loaded_in_any_round_of_a_long_history(name, way, tmp_path):
    edges, policy = name.startswith("edges"), make_policy(name.removeprefix("edges "))
    if edges and not PROFILES[way].contexts:
        return
    never, often = (Fleet(policy, PROFILES[way], seed=9, edges=edges) for _ in range(2))
    for cohort in never.play(70):
        if cohort.round % 7 == 0:
            often.selector = door.reloaded(often.selector, tmp_path, clock=often.clock)
        assert next(often.play(1)) == cohort
    assert door.views(often.selector) == door.views(never.selector)


ELSEWHERE = """
import sys
from pathlib import Path
from fedroster import RBCSF, Selector
from frozen import door
from frozen.calls import call

selector = Selector.load(Path(sys.argv[1]) / "state", RBCSF(V=5.0, beta=0.1))
print([call(selector, number) for number in range(30, 45)], door.views(selector))
"""


def test_loaded_in_another_process(tmp_path):
    selector = make(RBCSF(V=5.0, beta=0.1))
    for number in range(30):
        call(selector, number)
    door.reloaded(selector, tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, tmp_path],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == f"{[call(selector, n) for n in range(30, 45)]} {door.views(selector)}"


def test_a_damaged_file_is_refused_or_means_the_same(tmp_path):
    selector = make(RBCSF(V=5.0, beta=0.1))
    for number in range(30):
        call(selector, number)
    door.reloaded(selector, tmp_path)
    file, before = tmp_path / "state", door.views(selector)
    whole, rng, refused = file.read_bytes(), np.random.default_rng(0), 0
    for place in rng.choice(len(whole), 80, replace=False):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        file.write_bytes(damaged if place % 2 else damaged[:place])
        try:
            assert door.views(Selector.load(file, selector.policy)) == before
        except StateFileError:
            refused += 1
    assert refused > 40
    file.write_bytes(whole)
    for other in (RBCSF(V=6.0, beta=0.1), Mine()):
        with pytest.raises(FedrosterError):
            Selector.load(file, other)
    assert file.read_bytes() == whole


def test_a_file_of_another_selector_is_not_replaced(tmp_path):
    first, second = make(Mine()), make(Mine())
    first.save(tmp_path / "state")
    with pytest.raises(InUseError):
        second.save(tmp_path / "state")
    loaded = Selector.load(tmp_path / "state", Mine())
    call(loaded, 0)
    loaded.save(tmp_path / "state")
    with pytest.raises(InUseError):
        first.save(tmp_path / "state")
    assert Selector.load(tmp_path / "state", Mine()).round == loaded.round


def test_a_save_that_fails_leaves_the_file_before(tmp_path):
    selector = make(Mine())
    call(selector, 1)
    before = door.views(door.reloaded(selector, tmp_path))
    selector.join([f"new-{number}" for number in range(200)])  # a larger file
    with door.full_disk(tmp_path), pytest.raises(OSError, match="too large"):
        selector.save(tmp_path / "state", replace=True)
    assert door.views(Selector.load(tmp_path / "state", Mine())) == before
    assert door.views(door.reloaded(selector, tmp_path)) == door.views(selector)


# -------------------------------------------------------------------- with a record, killed at a byte


def killed_at(size, made, policy, given, folder):
    """Play calls in a process that the system kills when a file would grow beyond a size; how many it acknowledged."""
    import resource

    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
            selector = door.recorded(made, policy, folder, **given)
            for number in range(CALLS):
                call(selector, number, rules=False)
                os.write(writer, b".")
                if number % 10 == 9:
                    door.keep(selector, folder)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        acknowledged = len(stream.read())
    return acknowledged, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


CALLS = 45


@pytest.mark.parametrize("name", ["rbcs-f:V=5,beta=0.1", "edges cocs:h_T=2", "mine"])
def test_killed_at_any_byte(name, tmp_path):
    """What was acknowledged is there, the rest in whole or not at all, and the next decisions are those to come."""
    policy = Mine() if name == "mine" else make_policy(name.removeprefix("edges "))
    made, _, given = begun(policy, edges=name.startswith("edges"))
    twin, states, said = made(policy, **given), [], []
    for number in range(CALLS + 15):
        states.append(door.views(twin))
        said.append(call(twin, number, rules=False))
    kills = 0
    for size in range(500, 60_000, 1777):
        folder = tmp_path / str(size)
        folder.mkdir()
        acknowledged, code = killed_at(size, made, policy, given, folder)
        kills += code == -signal.SIGXFSZ
        assert code in (0, -signal.SIGXFSZ)
        selector = door.restarted(made, policy, folder)
        if selector is None:
            assert not acknowledged
            continue
        now = door.views(selector)
        possible = states[acknowledged : acknowledged + 2]
        if not acknowledged and selector.round == 0:  # its first clients may not have joined yet
            continue
        assert now in possible
        done = acknowledged + (now != possible[0])
        assert [call(selector, number, rules=False) for number in range(done, done + 12)] == said[done : done + 12]
        door.close(selector)
        assert door.verified(folder, policy)[1]
        if not code:
            break
    assert kills > 10
    assert not code  # the last one was not killed
