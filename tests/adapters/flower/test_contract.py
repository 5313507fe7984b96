"""The selecting grid keeps the contract of engines, on a virtual clock."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="needs Flower: run .ci/flower, or install the extra 'flower'")

from fake_grid import Clock, FakeGrid, FakeNode, train_messages

from fedroster.adapters.flower import ContextOptions, RoundRules, SelectingGrid
from fedroster.testing import EngineContract

FATES = {"fails": "error", "malformed": "nan", "silent": "silent"}


class ScriptedGrid(FakeGrid):
    """Nodes that do what their scripts say."""

    def __init__(self, clock, scripts, contract) -> None:
        super().__init__(clock, {100 + n: FakeNode(name, registered=name) for n, name in enumerate(scripts)})
        self.scripts, self.contract, self.ends = scripts, contract, []

    def _react(self, node_id, message) -> None:
        self._end_what_is_done()
        node = self.nodes[node_id]
        if message.metadata.message_type.startswith("train"):
            script = self.scripts[node.name]
            fate = script.begin()
            times_s = {"slow": self.contract.slow_s, "late": self.contract.late_s}
            node.fate, node.trained, node.delay_s = (
                (FATES.get(fate, "ok"),),
                0,
                times_s.get(fate, self.contract.quick_s),
            )
            if fate != "silent":
                self.ends.append((self.clock.now() + node.delay_s, script))
        super()._react(node_id, message)

    def pull_messages(self, message_ids):
        self._end_what_is_done()
        return super().pull_messages(message_ids)

    def _end_what_is_done(self) -> None:
        for due, script in [end for end in self.ends if end[0] <= self.clock.now()]:
            self.ends.remove((due, script))
            script.end()


class TestGrid(EngineContract):
    quick_s, slow_s, deadline_s, late_s, give_up_s = 1.0, 3.0, 10.0, 15.0, 30.0

    def engine(self, clients, selector, *, state_dir=None):
        clock = Clock()
        fake = ScriptedGrid(clock, clients, self)
        rules = RoundRules(deadline_s=self.deadline_s, give_up_s=self.give_up_s)
        grid = SelectingGrid(
            fake, selector, None, contexts=ContextOptions(), rules=rules, state_dir=state_dir, clock=clock
        )
        names = {node_id: node.name for node_id, node in fake.nodes.items()}

        class Running:
            selector = property(lambda _: grid.selector)

            def play(self):
                replies = grid.send_and_receive(train_messages(fake.get_node_ids()))
                return {names[reply.metadata.src_node_id] for reply in replies if reply.has_content()}

        running = Running()
        running.wait, running.stop = clock.sleep, grid.release
        return running
