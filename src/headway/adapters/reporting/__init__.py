"""Where errors are reported to."""
