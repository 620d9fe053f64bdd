from datetime import timedelta

from headway.clock import SystemChance, SystemClock


def test_the_time_is_aware_and_never_goes_backwards() -> None:
    clock = SystemClock()
    seen = [clock.now() for _ in range(1000)]
    assert seen == sorted(seen)
    assert seen[0].utcoffset() == timedelta()


async def test_waiting_takes_at_least_as_long_as_was_asked() -> None:
    clock, delay = SystemClock(), timedelta(milliseconds=2)
    begun = clock.now()
    clock.sleep(delay)
    slept = clock.now()
    await clock.wait(delay)
    assert slept - begun >= delay
    assert clock.now() - slept >= delay


def test_draws_lie_from_nought_to_one_and_tokens_differ() -> None:
    chance = SystemChance()
    draws = {chance.draw() for _ in range(1000)}
    assert all(0 <= draw < 1 for draw in draws)
    assert len(draws) > 990
    assert len({chance.token() for _ in range(1000)}) == 1000
