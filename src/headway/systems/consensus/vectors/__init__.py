"""Vectors of chunks: kept, and found by what is near them or by the words in them."""
