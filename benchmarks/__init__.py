"""Headway measured beside its peers: every figure is a ratio from one interleaved run."""
