"""Devices that come and go: how fast they are, when they are available, their files, and the network of them."""
