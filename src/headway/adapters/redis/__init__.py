"""Redis: the results of each key in their order, decided inside the server."""
