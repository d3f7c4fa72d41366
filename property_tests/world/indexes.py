"""The hint indexes that a process of the world may have: none, and one that lies in each way that the port knows of."""

import random
from collections.abc import Callable, Mapping

from property_tests.hint_worlds import EmptyHints
from tocsin.common.hints.lying import FailingHints, ForeignHints, InventedHints, StaleHints
from tocsin.common.hints.null import NullHints
from tocsin.common.hints.port import HintIndex

INDEXES: Mapping[str, Callable[[], HintIndex]] = {
    "none": NullHints,
    "empty": EmptyHints,
    "stale": StaleHints,
    "foreign": ForeignHints,
    "lying": lambda: InventedHints(random.Random(5)),
    "failing": FailingHints,
}
