"""The demonstration: a mailing list goes through the pipeline, and five things go wrong."""
