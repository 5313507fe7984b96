"""Devices that come and go: how fast they are, when they are there, the files that say so, and the network of them."""
