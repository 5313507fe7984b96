"""A run that is killed between its log and its file, or in the middle of saving, goes on in both."""

import gc
import logging
from dataclasses import asdict

import pytest

from fedroster import RBCSF, Record, Selector
from fedroster.core.problem import Status
from fedroster.engine.choose import Node
from fedroster.engine.contexts import NodeContext
from fedroster.engine.files import Round, StateFolder, saved_round
from fedroster.engine.losses import Losses
from fedroster.engine.outcomes import Outcomes
from fedroster.engine.rounds import Rounds
from fedroster.engine.rules import RoundRules
from fedroster.errors import LogFileError, StateFileError
from fedroster.record import Log, verify

POLICY = RBCSF(V=5.0, beta=0.1)
NODES = ["a", "b", "c", "d"]


class Run:
    """What an engine does: choose, save, train, tell, save; killed where it is told."""

    def __init__(self, folder, **options):
        fresh = Selector(POLICY, cohort_size=2, observers=[record := Record(folder / "log", **options)])
        self.record, self.folder = record, StateFolder(folder / "state")
        self.selector, self.round = self.folder.resume(fresh)

    def kill(self):
        self.record.close()
        self.folder.release()

    def choose(self, *, save=True):
        if not self.selector.clients:
            self.selector.join(NODES)
        cohort = self.selector.select({name: [1.0 + number] for number, name in enumerate(NODES)})
        if save:
            self.save(Round(cohort.round, dict.fromkeys(cohort.clients, 0), is_done=False))
        return cohort

    def tell(self, cohort, *, save=True):
        self.selector.observe(cohort.round, times_s=dict.fromkeys(cohort.clients, 2.0), again="ignore")
        if save:
            self.save(Round(cohort.round, dict.fromkeys(cohort.clients, 0)))

    def save(self, round_):
        self.folder.save(self.selector, round_)


def played(folder, rounds, **options):
    run = Run(folder, **options)
    for _ in range(rounds):
        run.tell(run.choose())
    return run


def test_killed_after_the_decision_and_before_it_was_saved(tmp_path):
    run = played(tmp_path, 3)
    cohort = run.choose(save=False)
    run.kill()
    again = Run(tmp_path)
    assert (again.round.number, again.round.is_done) == (4, False)
    assert again.round.clients.keys() == set(cohort.clients)
    again.tell(cohort)
    again.tell(again.choose())
    again.kill()
    assert [each.round for each in Log(tmp_path / "log").rounds] == [1, 2, 3, 4, 5]
    assert verify(tmp_path / "log", POLICY).is_whole


def test_killed_after_the_answers_and_before_they_were_saved(tmp_path):
    run = played(tmp_path, 3)
    cohort = run.choose()
    run.tell(cohort, save=False)
    run.kill()
    again = Run(tmp_path)
    assert again.selector.open_rounds() == {}
    assert again.round.number == 4
    again.tell(cohort)
    assert sum(again.selector.participation("trained").values()) == 8
    again.kill()
    assert verify(tmp_path / "log", POLICY).is_whole


def test_killed_before_the_first_save(tmp_path):
    run = Run(tmp_path)
    cohort = run.choose(save=False)
    run.kill()
    again = Run(tmp_path)
    assert again.selector.round == 1
    assert again.round.clients.keys() == set(cohort.clients)
    again.kill()
    assert verify(tmp_path / "log", POLICY).is_whole


def test_a_log_of_hashes_cannot_stand_in_for_the_first_save(tmp_path):
    run = Run(tmp_path, key=b"0123456789abcdef")
    run.choose(save=False)
    run.kill()
    with pytest.raises(LogFileError, match="hashes in place of ids"):
        Run(tmp_path, key=b"0123456789abcdef")


