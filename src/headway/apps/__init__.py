"""What a person starts: the command line."""
