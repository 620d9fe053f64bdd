"""Time and chance: the real ones, and what a replacement for tests has to provide."""

from headway.adapters.system.chance import CHANCE, SystemChance
from headway.adapters.system.clock import CLOCK, SystemClock
from headway.ports.chance import Chance
from headway.ports.clock import Clock, ClockReading

__all__ = ["CHANCE", "CLOCK", "Chance", "Clock", "ClockReading", "SystemChance", "SystemClock"]
