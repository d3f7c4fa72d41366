"""What a task's next slot becomes where the rules of its zone have changed: a pure function of values."""

from datetime import datetime, timedelta

from tocsin.common.models import PlanSpec
from tocsin.common.time.schedule import latest_slot, next_slot

_SECOND = timedelta(seconds=1)
_NEAR = timedelta(hours=12)
"""Where the old rules left no next slot: what comes sooner after the last one may be its other instant."""


def slot_by_new_rules(
    plan: PlanSpec, slot: datetime | None, last_slot: datetime | None, since: datetime, now: datetime
) -> datetime | None:
    """The next slot by the zone data in use, in place of `slot`, which older zone data gave.

    `slot`: later than `now`; None where the old rules left none. `last_slot`: the last slot accounted for.
    `since`: when the plan became what it is; no slot before it counts.

    Mostly it is the first slot later than `now` and `last_slot`. Where the zone data came after its law was in
    force, one local time has two instants about `now`, and they are told apart by nearness:

    - a slot that has passed, and is nearer to `slot` than to `last_slot`, is `slot` at its right instant. It is the
      answer, though late: what becomes of late slots is for the task's misfire policy to say;
    - a slot to come that is nearer to a `last_slot` which the new rules do not know is `last_slot` once more: it
      has fired, and the answer is the slot after it.
    """
    half = None if last_slot is None else last_slot + (_NEAR if slot is None else (slot - last_slot) / 2)
    if slot is not None:
        missed = next_slot(plan, since if half is None else max(since, half - _SECOND))
        if missed is not None and missed <= now:
            return missed
    if last_slot is None or half is None:
        return next_slot(plan, now)
    found = next_slot(plan, max(now, last_slot))
    if found is not None and found < half and latest_slot(plan, last_slot) != last_slot:
        return next_slot(plan, half - _SECOND)
    return found
