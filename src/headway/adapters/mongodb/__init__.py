"""MongoDB as a store: documents, done-records, and commits that are its transactions."""
