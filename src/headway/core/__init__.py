"""The rule, without any I/O: read from failure through classify, backoff and policy to action."""
