"""Fed-BioMed 6.4: a strategy that asks a selector which nodes train, and goes on with those that answered."""

from __future__ import annotations

import time
from typing import Any

from fedbiomed.researcher.strategies.default_strategy import DefaultStrategy

from fedroster import Selector


class SelectedNodes(DefaultStrategy):
    """``Experiment(..., node_selection_strategy=SelectedNodes(selector))``."""

    def __init__(self, selector: Selector) -> None:
        """Put a selector before the nodes."""
        super().__init__()
        self.selector = selector
        self._began: dict[int, tuple[int, float]] = {}

    def sample_nodes(self, from_nodes: list[str], round_i: int) -> list[str]:
        """Nodes that the policy chooses."""
        self.selector.join(set(from_nodes).difference(self.selector.clients))
        cohort = self.selector.select(from_nodes)
        self._began[round_i] = cohort.round, time.monotonic()
        self._sampling_node_history[round_i] = list(cohort.clients)
        return list(cohort.clients)

    def refine(self, training_replies: dict[str, Any], round_i: int) -> Any:
        """Learn from the replies, and aggregate those of the nodes that trained."""
        number, began = self._began.pop(round_i)
        replies = {reply["node_id"]: reply for reply in training_replies.values()}
        good = {node: reply for node, reply in replies.items() if reply["success"]}
        self.selector.observe(
            number,
            times_s={node: reply["timing"]["rtime_training"] for node, reply in good.items()},
            failed=replies.keys() - good.keys(),
            dropped=set(self._sampling_node_history[round_i]) - replies.keys(),
            round_s=time.monotonic() - began,  # times are the nodes' own word: none counts as longer than this
        )
        self._sampling_node_history[round_i] = list(good)
        return super().refine(good, round_i)
