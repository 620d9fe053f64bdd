"""The shell: carries out what the core decides, through ports only."""
