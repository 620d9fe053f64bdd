"""The demonstration: the same results through plain processing and through the resequencer."""
