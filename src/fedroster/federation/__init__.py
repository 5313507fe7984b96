"""The books of a running federation: its members, its open rounds, what its policy has learned, and their files."""
