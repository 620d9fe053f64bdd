"""Load on a running ledger: what is sent, by whom, and the proof that nothing went wrong."""
