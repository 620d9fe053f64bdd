"""Consumers, each in a process of its own: fill a queue, work it off, say what an event cost."""
