"""The move machine comes to each crash point of an executor and of the Supervisor, and whoever comes there dies."""

import pytest

from property_tests.moves import NO_WAYS, WAYS, MoveMachine, Way
from property_tests.moves_day import HOST_POINTS, SUPERVISOR_POINTS
from property_tests.world.struck import STRUCK
from tocsin.common.crashpoints import POINTS


def strikes(machine: MoveMachine, point: str) -> int:
    """How often somebody dies there in one program, in which all comes to rest again."""
    before = STRUCK[point, "CrashedError"]
    try:
        machine.begin_the_day(tenant=0, k=0, lanes=[0, 400], youngest_first=False, crowded=False)
        machine.somebody_dies(number=0, tenant=0, point=point)
        machine.look()
        machine.promise_1_all_comes_to_rest()
    finally:
        machine.teardown()
    return STRUCK[point, "CrashedError"] - before


@pytest.mark.parametrize("point", [*HOST_POINTS, *SUPERVISOR_POINTS])
def test_somebody_dies_at_each_point_and_the_promises_hold(point: str) -> None:
    assert strikes(MoveMachine(), point) > 0


class WithoutAWay(MoveMachine):
    def to_an_answer(self, number: int, tenant: int) -> Way:
        yield from ()


def test_a_point_that_nobody_comes_to_is_noticed() -> None:
    assert strikes(WithoutAWay(), "complete.after") == 0
    assert strikes(WithoutAWay(), "beat.after") > 0


def test_every_point_has_a_way_or_a_reason_why_none() -> None:
    families = {point.removesuffix(".before").removesuffix(".after") for point in POINTS}
    assert families == WAYS.keys() | NO_WAYS.keys()
    assert not WAYS.keys() & NO_WAYS.keys()