def test_a_log_that_ends_before_the_saved_state_says_so(tmp_path, caplog):
    run = played(tmp_path, 3)
    run.kill()
    (file,) = (tmp_path / "log").glob("*.jsonl")
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))  # as a disk does that was not synced
    again = Run(tmp_path)
    assert "ends before the selector's file" in caplog.text
    again.tell(again.choose())
    again.kill()
    log = Log(tmp_path / "log")
    assert [each.round for each in log.rounds] == [1, 2, 3, 4]
    assert log.rounds[2].status.tolist() == [255, 255]
    assert verify(tmp_path / "log", POLICY, allow_gaps=True).is_whole
    (start,) = verify(tmp_path / "log", POLICY).starts
    assert (start.after, start.round) == (3, 3)  # answers are missing


def test_a_simulation_that_goes_back_takes_its_log_back(tmp_path):
    selector = Selector(POLICY, cohort_size=2, clients=NODES, observers=[record := Record(tmp_path / "log")])
    selector.select()
    selector.save(tmp_path / "s.npz")
    selector.select()
    record.close()
    again = Selector.load(tmp_path / "s.npz", POLICY, observers=[record := Record(tmp_path / "log")], catch_up=False)
    assert again.round == 1
    again.select()
    record.close()
    assert [each.round for each in Log(tmp_path / "log").rounds] == [1, 2]
    assert verify(tmp_path / "log", POLICY).is_whole


@pytest.mark.parametrize("share", [0.001, 0.3, 0.7, 0.999])
def test_killed_in_the_middle_of_saving(tmp_path, caplog, share):
    run = played(tmp_path, 3)
    file = tmp_path / "state" / "selector.npz"
    before, content = saved_round(tmp_path / "state"), file.stat().st_size
    cohort = run.choose()
    run.kill()
    with file.open("r+b") as opened:
        opened.truncate(content + max(1, int(share * (file.stat().st_size - content))))
    again = Run(tmp_path)
    assert "ended in the middle of a state" in caplog.text
    assert again.selector.round == 4  # its record knows of the decision
    assert again.round.clients.keys() == set(cohort.clients)
    again.kill()
    assert saved_round(tmp_path / "state") == before
    assert file.stat().st_size == content
    assert verify(tmp_path / "log", POLICY).is_whole


@pytest.mark.parametrize("is_settled", [False, True])
def test_a_run_that_ends_by_itself_keeps_the_answers_of_its_last_round(is_settled, tmp_path):
    selector = Selector(POLICY, cohort_size=2, clients=NODES)
    rounds = Rounds(selector, rules=RoundRules(), state_dir=tmp_path, log=logging.getLogger(__name__))
    nodes = [Node(number, NodeContext(name), 0.0, registered=True) for number, name in enumerate(NODES)]
    for _ in range(3):
        choice = rounds.choose(nodes, 1e6, {})
        outcomes = Outcomes()
        for name in choice.clients:
            outcomes.answered(name, 2.0, Losses())
            outcomes.status[name] = Status.COMPLETED
        rounds.end(choice, outcomes, 2.0, select_s=0.0, num_connected=4, num_available=4)
    if is_settled:
        rounds.settle(save=False)
    chosen = {*choice.clients}
    del rounds  # as at the end of a process, which runs the same finalizers
    gc.collect()
    assert saved_round(tmp_path).is_done is is_settled
    again, round_ = StateFolder(tmp_path).resume(Selector(POLICY, cohort_size=2))
    assert again.open_rounds() == {}
    assert sum(again.participation("trained").values()) == 6
    assert (round_.number, {*round_.clients}) == (3, chosen)


def test_a_bandwidth_beyond_any_float_is_refused():
    saved = asdict(Round(3, {"a": 1}, bandwidth_bps={"a": 1e6}))
    assert Round.unpack(saved).bandwidth_bps == {"a": 1e6}
    with pytest.raises(StateFileError, match="engine_round is damaged"):
        Round.unpack(saved | {"bandwidth_bps": {"a": 10**400}})
