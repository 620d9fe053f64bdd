"""The program of a worker: what `headway run` becomes, and what a supervisor starts.

What reads a command line takes a quarter of the memory of a small worker, for as long as it runs,
and a worker has none to read. So the command says in one argument what is to be done.
"""
