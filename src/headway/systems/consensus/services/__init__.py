"""The services of the pipeline; each takes the events of the one before it."""
