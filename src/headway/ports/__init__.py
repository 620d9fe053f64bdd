"""What the runtime needs from the world, as protocols with their promises in the docstrings."""
