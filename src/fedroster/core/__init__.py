"""Values, protocols, streams, state and errors: what everything else stands on."""
