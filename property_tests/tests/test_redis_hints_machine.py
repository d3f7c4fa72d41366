"""The hint machine on a real Redis, in short."""

from property_tests.machine import Profile, play
from property_tests.redis_hints import RedisHintMachine

SEED = 20_260_313


def test_promise_11_whatever_redis_does_makes_no_difference() -> None:
    play(RedisHintMachine, Profile(examples=8, steps=20), SEED)
