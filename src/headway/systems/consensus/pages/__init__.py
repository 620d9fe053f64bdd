"""Reports for people: a page for each thread, and an index of all of them."""
