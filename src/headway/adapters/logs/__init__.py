"""Facts as log lines, for people and for machines."""
