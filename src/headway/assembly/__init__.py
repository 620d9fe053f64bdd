"""Where it is put together: one reader of the environment, one place that builds."""
