"""The world: one folder for each engine, none of which knows another."""
