"""A ledger of events over HTTP: every event is stored once, with its effect, or not at all."""
