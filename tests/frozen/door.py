"""The spellings of the door, in one place: where one of them changes it is changed here, and no frozen test is.

Nothing here looks into a file of fedroster, or at a private name.
"""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path

import fedroster
from fedroster.record import Log, verify
from fedroster.selector import trust_of

UNGUARDED = {"guarded": False, "longest_s": None, "longest_absence": None}
"""Options of a selector that believes what clients say; who is absent for long is owed something all the same."""

VIEWS = ("cold", "participation_rates", "backlog", "paused", "open_rounds", "below_promise")
"""What a selector says of its clients when it is asked without arguments."""


def views(selector):
    """All that a selector says of itself, as text: NaN equals NaN."""
    row = [1.0] * (selector.num_features or 1)
    said = {name: getattr(selector, name)() for name in VIEWS}
    said |= {of: selector.participation(of) for of in ("chosen", "trained", "used", "capped")}
    said["trust"] = trust_of(selector)
    said |= {name: getattr(selector, name) for name in ("round", "clients", "num_features", "cohort_size", "rules")}
    said["expected_s"] = selector.expected_times_s(dict.fromkeys(selector.clients, row))
    said["allowed"] = selector.allowed(), selector.allowed("evaluation")
    return {name: repr(value) for name, value in said.items()}


def simulated(policy, scenario, rounds, *, seed, **settings):
    """The rounds of a policy in a scenario, without training."""
    return fedroster.simulate(policy, fedroster.make_scenario(scenario, settings), rounds=rounds, seed=seed)


def reloaded(selector, folder, **options):
    """The same selector in its next life: it was saved and loaded."""
    selector.save(folder / "state", replace=True)
    return type(selector).load(folder / "state", selector.policy, **options)


# -------------------------------------------------------------------- a federation with a record


def recorded(made, policy, folder, *, record=None, **options):
    """A new selector of a class that keeps a record in a folder."""
    return made(policy, observers=[fedroster.Record(folder / "log", **(record or {}))], **options)


def close(selector):
    """Let others write the record."""
    selector.observers[0].close()


def keep(selector, folder):
    """Keep the state beside the record, so that a restart is quick."""
    selector.save(folder / "state", replace=True)


def restarted(made, policy, folder, **record):
    """The selector after a restart, from what its folder holds; None if it holds nothing yet."""
    if (folder / "state").exists():
        return made.load(folder / "state", policy, observers=[fedroster.Record(folder / "log", **record)])
    try:
        log = Log(folder / "log")
    except (FileNotFoundError, fedroster.errors.LogFileError):
        return None
    return log.selector(policy, observers=[fedroster.Record(folder / "log", **record)])


def rebuilt(folder, policy):
    """A selector in the state at the end of a record, made of the record alone."""
    return Log(folder / "log").selector(policy)


def cohorts_of(folder):
    """Number and cohort of each round of a record."""
    log = Log(folder / "log")
    return [(one.round, tuple(log.ids_at(one.round)[slot] for slot in one.chosen.tolist())) for one in log.rounds]


def files_of(folder):
    """The files that hold what was decided, the oldest first."""
    return sorted((folder / "log").glob("rounds-*"))


def head_of(folder):
    """What is kept elsewhere to prove that nothing was cut off."""
    return Log(folder / "log").head


def verified(folder, policy, head=None):
    """What verifying finds: how many rounds were decided again, and whether all is as the record says."""
    found = verify(folder / "log", policy, head=head)
    return found.num_decided, found.is_whole


def is_whole(folder, policy, head=None):
    """Whether nothing is wrong with a record; one that cannot be read is not whole."""
    try:
        return verified(folder, policy, head)[1]
    except (fedroster.FedrosterError, OSError):
        return False


def command(*arguments, code=0):
    """What a command prints."""
    from typer.testing import CliRunner

    from fedroster.cli import app

    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result.output


@contextlib.contextmanager
def full_disk(folder, room=0):
    """No file of this process may grow beyond the largest in a folder, and that by a few bytes at most."""
    sizes = [file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (max(sizes, default=0) + room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
