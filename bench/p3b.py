"""P3b: the ordinary day of P3, with a network before the database that jitters, loses, and has a tail."""

from bench.frame import Measurement, Options, Screen
from bench.network import Latency
from bench.p3 import day, report
from bench.reach import distant
from bench.report import Report

ROUGH = Latency(round_trip_ms=1.0, jitter_ms=0.5, loss=0.0005, tail_share=0.01, tail_ms=20.0)
"""Another zone on a bad day: one answer in 100 takes 20 ms more, one chunk in 2,000 is sent again after 200 ms."""


async def run(options: Options, screen: Screen) -> Report:
    return report("p3b", options, *await day(options, screen, distant(ROUGH)))


MEASUREMENT = Measurement(
    "p3b", "the same day over a rough network: +1 ms a round trip, jitter, loss, and a tail of 20 ms", run
)
