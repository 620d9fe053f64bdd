"""Publishers, each in a process of its own: what an event costs until the broker has it."""
