"""The scenario ``traces/devices``, as an entry point names it for the catalogue."""

from fedroster.catalogue import Entry

FEDSCALE = "Lai et al., ICML 2022, arXiv:2105.11367"

# A week of rounds, one every half hour: every policy meets every device as often as every other does, whatever its
# rounds take, and a device that is available for 3 % of the time has ten chances.
DEVICES = Entry(
    "fedroster.lab.worlds.network.TraceNetwork",
    "up to a million devices that come and go, on a virtual clock; real traces if given",
    FEDSCALE,
    rounds=336,
    untrained_rounds=336,
    settings={"round_interval_s": "1800"},
)
