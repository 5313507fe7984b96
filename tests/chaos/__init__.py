"""Attacks on fedroster from outside: kills, hostile input, threads, signals, liars.  ``python -m chaos`` runs them."""
