"""Mail archives to messages, chunks, embeddings, summaries and reports."""
