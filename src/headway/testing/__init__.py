"""What the tests of this project, and of a service built on it, are made of.

`headway.testing.servers` starts real servers that leave nothing behind.
`headway.testing.proxy` breaks a connection to one of them at a chosen moment.
"""
