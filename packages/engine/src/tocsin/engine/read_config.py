"""How the reader reads: its periods and its limits."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ReadConfig:
    """`lead` seconds ahead are read; the first look takes `glance` rows a queue, `batch` rows at most a statement.

    `far_lead` seconds ahead are read by the looks at all of a queue in its turn: so what a peak needs is at hand before
    its last seconds, and is not read over and over by every sweep.

    A round follows looks from the margin by `followed` pages in all, of `KNOWN_BEFORE` rows.
    `hint_wait`: seconds after which an index that does not answer counts as failed. `hint_mode`: every second look
    ahead is by hints; or, `auto`, as the judge says.
    """

    lead: float = 5.0
    far_lead: float = 15.0
    sweep_every: float = 2.0
    everything_turns: int = 5
    glance: int = 16
    batch: int = 2048
    planned_at_once: int = 100
    followed: int = 8
    hint_wait: float = 0.05
    hint_mode: Literal["on", "auto"] = "on"
