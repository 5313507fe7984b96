"""FedScale's Oort: given what it has learned of every client, chooses once for every line on its standard input."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from argparse import Namespace
from pathlib import Path

import numpy as np
from thirdparty.oort.oort import create_training_selector  # type: ignore[import-not-found]


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    logging.disable(logging.CRITICAL)
    known = np.load(Path(sys.argv[1]))
    settings = json.loads(str(known["settings"]))
    selector = create_training_selector(Namespace(**settings["arguments"]))
    rewards, durations, stamps = known["reward"].tolist(), known["duration"].tolist(), known["stamp"].tolist()
    for client, (reward, duration, stamp) in enumerate(zip(rewards, durations, stamps, strict=True)):
        selector.register_client(client, {"reward": reward, "duration": duration})
        if stamp:  # explored
            feedback = {"reward": reward, "duration": duration, "time_stamp": stamp, "status": True, "count": 1}
            selector.update_client_util(client, feedback)
    selector.training_round = settings["round"]
    everybody = set(range(len(rewards)))
    print(json.dumps({"numpy": np.__version__}), file=answers)
    for _ in sys.stdin:
        start = time.perf_counter()
        chosen = selector.select_participant(settings["cohort_size"], feasible_clients=everybody)
        seconds = time.perf_counter() - start
        print(json.dumps({"seconds": seconds, "chosen": len(set(chosen))}), file=answers)


if __name__ == "__main__":
    main()
