"""Pages for people, and the door for reports of errors."""
