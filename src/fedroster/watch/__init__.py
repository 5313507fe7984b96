"""A page on loopback that follows the record of a federation, read-only."""
