"""The contract of engines holds for a loop of ask and tell, and finds what is planted in it."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from fedroster import Rules, Selector
from fedroster.testing import EngineContract


class Loop:
    """An engine on a virtual clock; ``fault`` says what it does wrong."""

    def __init__(self, contract, clients, selector, state_dir, fault="") -> None:
        self.contract, self.clients, self.fault, self.now_s = contract, clients, fault, 0.0
        self.file = None if state_dir is None else state_dir / "selector.npz"
        if self.file is not None and self.file.exists() and fault != "forgets the file":
            selector = Selector.load(self.file, selector.policy)
        if fault == "forgets the rules":
            selector.rules = Rules()
        self.selector, self.awaited = selector, {}

    def _tell(self, number, how, name, time_s=None):
        times_s = None if time_s is None else {name: time_s}
        round_s = None if time_s is not None or self.fault == "tells no length" else self.contract.deadline_s
        self.selector.observe(number, **{how: [name]} if how else {}, times_s=times_s, round_s=round_s)

    def _meet(self, until_s):
        """Take the answers of stragglers."""
        for name, (number, due_s, late_s, fate) in list(self.awaited.items()):
            if min(due_s, late_s) <= until_s:
                del self.awaited[name]
                is_answer = due_s <= late_s
                if is_answer:
                    self.clients[name].end()
                if self.fault == "forgets stragglers":
                    continue
                if is_answer and self.fault != "drops the late":
                    self._tell(number, "late", name, fate)
                else:
                    self._tell(number, "dropped", name)

    def wait(self, seconds):
        self.now_s += seconds
        self._meet(self.now_s)

    def stop(self):
        pass

    def play(self):
        self._meet(self.now_s)
        names = list(self.clients)
        self.selector.join(set(names) - set(self.selector.clients))
        free = [name for name in names if name not in self.awaited or self.fault == "calls the busy"]
        cohort = self.selector.select(np.ones((len(free), 3)), clients=free)
        if self.file is not None:
            self.selector.save(self.file)
        called = free if self.fault == "calls all" else cohort.clients
        used, c = set(), self.contract
        for name in called:
            fate = self.clients[name].begin()
            time_s = {"slow": c.slow_s, "late": c.late_s, "fails": 0.0}.get(fate, c.quick_s)
            if fate == "silent" or time_s > c.deadline_s:
                if fate == "late" and self.fault == "uses the late":
                    used.add(name)
                due_s = np.inf if fate == "silent" else self.now_s + time_s
                self.awaited[name] = cohort.round, due_s, self.now_s + c.give_up_s, time_s
                continue
            self.clients[name].end()
            if fate == "ok" or fate == "slow" or (fate == "malformed" and self.fault == "uses anything"):
                used.add(name)
                told_s = 0.5 * time_s if self.fault == "believes the client's clock" else time_s
                if name in cohort.clients:
                    self._tell(cohort.round, "", name, told_s)
            elif self.fault == "a failure is an answer":
                self._tell(cohort.round, "", name, c.quick_s)
            elif self.fault == "stops at a failure":
                raise RuntimeError("a client failed")
            else:
                self._tell(cohort.round, "failed", name)
        self.now_s += c.deadline_s
        return used


class LoopContract(EngineContract):
    fault = ""

    def engine(self, clients, selector, *, state_dir=None):
        return Loop(self, clients, selector, state_dir, self.fault)


class TestLoop(LoopContract):
    pass


def test_what_an_engine_cannot_is_a_test_of_the_contract_with_a_reason():
    class Simple(LoopContract):
        cannot = {"test_rules_hold": "it has no rules"}

    assert Simple.test_rules_hold is None
    assert LoopContract.test_rules_hold is not None
    for cannot in ({"test_nothing": "a reason"}, {"test_rules_hold": ""}, {"engine": "a reason"}):
        with pytest.raises(TypeError, match="expected a test of EngineContract"):
            type("Wrong", (LoopContract,), {"cannot": cannot})


@pytest.mark.parametrize(
    ("fault", "test"),
    [
        ("calls all", "the_cohort_is_called_and_no_other_client"),
        ("calls all", "counts_equal_the_clients_own"),
        ("believes the client's clock", "times_are_measured_at_the_server"),
        ("uses the late", "a_late_update_is_not_used_and_is_learned_from"),
        ("drops the late", "a_late_update_is_not_used_and_is_learned_from"),
        ("calls the busy", "a_client_that_is_still_busy_is_not_called_again"),
        ("a failure is an answer", "a_client_that_fails_neither_stops_the_run_nor_looks_fast"),
        ("tells no length", "a_failure_never_looks_fast"),
        ("tells no length", "a_drop_out_never_looks_fast"),
        ("stops at a failure", "a_round_in_which_all_fail_ends"),
        ("uses anything", "a_malformed_update_is_refused"),
        ("forgets stragglers", "a_silent_client_drops_out_and_comes_back"),
        ("forgets the rules", "rules_hold"),
        ("forgets the file", "a_restart_goes_on_and_counts_no_client_twice"),
    ],
)
def test_a_planted_fault_is_found(fault, test, tmp_path):
    contract = LoopContract()
    contract.fault = fault
    method = getattr(contract, f"test_{test}")
    with pytest.raises((AssertionError, RuntimeError)):
        method(*([tmp_path] if inspect.signature(method).parameters else []))
