"""Leases by name: of those who want to do the same, one may."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol


class Leases(Protocol):
    """Keeps who holds what. No step of a wall clock ends or prolongs a lease."""

    async def hold(self, name: str, token: str, lease: timedelta) -> bool:
        """Take a lease, or prolong it if it is ours; False: another holder has it.

        A store on another machine may let a process that asks for the first time wait one lease.
        """
        ...

    async def let_go(self, name: str, token: str) -> None:
        """Give a lease up, if it is ours."""
        ...

    async def held(self, prefix: str) -> Sequence[str]:
        """Name the leases that run now and begin so."""
        ...
