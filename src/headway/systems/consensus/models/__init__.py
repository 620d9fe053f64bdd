"""Models: what turns text into vectors, and discussions into summaries."""
