"""An engine without a disk, for tests and simulations: quick, and the same course every time."""
