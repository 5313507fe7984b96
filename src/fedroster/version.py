"""The version, which nothing else stands on."""

__version__ = "0.1.0"
