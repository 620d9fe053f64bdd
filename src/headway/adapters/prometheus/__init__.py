"""Facts as Prometheus metrics."""
